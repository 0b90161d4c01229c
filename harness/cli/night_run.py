"""Measures profiles one after another, each by pytest in a process of its own, and keeps books.

However the night ends, its children end with it (they run under the supervisor that servers run
under, too), and whatever was measured is on disk. The same night started again goes on.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from harness.cli.chosen import builds_ahead, judged, settings_for
from harness.cli.night_child import Say, Sitting
from harness.errors import HarnessError, SetupError, StoreError
from harness.records.files import list_runs, now, read_run, replace_whole
from harness.records.lines import RunRecord
from harness.records.night import (
    TRIES,
    Attempt,
    Followed,
    Night,
    Result,
    exit_code,
    file_name,
    headline,
    to_be_resumed,
)
from harness.report.night import night_issue, night_summary
from harness.report.publish import MAX_SUMMARY_BYTES, STEP_SUMMARY
from harness.verdicts.judged import Judged

FOLDER = "nights"
BOOKS = "night.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a night is to do. `hours` bounds one sitting of it; `arguments` go to every pytest."""

    name: str
    root: Path
    results: Path
    profiles: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    baselines: Path | None = None
    hours: float | None = None
    wait_lock_s: float = 0.0

    @property
    def folder(self) -> Path:
        """Where everything about this night is: books, logs, reports, records."""
        return self.results / FOLDER / self.name

    def file(self, profile: str, suffix: str) -> Path:
        """A file about one profile."""
        return self.folder / f"{file_name(profile)}{suffix}"


def run_night(plan: Plan, say: Say, environ: Mapping[str, str] = os.environ) -> int:
    """Measure what is left of the night; the exit code is `records.night.exit_code`'s.

    Raises:
        StoreError: the books cannot be read or written.
        SetupError: this night is being measured already.
    """
    _check(plan)
    lock = FileLock(plan.folder / "night.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SetupError(
            f"night {plan.name} is being measured already ({plan.folder}); wait for it, or give "
            "this one another --name"
        ) from error
    except OSError as error:
        raise _unwritable(plan.folder, error) from error
    try:
        return _run(plan, say, environ)
    finally:
        lock.release()


def _check(plan: Plan) -> None:
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(plan.folder, error) from error


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror or error}; give another folder with --results"
    )


def _run(plan: Plan, say: Say, environ: Mapping[str, str]) -> int:
    until_s = None if plan.hours is None else time.monotonic() + plan.hours * 3600
    sitting = Sitting(plan.root, environ, say, until_s)
    night = _open(plan)
    interrupted = False
    try:
        for profile in plan.profiles:
            tries = 0
            while night.to_do(profile, tries) and tries < TRIES and not sitting.over:
                tries += 1
                night = _follow_builds(plan, night, profile, sitting)
                night = _measure(plan, night, profile, sitting)
            if tries == 0 and not night.to_do(profile, tries):
                say(f"{profile}: measured already in this night (--name NAME begins another)")
    except KeyboardInterrupt:
        interrupted = True
        night = _open(plan)
    results, runs = _results(plan, night)
    for line in _publish(plan, results, runs, environ):
        say(line)
    say(headline(plan.name, results) + (" (interrupted)" if interrupted else ""))
    return exit_code(results)


# -- books ----------------------------------------------------------------------------------


def _open(plan: Plan) -> Night:
    path = plan.folder / BOOKS
    if not path.is_file():
        return Night(name=plan.name, started_at=now(), profiles=plan.profiles)
    night = _read(path)
    known = (*night.profiles, *(p for p in plan.profiles if p not in night.profiles))
    return night.model_copy(update={"profiles": known})


def _read(path: Path) -> Night:
    try:
        return Night.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise StoreError(
            f"{path} are no books of a night ({str(error).splitlines()[0]}); delete that file or "
            "give the night another --name"
        ) from error


def _keep(plan: Plan, night: Night) -> Night:
    path = plan.folder / BOOKS
    try:
        replace_whole(path, night.model_dump_json(indent=1))
    except OSError as error:
        raise _unwritable(path, error) from error
    return night


def all_nights(results: Path) -> list[Night]:
    """All nights of these results, oldest first; unreadable books are passed over."""
    found = []
    for path in (results / FOLDER).glob(f"*/{BOOKS}"):
        try:
            found.append(_read(path))
        except StoreError:
            continue
    return sorted(found, key=lambda night: night.started_at)


def _others(plan: Plan) -> list[Night]:
    return [night for night in all_nights(plan.results) if night.name != plan.name]


# -- one profile ----------------------------------------------------------------------------


def _measure(plan: Plan, night: Night, profile: str, sitting: Sitting) -> Night:
    resume = to_be_resumed([*_others(plan), night], profile)
    night = _keep(plan, night.begun(Attempt(profile=profile, started_at=now(), resumed=resume)))
    log = plan.file(profile, ".log")
    before = written_at(plan.results)
    sitting.say(f"{profile}: {'going on' if resume else 'measuring'}, log {log}")
    code: int | None = None
    try:
        command = [*_command(plan, profile, resume), *_build(night, profile)]
        command += ["--no-spot"] if full_is_due(_others(plan), profile) else []
        code = sitting.ended(command, log)
    finally:
        record = measured_since(plan.results, profile, before)
        run_id = record.header.run_id if record is not None else None
        night = _keep(plan, night.ended(now(), code, run_id))
    sitting.say(
        f"{profile}: pytest ended with {'nothing: it was cut short' if code is None else code}"
    )
    return night


def _follow_builds(plan: Plan, night: Night, profile: str, sitting: Sitting) -> Night:
    """Compare a profile's build with a newer one, once a night; a night gone on with keeps its own.

    What cannot be had is said, and the accepted build measured.
    """
    if night.followed_by(profile) is not None:
        return night
    others = _others(plan)
    earlier = next((n for n in reversed(others) if n.last(profile)), None)
    begun = earlier.followed_by(profile) if earlier is not None else None
    if begun is not None and to_be_resumed([*others, night], profile):
        return _keep(plan, night.model_copy(update={"followed": (*night.followed, begun)}))
    try:
        ahead = builds_ahead(settings_for({"profile": profile}), profile)
    except HarnessError as error:
        sitting.say(f"{profile}: no newer build is looked at: {error}")
        return night
    if len(ahead) < 2:
        return night
    accepted, *passed_over, newest = ahead
    sitting.say(f"{profile}: {newest} is newer than {accepted}; comparing")
    command = [
        *(sys.executable, "-m", "harness", "compare", accepted, newest),
        *(f"--profile={profile}", f"--results={plan.results}"),
    ]
    log = plan.file(profile, ".compare.log")
    code = sitting.ended(command, log)
    if code is None:
        return night
    followed = Followed(
        profile=profile,
        accepted=accepted,
        newest=newest,
        passed_over=tuple(passed_over),
        said=last_words(log).removeprefix("harness: "),
        exit_code=code,
    )
    sitting.say(f"{profile}: {followed.sentence}")
    return _keep(plan, night.model_copy(update={"followed": (*night.followed, followed)}))


def full_is_due(earlier: Sequence[Night], profile: str) -> bool:
    """Whether a profile whose nights are spot runs is to be read in full this time."""
    try:
        settings = settings_for({"profile": profile})
    except HarnessError:
        return False  # pytest says what is wrong with it
    done = sum(night.done(profile) for night in earlier)
    return settings.spot and done % settings.spot_full_every == 0


def _build(night: Night, profile: str) -> list[str]:
    followed = night.followed_by(profile)
    return [] if followed is None else [f"--server-bin={followed.newest}"]


def _command(plan: Plan, profile: str, resume: bool) -> list[str]:
    argv = [
        *(sys.executable, "-m", "pytest", "-m", "long", "-p", "no:cacheprovider"),
        *(f"--profile={profile}", f"--results={plan.results}", "--save-slots"),
        f"--report={plan.file(profile, '.html')}",
        f"--junitxml={plan.file(profile, '.xml')}",
        f"--wait-lock={plan.wait_lock_s:g}",
    ]
    argv += [f"--baselines={plan.baselines}"] if plan.baselines is not None else []
    return [*argv, *(["--resume"] if resume else []), *plan.arguments]


def written_at(results: Path) -> dict[Path, tuple[int, int]]:
    """Each record with when it was last written and its size; no clock is asked, it may go back."""
    return {path: ((s := path.stat()).st_mtime_ns, s.st_size) for path in list_runs(results)}


def measured_since(
    results: Path, profile: str, before: Mapping[Path, tuple[int, int]]
) -> RunRecord | None:
    """The newest record of a profile that was written to since it was as `before`."""
    for path, written in reversed(written_at(results).items()):
        if before.get(path) == written:
            continue
        try:
            record = read_run(path)
        except StoreError:
            continue
        if record.header.profile == profile:
            return record
    return None


# -- what came of it ------------------------------------------------------------------------


def _results(plan: Plan, night: Night) -> tuple[list[Result], dict[str, Judged]]:
    results, runs = [], {}
    for profile in night.profiles:
        last = night.last(profile)
        run_id = next(
            (a.run_id for a in reversed(night.attempts) if a.profile == profile and a.run_id), None
        )
        run, said = _judged(plan, profile, run_id)
        if run is not None:
            runs[profile] = run
        elif not said:
            said = last_words(plan.file(profile, ".log"))
        if (followed := night.followed_by(profile)) is not None:
            said = f"{followed.sentence}. {said}" if said else followed.sentence
        results.append(
            Result(
                profile=profile,
                finished=night.done(profile),
                exit_code=last.exit_code if last is not None else None,
                outcome=run.verdict.outcome if run is not None else None,
                run_id=run_id,
                sittings=run.record.sittings if run is not None else 1,
                said=said,
            )
        )
    return results, runs


def _judged(plan: Plan, profile: str, run_id: str | None) -> tuple[Judged | None, str]:
    if run_id is None:
        return None, ""
    try:
        settings = settings_for(
            {"results": plan.results, "baselines": plan.baselines, "profile": profile}
        )
        return judged(read_run(plan.results / f"{run_id}.jsonl"), settings), ""
    except HarnessError as error:
        return None, str(error)


def last_words(log: Path) -> str:
    """The last error pytest names in a log, else the last line that says something."""
    if not log.is_file():
        return "not started"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = [line.strip() for line in reversed(lines) if line.strip()]
    return next((line for line in said if line.startswith("ERROR")), (*said, "it said nothing")[0])


def _publish(
    plan: Plan,
    results: Sequence[Result],
    runs: Mapping[str, Judged],
    environ: Mapping[str, str],
) -> Iterator[str]:
    """Write summary and issue, and put records and server logs beside them."""
    try:
        text = night_summary(plan.name, results, runs)
        path = plan.folder / "summary.md"
        path.write_text(text, encoding="utf-8", newline="\n")
        yield f"summary: {path}"
        issue, issue_path = night_issue(plan.name, results, runs), plan.folder / "issue.md"
        issue_path.unlink(missing_ok=True)
        if issue is not None:
            issue_path.write_text(issue, encoding="utf-8", newline="\n")
            yield f"issue text: {issue_path}"
        for run in runs.values():
            _copy_record(plan, run.record)
        if job := environ.get(STEP_SUMMARY):
            with Path(job).open("ab") as file:
                file.write(text.encode()[:MAX_SUMMARY_BYTES])
    except OSError as error:
        yield f"not all of the night's files could be written: {error}"


def _copy_record(plan: Plan, record: RunRecord) -> None:
    run_id = record.header.run_id
    logs = [f"{run_id}.server.log"]
    logs += [str(e.data["log"]) for e in record.events if isinstance(e.data.get("log"), str)]
    shutil.copy2(plan.results / f"{run_id}.jsonl", plan.folder)
    for name in logs:
        source = plan.results / "logs" / Path(name).name
        if source.is_file():
            shutil.copy2(source, plan.folder)

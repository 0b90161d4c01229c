"""Measures profiles one after another, each by pytest in a process of its own, and keeps books.

However the night ends, its children end with it (they run under the supervisor that servers run
under, too), and whatever was measured is on disk. The same night started again goes on.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from harness.cli.chosen import judged, settings_for
from harness.errors import HarnessError, SetupError, StoreError
from harness.records.files import list_runs, now, read_run, replace_whole
from harness.records.lines import RunRecord
from harness.records.night import (
    TRIES,
    Attempt,
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
_LOOK_EVERY_S = 0.2
_END_WITHIN_S = 60.0

Say = Callable[[str], None]


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
    """Measure what is left of the night; the exit code is `core.night.exit_code`'s.

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
    try:
        return _run(plan, say, environ)
    finally:
        lock.release()


def _check(plan: Plan) -> None:
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot write {plan.folder}: {error.strerror or error}; give another folder with "
            "--results"
        ) from error


def _run(plan: Plan, say: Say, environ: Mapping[str, str]) -> int:
    until_s = None if plan.hours is None else time.monotonic() + plan.hours * 3600
    night = _open(plan)
    interrupted = False
    try:
        for profile in plan.profiles:
            tries = 0
            while night.to_do(profile, tries) and tries < TRIES and not _over(until_s):
                tries += 1
                night = _measure(plan, night, profile, until_s, say, environ)
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
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}; give another folder with --results"
        ) from error
    return night


def _nights(plan: Plan) -> list[Night]:
    """All nights of these results, oldest first; unreadable books are passed over."""
    found = []
    for path in (plan.results / FOLDER).glob(f"*/{BOOKS}"):
        try:
            found.append(_read(path))
        except StoreError:
            continue
    return sorted(found, key=lambda night: night.started_at)


# -- one profile ----------------------------------------------------------------------------


def _measure(
    plan: Plan,
    night: Night,
    profile: str,
    until_s: float | None,
    say: Say,
    environ: Mapping[str, str],
) -> Night:
    resume = to_be_resumed([n for n in _nights(plan) if n.name != plan.name] + [night], profile)
    night = _keep(plan, night.begun(Attempt(profile=profile, started_at=now(), resumed=resume)))
    log = plan.file(profile, ".log")
    before = written_at(plan.results)
    say(f"{profile}: {'going on' if resume else 'measuring'}, log {log}")
    code: int | None = None
    try:
        with _supervised(_command(plan, profile, resume), log, plan.root, environ) as child:
            _follow(child, log, until_s, say)
            code = _exit_code(child)
    finally:
        record = measured_since(plan.results, profile, before)
        run_id = record.header.run_id if record is not None else None
        night = _keep(plan, night.ended(now(), code, run_id))
    say(f"{profile}: pytest ended with {'nothing: it was cut short' if code is None else code}")
    return night


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


@contextmanager
def _supervised(
    command: Sequence[str], log: Path, root: Path, environ: Mapping[str, str]
) -> "Iterator[subprocess.Popen[bytes]]":
    """A child whose whole tree is stopped when this block, or this process, ends."""
    supervisor = [sys.executable, "-m", "harness.serving.supervise", "--log", str(log), "--"]
    own = {k: v for k, v in environ.items() if k != STEP_SUMMARY}
    child = subprocess.Popen(  # noqa: S603 - our own command
        [*supervisor, *command],
        cwd=root,
        env={**own, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield child
    finally:
        if child.stdin is not None and not child.stdin.closed:
            child.stdin.close()
        child.wait(timeout=_END_WITHIN_S)
        if child.stdout is not None:
            child.stdout.close()


def _follow(child: "subprocess.Popen[bytes]", log: Path, until_s: float | None, say: Say) -> None:
    """Say what the child writes until it ends or its time is over."""
    at = log.stat().st_size if log.is_file() else 0
    running = True
    while running:
        running = child.poll() is None and not _over(until_s)
        at = _say_from(log, at, say)
        if running:
            time.sleep(_LOOK_EVERY_S)
    if child.poll() is None and child.stdin is not None:
        say("the night's time is over: stopping; what was measured is kept")
        child.stdin.close()
        child.wait(timeout=_END_WITHIN_S)
        _say_from(log, at, say)


def _say_from(log: Path, at: int, say: Say) -> int:
    if not log.is_file():
        return at
    with log.open("rb") as file:
        file.seek(at)
        whole, newline, _ = file.read().rpartition(b"\n")
    if not newline:
        return at
    for line in whole.decode("utf-8", "replace").splitlines():
        say(f"  {line}")
    return at + len(whole) + 1


def _exit_code(child: "subprocess.Popen[bytes]") -> int | None:
    """The child's code; `None` if it was stopped, or the supervisor told nothing."""
    assert child.stdout is not None
    for line in reversed(child.stdout.read().splitlines()):
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(told.get("exit"), int):
            return None if told.get("stopped") else int(told["exit"])
    return None


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


def _over(until_s: float | None) -> bool:
    return until_s is not None and time.monotonic() >= until_s

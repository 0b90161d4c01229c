"""The eight sessions whose ends stand in docs/design/answers.md, as made-up records."""

from collections.abc import Callable
from dataclasses import replace

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import Failure, Footer, MemorySample, Rung, RunRecord
from harness.report.answer import answer
from harness.report.terminal import summary
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge
from tests.made import BANDS, GIB, ask, judged, record, rung, whole_run

WIDTH = 80


def against(now: RunRecord, *then: RunRecord) -> Judged:
    """A run judged against these accepted ones, or against nothing."""
    baseline = None
    if then:
        runs = tuple(accepted(r, "2026-11-01T00:00:00+00:00", None) for r in then)
        baseline = Baseline(key=key_of(then[0].header), runs=runs)
    return Judged(now, judge(now, baseline, BANDS), baseline)


def quiet(run: Judged) -> Judged:
    """Without the event of the cliff, which every whole run has."""
    events = tuple(e for e in run.record.events if e.code != "cliff")
    return replace(run, record=run.record.model_copy(update={"events": events}))


def ended(run: RunRecord, failure: Failure | None = None) -> RunRecord:
    """With a last line."""
    footer = Footer(
        ended_at="2026-12-02T07:00:00+00:00",
        complete=failure is None,
        prefilled_tokens=9000,
        elapsed_s=61.0,
        failure=failure,
    )
    return run.model_copy(update={"footer": footer})


def two_rungs(**changes: object) -> tuple[Rung, Rung]:
    """Rungs at 2K and 8K."""
    return rung(**changes), rung(8192, start=1843, **changes)  # type: ignore[arg-type]


def busy(run: RunRecord) -> RunRecord:
    """Every speed disturbed: prefills by dpkg, generations by pip."""
    said = "contention: {} used {} % of the CPU (0.76 of 2 cores) during generation at 8192"

    def by(timed: tuple, who: str, share: int) -> tuple:  # type: ignore[type-arg]
        return tuple(t.model_copy(update={"contention": said.format(who, share)}) for t in timed)

    rungs = tuple(
        r.model_copy(
            update={
                "generations": by(r.generations, "pip", 35),
                "prefills": by(r.prefills, "dpkg", 14),
            }
        )
        for r in run.rungs
    )
    return run.model_copy(update={"rungs": rungs})


def wrong_control() -> Judged:
    """One answer right beside its question is wrong, at both rungs."""
    asks = [ask(control=False), ask(), ask()]
    return against(ended(record(*two_rungs(asks=asks))), *[record(*two_rungs())] * 2)


def leak() -> Judged:
    """3 MiB a generated token at the deepest rung."""
    held = tuple(
        MemorySample(
            rss_bytes=4 * GIB,
            rss_anon_bytes=GIB + n * 128 * 3_300_000,
            generated_tokens=n * 128,
        )
        for n in range(10)
    )
    shallow, deep = two_rungs()
    now = record(shallow, deep.model_copy(update={"memory": held}))
    return against(ended(now), *[record(*two_rungs())] * 2)


def interrupted() -> Judged:
    """Ctrl-C while the second rung was measured."""
    failure = Failure(
        cause="INTERRUPTED", message="stopped while measuring the rung 8192 (KeyboardInterrupt)"
    )
    shallow, deep = two_rungs()
    return against(ended(record(shallow, deep.model_copy(update={"failure": failure})), failure))


def changed_key() -> Judged:
    """The KV cache is q4_0 and was q8_0: no baseline of its own, and slower than the nearest."""
    slow = quiet(judged(generation=0.7)).record
    key = {**slow.header.server.key, "cache_type_k": "q4_0"}
    server = slow.header.server.model_copy(update={"key": key})
    now = slow.model_copy(update={"header": slow.header.model_copy(update={"server": server})})
    beside = against(now, whole_run(1), whole_run(2), whole_run(3))
    return replace(against(now), beside=beside)


SESSIONS: dict[str, Callable[[], Judged]] = {
    "Regressed": lambda: quiet(judged(cliff=0.6, generation=0.7, build="b11549-1b2c3d4e")),
    "Passed": lambda: against(ended(record(*two_rungs())), *[record(*two_rungs())] * 2),
    "First run": lambda: against(ended(whole_run(1).model_copy(update={"events": ()}))),
    "Busy machine": lambda: against(ended(busy(record(*two_rungs())))),
    "Wrong control": wrong_control,
    "Leak": leak,
    "Changed key": changed_key,
    "Ctrl-C": interrupted,
}


def end_of(run: Judged, *, encoding: str = "utf-8") -> str:
    """What a session of this run ends with, without blanks at the ends of lines."""
    shown = summary(run, width=WIDTH, color=False, encoding=encoding)
    text = f"{shown}record: results/(its name).jsonl\n{answer(run).line}"
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())

"""The end of a matrix: one table of its arms, and what is to be said of each."""

from collections.abc import Iterator, Mapping
from statistics import median

from rich.table import Table
from rich.text import Text

from harness.quantities import depth_label, number, share
from harness.questions.family import NEEDLES
from harness.records.family import family_of
from harness.records.lines import Rung, RunRecord
from harness.records.metrics import GENERATION, MEMORY, PREFILL, TTFT
from harness.records.outcomes import OUTCOMES
from harness.records.samples import samples_of, values_of
from harness.report.answer import answer
from harness.report.text import inert, plain_table, rendered
from harness.verdicts.family import attention_of, judge_family, suspicion
from harness.verdicts.judged import Judged

DISTURBED = "*"

Results = Mapping[str | None, Judged | str]
"""By arm: its run, or why it could not be measured."""


def matrix_summary(results: Results, *, width: int, color: bool, encoding: str | None) -> str:
    """All arms as text: a sentence for what is not plain, then the table, then the records."""
    lines = [*_said(results)]
    parts = [
        rendered(Text(inert(line), style=style), width=width, color=color, encoding=encoding)
        for line, style in lines
    ]
    if _rungs(results):
        parts.append(rendered(_table(results), width=width, color=color, encoding=encoding))
    for line in _footing(results):
        parts.append(rendered(Text(inert(line)), width=width, color=color, encoding=encoding))
    return "".join(parts)


def _said(results: Results) -> Iterator[tuple[str, str]]:
    yield from _family(results)
    for arm, result in results.items():
        if isinstance(result, str):
            yield f"arm {arm} not measured: {result}", "bold red"
            continue
        for cause in answer(result).causes:
            if cause.outcome not in ("PASS", "NO_BASELINE", "INCONCLUSIVE"):
                yield f"arm {arm}: {cause.sentence}", OUTCOMES[cause.outcome].style


def _family(results: Results) -> Iterator[tuple[str, str]]:
    """What members of the family answered, held against plain attention."""
    runs = {arm: result for arm, result in results.items() if not isinstance(result, str)}
    plain = next((attention_of(run.record) for arm, run in runs.items() if arm == NEEDLES), None)
    for run in runs.values():
        if (found := family_of(run.record)) is None:
            continue
        verdict = judge_family(found)
        style = OUTCOMES[verdict.outcome].style
        if said := suspicion(found, plain):
            yield said, style
        yield verdict.message, style


def _table(results: Results) -> Table:
    table = plain_table()
    drafting = any(_acceptance(rung) for *_, rung in _rungs(results))
    columns = (
        *("depth", "arm", "prefill tok/s", "generation tok/s", "warm TTFT ms", "memory GiB"),
        *("KV MiB log/theory", "right"),
        *(("drafts taken",) if drafting else ()),
    )
    for name in columns:  # headings in as many lines as words: 80 columns hold all cells uncut
        heading = name.replace(" ", "\n")
        whole = name in ("arm", "depth")
        table.add_column(heading, justify="left" if name == "arm" else "right", no_wrap=whole)
    last: int | None = None
    for arm, record, rung in sorted(_rungs(results), key=lambda measured: measured[2].depth):
        if last is not None and rung.depth != last:
            table.add_section()
        table.add_row(
            depth_label(rung.depth) if rung.depth != last else "",
            arm,
            *_measured(rung),
            _kv(record),
            _retrieval(rung),
            *((_acceptance(rung) or "-",) if drafting else ()),
        )
        last = rung.depth
    return table


def _rungs(results: Results) -> list[tuple[str | None, RunRecord, Rung]]:
    return [
        (arm, result.record, rung)
        for arm, result in results.items()
        if not isinstance(result, str)
        for depth in result.record.header.plan.depths
        if (rung := result.record.rung(depth)) is not None
    ]


def _measured(rung: Rung) -> Iterator[str]:
    """Medians of the four metrics; `*` where every sample of one was disturbed."""
    clean, every = samples_of(rung), samples_of(rung, contended=True)
    for metric in (PREFILL, GENERATION, TTFT, MEMORY):
        values = values_of(metric, clean) or values_of(metric, every)
        mark = DISTURBED if values and not values_of(metric, clean) else ""
        yield f"{number(median(values))}{mark}" if values else "-"


def _kv(record: RunRecord) -> str:
    """KV cache in MiB (2^20 bytes): the server's log against theory."""
    data = record.event_data("server_log").get("kv") or {}
    measured, theory = data.get("measured_bytes"), data.get("theory_bytes")
    if not theory:
        return "-"
    sizes = ["?" if not v else number(v / 2**20) for v in (measured, theory)]
    return f"{sizes[0]}/{sizes[1]}" if len("".join(sizes)) < 10 else " / ".join(sizes)


def _retrieval(rung: Rung) -> str:
    right, asked, controls_right, controls = samples_of(rung).retrieval
    if not asked:
        return "-"
    control = "" if controls_right == controls else f", control {controls_right}/{controls}"
    return f"{right}/{asked}{control}"


def _acceptance(rung: Rung) -> str | None:
    """Draft tokens that were accepted, of all drafted, over the generation repeats."""
    drafted = sum(g.draft_tokens or 0 for g in rung.generations)
    accepted = sum(g.draft_accepted_tokens or 0 for g in rung.generations)
    return f"{accepted}/{drafted} ({share(accepted / drafted)})" if drafted else None


def _footing(results: Results) -> Iterator[str]:
    if any(DISTURBED in text for *_, rung in _rungs(results) for text in _measured(rung)):
        yield f"{DISTURBED} only measured while other processes used the machine"
    for arm, result in results.items():
        if isinstance(result, str):
            continue
        for drift in result.verdict.drift:
            if drift.state == "drifted":
                yield f"arm {arm}, drift: {drift.sentence}"
        yield f"arm {arm}: {OUTCOMES[result.verdict.outcome].word}; record: {result.path}"
    if not _rungs(results)[1:]:
        return
    yield (
        "the arms ran one after another; whether a difference between two of them is more than "
        "drift and noise, `harness compare` says, which interleaves them"
    )

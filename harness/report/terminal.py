"""The terminal summary: the answer, what is not the same, and only with `every` the rest."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from harness.quantities import depth_label, duration, number
from harness.records.lines import REGAINED, RESUMED, RunRecord
from harness.records.metrics import FIDELITY, METRICS
from harness.records.outcomes import OUTCOMES, Outcome
from harness.records.probes import SCORE_EVENT, matrix_of
from harness.records.samples import samples_of
from harness.report.answer import Answer, answer, moved
from harness.report.heatmap_text import heatmap_lines
from harness.report.quantities import ABSENT, change, interval, quantity, samples
from harness.report.sparkline import prefill_line
from harness.report.text import inert, plain_table, rendered
from harness.verdicts import harder as harder_scores
from harness.verdicts import memory_account
from harness.verdicts.cell import CellVerdict
from harness.verdicts.judged import Judged
from harness.verdicts.order_effect import order_effect, scores_by_order
from harness.verdicts.verdict import RunVerdict

_WIDE = 118
_NARROW = 72
_COLUMNS = ("measured", "baseline", "change")
_CURVE_FOR: tuple[Outcome, ...] = ("REGRESSED", "IMPROVED", "NO_BASELINE")


def summary(
    run: Judged, *, width: int, color: bool, encoding: str | None, every: bool = False
) -> str:
    """The whole summary as text; with `every` all cells, their reasons and all notes."""
    said, style = answer(run), OUTCOMES[run.verdict.outcome].style
    lines = [(line, style if not place else "default") for place, line in enumerate(said.lines())]
    parts: list[Text | Table] = [Text(inert(line), style=tone) for line, tone in lines]
    parts += _results(run, width, every)
    curve = prefill_line(run.record, encoding, columns=width)
    if curve is not None and (every or said.outcome in _CURVE_FOR):
        parts.append(Text(curve))
    noted = [*_heading(run), *_wrong(run, said), *(_notes(run) if every else ())]
    parts += [Text(inert(line)) for line in noted]
    return "".join(rendered(p, width=width, color=color, encoding=encoding) for p in parts)


def _results(run: Judged, width: int, every: bool) -> Iterator[Text | Table]:
    """The table of what is not the same, or of a first run's numbers; with `every` of all cells."""
    cells = run.verdict.cells
    if every and cells:
        wide = ("interval", "n") if width >= _WIDE else ()
        yield _table(run.record, cells, (*_COLUMNS, *wide))
        for cell in cells:
            if cell.outcome not in ("PASS", "NO_BASELINE"):
                worth = OUTCOMES[cell.outcome]
                reason = f"{worth.word} {cell.metric.label} at {depth_label(cell.depth)}: "
                yield Text(inert(reason + cell.message), style=worth.style)
    elif some := moved(cells if run.beside is None else run.beside.verdict.cells):
        yield _table(run.record, some, _COLUMNS if width >= _NARROW else ("measured", "change"))
    elif run.baseline is None and any(c.measured is not None for c in cells):
        yield _numbers(run.record, run.verdict, " " if width >= _NARROW else "\n")


def _table(record: RunRecord, cells: Sequence[CellVerdict], columns: Sequence[str]) -> Table:
    said: dict[str, Callable[[CellVerdict], str]] = {
        "measured": lambda cell: _measured(record, cell),
        "baseline": lambda cell: quantity(cell, cell.baseline),
        "change": change,
        "interval": interval,
        "n": samples,
    }
    table = plain_table()
    table.add_column("depth", justify="right", no_wrap=True)
    table.add_column("metric")
    for name in columns:
        table.add_column(name, justify="right")
    table.add_column("", no_wrap=True)  # depth and outcome are never cut, the others fold
    last: int | None = None
    for cell in cells:
        table.add_row(
            depth_label(cell.depth) if cell.depth != last else "",
            cell.metric.label,
            *(said[name](cell) for name in columns),
            Text(OUTCOMES[cell.outcome].word, style=OUTCOMES[cell.outcome].style),
        )
        last = cell.depth
    return table


def _numbers(record: RunRecord, verdict: RunVerdict, before_unit: str) -> Table:
    """A row a rung, where there is nothing to compare with; `*` where nothing was undisturbed."""
    there = {c.metric.name for c in verdict.cells if c.metric is not FIDELITY}  # needs two runs
    metrics = [metric for name, metric in METRICS.items() if name in there]
    table = plain_table()
    table.box = None  # a row less: all of it is numbers
    table.add_column("depth", justify="right", no_wrap=True)
    for metric in metrics:
        unit = "" if metric.kind == "score" else f"{before_unit}{metric.unit}"
        label = metric.label.removeprefix("server ") + unit  # all five fit into 80 columns
        table.add_column(label, justify="right")
    for depth in dict.fromkeys(c.depth for c in verdict.cells):
        row = []
        for metric in metrics:
            cell = verdict.cell(depth, metric.name)
            text = ABSENT
            if cell is not None and cell.measured is not None:
                score = metric.kind == "score"
                text = _measured(record, cell) if score else number(cell.measured)
                text += "*" if cell.code == "contention" else ""
            row.append(text)
        table.add_row(depth_label(depth), *row)
    return table


def _measured(record: RunRecord, cell: CellVerdict) -> str:
    said = quantity(cell, cell.measured)
    rung = record.rung(cell.depth)
    if cell.metric.kind != "score" or cell.measured is None or rung is None:
        return said
    *_, right, controls = samples_of(rung).retrieval
    return said if right == controls else f"{said}, control {right} of {controls}"


def _heading(run: Judged) -> Iterator[str]:
    header, plan = run.record.header, run.record.header.plan
    starred = run.baseline is None and any(c.code == "contention" for c in run.verdict.cells)
    yield (
        f"{header.model.name} on {header.machine.machine_class}, server {header.server.build}, "
        f"context {depth_label(plan.ctx_tokens)}"
        + (f", {plan.distractors} distractors a rung" if plan.distractors else "")
        + (f", background {plan.background}" if plan.background != "plain" else "")
        + (f", profile {header.profile}" if header.profile else "")
        + ("; * disturbed" if starred else "")
    )
    if header.server.reduced:
        yield (
            "reduced mode: not a llama-server, so times are the client's, counts those of `usage`; "
            "missing: prefill by batch, proof of what was reused, build, flags, slots, KV cache"
        )


def _wrong(run: Judged, said: Answer) -> Iterator[str]:
    """What is wrong with the run or was asked for in so many words."""
    record, footer = run.record, run.record.footer
    if record.torn:
        yield "this record is broken off: what stands behind its last whole line is left out"
    if footer is None and not record.imported:
        yield "this record has no end: its run was killed, or is still being measured"
    effect = order_effect(scores_by_order(a for r in record.rungs for a in r.asks))
    if len({score.share for score in effect.scores if score.asked}) > 1:
        yield f"order of asking: {effect.sentence}"
    if (matrix := matrix_of(record)) is not None:
        yield from heatmap_lines(matrix)
    for event in record.events:
        if event.code == SCORE_EVENT and event.message.split(" ")[0] not in ("heatmap", "harder"):
            yield event.message
        if event.code == harder_scores.HARDER_EVENT:
            yield event.message
    yield from harder_scores.table(harder_scores.cells_of(record))
    told = {e.message: e.code for e in record.events if e.code in ("cliff", RESUMED, REGAINED)}
    yield from told
    others = [d for d in run.verdict.differences if " → " not in d]
    bad = OUTCOMES[said.outcome].bad
    yield from (d for d in others if bad or not d.startswith("new warning"))
    if bad:
        for rung in record.rungs:
            if rung.log_counts:
                counted = ", ".join(f"{code} ({n})" for code, n in sorted(rung.log_counts.items()))
                yield f"server's log at {depth_label(rung.depth)}: {counted}"
    if footer is not None and footer.failure is not None and footer.failure.cause != "INTERRUPTED":
        yield f"the run was cut short: {footer.failure.cause}: {footer.failure.message}"
        yield from (f"  | {line}" for line in footer.failure.log_tail[-12:])


def _notes(run: Judged) -> Iterator[str]:
    """What may be worth knowing of a run of which nothing is wrong."""
    record, footer = run.record, run.record.footer
    yield f"CPU: {record.header.machine.cpu}; server: {record.header.server.origin}"
    cold = [
        f"{depth_label(r.depth)}: {duration(r.cold_ttft_ms / 1e3)}"
        for r in record.rungs
        if r.cold_ttft_ms
    ]
    if cold:
        yield "cold TTFT (whole document read, first token): " + ", ".join(cold)
    for rung in record.rungs:
        for note, times in Counter(rung.notes).items():
            many = f" ({times} times)" if times > 1 else ""
            yield f"note at {depth_label(rung.depth)}: {note}{many}"
    yield from memory_account.sentences(record)
    for event in record.events:
        if event.code == "not_read":
            yield event.message
        if event.code == "machine":
            yield f"other load: {event.data.get('summary')}"
    for drift in run.verdict.drift:
        yield f"drift: {drift.sentence}"
    if footer is not None and footer.prefilled_tokens is not None:
        share = footer.prefilled_tokens / record.header.plan.ctx_tokens
        yield (
            f"{footer.prefilled_tokens:,} tokens prefilled in all (server's counts), "
            f"{share:.2f} x ctx, in {duration(footer.elapsed_s)}{_beside(record, footer.elapsed_s)}"
            + (" (the last sitting)" if record.sittings > 1 else "")
        )


def _beside(record: RunRecord, ladder_s: float) -> str:
    """How long what came after the ladder took, by the last answer of each."""
    last = {a.probe: a.ask.end_s for a in record.probe_asks if a.ask.end_s is not None}
    beyond_s = 0.0 if record.sittings > 1 else max(last.values(), default=0.0) - ladder_s
    return f"; {', '.join(last)} after it: {duration(beyond_s)}" if beyond_s > 0 else ""

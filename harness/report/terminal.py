"""The terminal summary: what failed and what to do first, then one table of all cells."""

from collections import Counter
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from harness.quantities import depth_label, duration
from harness.records.lines import REGAINED, RESUMED, RunRecord
from harness.records.outcomes import OUTCOMES
from harness.records.probes import SCORE_EVENT, matrix_of
from harness.records.samples import samples_of
from harness.report.heatmap_text import heatmap_lines
from harness.report.quantities import change, interval, quantity, samples
from harness.report.sparkline import prefill_line
from harness.report.text import inert, plain_table, rendered
from harness.verdicts import harder as harder_scores
from harness.verdicts import memory_account
from harness.verdicts.cell import CellVerdict
from harness.verdicts.order_effect import order_effect, scores_by_order
from harness.verdicts.verdict import RunVerdict

_NARROW = 118


def summary(
    record: RunRecord, verdict: RunVerdict, *, width: int, color: bool, encoding: str | None
) -> str:
    """The whole summary as text."""
    parts = [
        rendered(Text(inert(line)), width=width, color=color, encoding=encoding)
        for line in _heading(record)
    ]
    if verdict.cells:
        said = Text(_overall(verdict), style=OUTCOMES[verdict.outcome].style)
        parts.append(rendered(said, width=width, color=color, encoding=encoding))
    for line, style in _reasons(verdict):
        parts.append(
            rendered(Text(inert(line), style=style), width=width, color=color, encoding=encoding)
        )
    if verdict.cells:
        table = _table(record, verdict, narrow=width < _NARROW)
        parts.append(rendered(table, width=width, color=color, encoding=encoding))
    if (curve := prefill_line(record, encoding, columns=width)) is not None:
        parts.append(rendered(Text(curve), width=width, color=color, encoding=encoding))
    for line in _footing(record, verdict):
        parts.append(rendered(Text(inert(line)), width=width, color=color, encoding=encoding))
    return "".join(parts)


def _overall(verdict: RunVerdict) -> str:
    """The run's outcome, and how many cells have which."""
    counts = Counter(cell.outcome for cell in verdict.cells)
    each = ", ".join(f"{counts[o]} {o}" for o in OUTCOMES if counts[o])
    return f"{verdict.outcome}: {each} of {len(verdict.cells)} cells"


def _heading(record: RunRecord) -> Iterator[str]:
    header, plan = record.header, record.header.plan
    yield (
        f"{header.model.name} on {header.machine.cpu} ({header.machine.machine_class}), "
        f"server {header.server.origin} {header.server.build}, "
        f"context {depth_label(plan.ctx_tokens)}"
        + (f", {plan.distractors} distractors a rung" if plan.distractors else "")
        + (f", background {plan.background}" if plan.background != "plain" else "")
        + (f", profile {header.profile}" if header.profile else "")
    )
    if header.server.reduced:
        yield (
            "reduced mode: not a llama-server, so times are the client's, counts those of `usage`; "
            "missing: prefill by batch, proof of what was reused, build, flags, slots, KV cache"
        )


def _reasons(verdict: RunVerdict) -> Iterator[tuple[str, str]]:
    for outcome in OUTCOMES:
        if outcome == "PASS":
            continue
        groups: dict[tuple[str, str | None], list[CellVerdict]] = {}
        for cell in verdict.cells:
            if cell.outcome == outcome:
                own = outcome in ("NO_BASELINE", "ERROR") and cell.metric.kind != "score"
                shared = cell.message if own or outcome == "ERROR" else f"{id(cell)}"
                groups.setdefault((shared, cell.code), []).append(cell)
        if outcome == "NO_BASELINE" and groups:
            cells = [c for group in groups.values() for c in group]
            yield f"NO_BASELINE {len(cells)} cells: {_absence(cells)}", OUTCOMES[outcome].style
            yield f"  next: {cells[0].next_step}", "default"
            continue
        for step in dict.fromkeys(g[0].next_step for g in groups.values()):
            for cells in groups.values():
                if cells[0].next_step == step:
                    where = ", ".join(f"{c.metric.label} at {depth_label(c.depth)}" for c in cells)
                    yield f"{outcome} {where}: {cells[0].message}", OUTCOMES[outcome].style
            if step:
                yield f"  next: {step}", "default"


def _absence(cells: list[CellVerdict]) -> str:
    return next((c.message for c in cells if c.metric.kind != "score"), cells[0].message)


def _table(record: RunRecord, verdict: RunVerdict, *, narrow: bool) -> Table:
    table = plain_table()
    table.add_column("depth", justify="right", no_wrap=True)
    table.add_column("metric")
    for name in ("measured", "baseline", "change", *(() if narrow else ("interval", "n"))):
        table.add_column(name, justify="right")
    table.add_column("outcome", no_wrap=True)  # depth and outcome are never cut, the others fold
    last: int | None = None
    for cell in verdict.cells:
        if last is not None and cell.depth != last:
            table.add_section()
        row = [
            depth_label(cell.depth) if cell.depth != last else "",
            cell.metric.label,
            _measured(record, cell),
            quantity(cell, cell.baseline),
            change(cell),
        ]
        if not narrow:
            row += [interval(cell), samples(cell)]
        table.add_row(*row, Text(cell.outcome, style=OUTCOMES[cell.outcome].style))
        last = cell.depth
    return table


def _measured(record: RunRecord, cell: CellVerdict) -> str:
    said = quantity(cell, cell.measured)
    rung = record.rung(cell.depth)
    if cell.metric.kind != "score" or cell.measured is None or rung is None:
        return said
    *_, right, controls = samples_of(rung).retrieval
    return said if right == controls else f"{said}, control {right} of {controls}"


def _footing(record: RunRecord, verdict: RunVerdict) -> Iterator[str]:
    if record.torn:
        yield "the last line of this record was torn and is left out"
    if record.footer is None and not record.imported:
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
    cold = [
        f"{depth_label(r.depth)}: {duration(r.cold_ttft_ms / 1e3)}"
        for r in record.rungs
        if r.cold_ttft_ms
    ]
    if cold:
        yield "cold TTFT (whole document read, first token): " + ", ".join(cold)
    said: set[str] = set()
    for rung in record.rungs:
        for note, times in Counter(rung.notes).items():
            yield f"note at {depth_label(rung.depth)}: {note}" + (
                f" ({times} times)" if times > 1 else ""
            )
    for rung in record.rungs:
        if rung.log_counts:
            counted = ", ".join(f"{code} ({n})" for code, n in sorted(rung.log_counts.items()))
            yield f"server's log at {depth_label(rung.depth)}: {counted}"
    yield from memory_account.sentences(record)
    for event in record.events:
        if event.code in ("cliff", "not_read", RESUMED, REGAINED) and event.message not in said:
            said.add(event.message)
            yield event.message
        if event.code == "machine":
            yield f"other load: {event.data.get('summary')}"
    for drift in verdict.drift:
        yield f"drift: {drift.sentence}"
    for difference in verdict.differences:
        yield f"differs: {difference}"
    footer = record.footer
    if footer is not None and footer.prefilled_tokens is not None:
        share = footer.prefilled_tokens / record.header.plan.ctx_tokens
        yield (
            f"{footer.prefilled_tokens} tokens prefilled in all (server's counts), "
            f"{share:.2f} x ctx, in {duration(footer.elapsed_s)}"
            + (" (the last sitting)" if record.sittings > 1 else "")
        )
    if footer is not None and footer.failure is not None:
        yield f"the run was cut short: {footer.failure.cause}: {footer.failure.message}"
        for line in footer.failure.log_tail[-12:]:
            yield f"  | {line}"

"""The terminal summary: what failed and what to do first, then one table of all cells."""

from collections import Counter
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from harness.records.lines import REGAINED, RESUMED, RunRecord
from harness.records.outcomes import OUTCOMES
from harness.records.probes import SCORE_EVENT, matrix_of
from harness.records.samples import samples_of
from harness.report.heatmap_text import heatmap_lines
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
        f"server {header.server.origin} {header.server.build}, ctx {header.plan.ctx_tokens}"
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
                    where = ", ".join(f"{c.metric.label} at {c.depth}" for c in cells)
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
            str(cell.depth) if cell.depth != last else "",
            cell.metric.label,
            _measured(record, cell),
            "-" if cell.baseline is None else _quantity(cell, cell.baseline),
            "-" if cell.change is None else _percent(cell.change, cell),
        ]
        if not narrow:
            interval = (
                "-"
                if cell.low is None or cell.high is None
                else f"{_percent(cell.low, cell)} .. {_percent(cell.high, cell)}"
            )
            count = f"{cell.n_current}/{cell.n_baseline}" if cell.n_current else "-"
            row += [interval, count]
        table.add_row(*row, Text(cell.outcome, style=OUTCOMES[cell.outcome].style))
        last = cell.depth
    return table


def _measured(record: RunRecord, cell: CellVerdict) -> str:
    if cell.measured is None:
        return "-"
    if cell.metric.kind != "score":
        return _quantity(cell, cell.measured)
    rung = record.rung(cell.depth)
    if rung is None:
        return "-"
    right, asked, controls_right, controls = samples_of(rung).retrieval
    each = {f"{a.needles_right}/{a.needles_asked}" for a in rung.counted_asks}
    control = "control" if controls_right == controls else f"control {controls_right}/{controls}"
    if len(each) == 1 and controls_right == controls:
        return f"{each.pop()} + {control} x{controls}"
    return f"{right}/{asked} + {control}"


def _quantity(cell: CellVerdict, value: float) -> str:
    if cell.metric.kind == "score":
        return f"{value:.0f} right"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    if cell.metric.kind == "memory":
        digits = 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {cell.metric.unit}"


def _percent(share: float, cell: CellVerdict) -> str:
    return f"{share * 100:+.1f}{' pt' if cell.metric.kind == 'score' else '%'}"


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
    cold = [f"{r.depth}: {r.cold_ttft_ms / 1e3:,.1f} s" for r in record.rungs if r.cold_ttft_ms]
    if cold:
        yield "cold TTFT (whole document read, first token): " + ", ".join(cold)
    said: set[str] = set()
    for rung in record.rungs:
        for note, times in Counter(rung.notes).items():
            yield f"note at {rung.depth}: {note}" + (f" ({times} times)" if times > 1 else "")
    for rung in record.rungs:
        if rung.log_counts:
            counted = ", ".join(f"{code} ({n})" for code, n in sorted(rung.log_counts.items()))
            yield f"server's log at {rung.depth}: {counted}"
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
            f"{share:.2f} x ctx, in {footer.elapsed_s:.0f} s"
            + (" (the last sitting)" if record.sittings > 1 else "")
        )
    if footer is not None and footer.failure is not None:
        yield f"the run was cut short: {footer.failure.cause}: {footer.failure.message}"
        for line in footer.failure.log_tail[-12:]:
            yield f"  | {line}"

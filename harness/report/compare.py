"""The end of a comparison as text: what differs between the arms, the table, the verdict."""

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from harness.quantities import depth_label
from harness.records.metrics import FIDELITY, Metric
from harness.records.outcomes import OUTCOMES
from harness.report.quantities import amount, change, interval
from harness.report.text import inert, plain_table, rendered
from harness.verdicts.cell import CellVerdict
from harness.verdicts.compare import NO_SLOWER, SLOWER, Compared

NARROW = 102
NEXT_STEPS = {
    "noise": "more blocks (--blocks 6), or a wider --band",
    "together": "more blocks (--blocks 6)",
    "few_blocks": "more blocks (--blocks 6)",
    "contention": "wait for a quiet machine (--wait-quiet 600), or count all samples (--contended)",
    "pace": "again when nothing slows the machine or gives it other cores",
}


def comparison_text(
    compared: Compared,
    differing: Sequence[str],
    *,
    names: tuple[str, str] = ("A", "B"),
    width: int,
    color: bool,
    encoding: str | None,
) -> str:
    """Everything a comparison ends with, B against A; the answer stands first and last.

    `differing`: a sentence a difference; `names` of A and B.
    """
    said = answer(compared, *names)
    parts = [rendered(Text(inert(said)), width=width, color=color, encoding=encoding)]
    parts += [
        rendered(Text(inert(line), style=style), width=width, color=color, encoding=encoding)
        for line, style in _reasons(compared)
    ]
    parts.append(
        rendered(
            _table(compared, narrow=width < NARROW), width=width, color=color, encoding=encoding
        )
    )
    lines = [f"differs: {inert(sentence)}" for sentence in differing] or [
        "differs: nothing that could be read; this is an A/A comparison"
    ]
    lines.append(
        f"A was visited {compared.visits['A']} times, B {compared.visits['B']} times, interleaved, "
        "after a warm-up each that is not judged"
    )
    for why in compared.moved.values():
        lines.append(f"speeds of a block left out: {why}")
    codes = {c.code for c in compared.cells if c.outcome == "INCONCLUSIVE"}
    lines += [f"  next: {step}" for code, step in NEXT_STEPS.items() if code in codes]
    lines.append(inert(said))
    parts += [rendered(Text(line), width=width, color=color, encoding=encoding) for line in lines]
    return "".join(parts)


def answer(compared: Compared, a: str, b: str) -> str:
    """Whether `b` is worse than `a`, where, and by how much, in one sentence."""
    worse = [_moved(c) for c in compared.cells if c.outcome in ("REGRESSED", "LEAK")]
    better = [_moved(c) for c in compared.cells if c.outcome == "IMPROVED"]
    if compared.exit_code == SLOWER:
        also = f"; better: {', '.join(better)}" if better else ""
        return f"{b} is worse than {a}: {', '.join(worse)}{also}"
    if compared.exit_code == NO_SLOWER:
        return f"{b} is no worse than {a}" + (
            f", and better: {', '.join(better)}" if better else ""
        )
    open_ = [c for c in compared.cells if c.outcome not in ("PASS", "IMPROVED")]
    return f"cannot tell whether {b} is worse than {a}: {', '.join(map(_moved, open_))} not judged"


def _moved(cell: CellVerdict) -> str:
    """Such as `generation at 1K 3.9 × slower (488 tok/s, now 125 tok/s)`."""
    before, after = cell.baseline, cell.measured
    where = f"{cell.metric.label} at {depth_label(cell.depth)}"
    if cell.metric is FIDELITY and after is not None:
        return f"{where} ({amount(FIDELITY, after)} apart, {amount(FIDELITY, before)} among alike)"
    if not before or not after:
        return where
    ratio = max(before, after) / min(before, after)
    less = after < before
    word = {"speed": ("slower", "faster"), "latency": ("quicker", "longer")}.get(
        cell.metric.kind, ("less", "more")
    )[0 if less else 1]
    by = f"{ratio:.1f} × {word}" if ratio >= 1.5 else f"{abs(after / before - 1):.0%} {word}"
    numbers = f"{amount(cell.metric, before)}, then {amount(cell.metric, after)}"
    return f"{where} {by} ({numbers})"


def _reasons(compared: Compared) -> Iterator[tuple[str, str]]:
    for cell in compared.cells:
        if cell.outcome != "PASS":
            yield (
                f"{cell.outcome} {cell.metric.label} at {depth_label(cell.depth)}: {cell.message}",
                OUTCOMES[cell.outcome].style,
            )


def _bare(metric: Metric, amount: str) -> str:
    """An amount without its metric's unit; a share of answers stays one."""
    return amount.removesuffix(" right" if metric.kind == "score" else f" {metric.unit}")


def _table(compared: Compared, *, narrow: bool) -> Table:
    """One row a cell; without units and the change itself where the terminal is `narrow`."""
    table = plain_table()
    changes = () if narrow else ("B against A",)
    for name in ("depth", "metric", "A", "B", *changes, "interval", "outcome"):
        justify = "left" if name in ("metric", "outcome") else "right"
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    last: int | None = None
    for cell in compared.cells:
        if last is not None and cell.depth != last:
            table.add_section()
        values = [amount(cell.metric, value) for value in (cell.baseline, cell.measured)]
        table.add_row(
            depth_label(cell.depth) if cell.depth != last else "",
            cell.metric.label,
            *(_bare(cell.metric, value) if narrow else value for value in values),
            *(() if narrow else (change(cell),)),
            interval(cell),
            Text(cell.outcome, style=OUTCOMES[cell.outcome].style),
        )
        last = cell.depth
    return table

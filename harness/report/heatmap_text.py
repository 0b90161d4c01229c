"""A heatmap as text: one row a band of depth, one column a length, ASCII only."""

from collections.abc import Iterator

from harness.core.heatmap import CellState, Matrix

SIGNS: dict[CellState, str] = {
    "right": ".",
    "wrong": "X",
    "wrong_warm_only": "w",
    "unconfirmed": "?",
    "invalid": "!",
    "not_asked": "-",
}
_MEANINGS: dict[CellState, str] = {
    "right": "right",
    "wrong": "wrong, also when read cold",
    "wrong_warm_only": "wrong with the document reused, right when read cold",
    "unconfirmed": "wrong, not read cold",
    "invalid": "says nothing (control failed, contaminated, or cut by its budget)",
    "not_asked": "not asked",
}
_NAMED_CELLS = 8


def heatmap_sentence(matrix: Matrix) -> str:
    """The result in one sentence: cells by state, and the tokens it took."""
    cells = len(matrix.lengths) * matrix.bands
    states = [s for s in SIGNS if s != "right" and matrix.count(s)]
    apart = "".join(f"; {matrix.count(s)} {_MEANINGS[s]}" for s in states)
    return (
        f"heatmap {len(matrix.lengths)}x{matrix.bands} up to {matrix.lengths[-1]} tokens: "
        f"{matrix.count('right')} of {cells} cells right{apart}"
    )


def heatmap_lines(matrix: Matrix) -> Iterator[str]:
    """The heatmap as lines: sentence, grid, legend, wrong cells with their classes, tokens."""
    yield heatmap_sentence(matrix)
    heads = [_length(length) for length in matrix.lengths]
    width = max(len(head) for head in heads) + 1
    yield "   depth" + "".join(head.rjust(width) for head in heads)
    for band, row in enumerate(matrix.rows()):
        label = f"{band / matrix.bands:.0%}-{(band + 1) / matrix.bands:.0%}"
        yield label.rjust(8) + "".join(SIGNS[state].rjust(width) for state in row)
    present = {state for row in matrix.rows() for state in row}
    yield "; ".join(f"{SIGNS[s]} {_MEANINGS[s]}" for s in SIGNS if s in present)
    wrong = [c for c in matrix.cells if c.state not in ("right", "not_asked")]
    for cell in wrong[:_NAMED_CELLS]:
        cold = "" if cell.cold_class is None else f", cold: {_class(cell.cold_class)}"
        yield (f"  {cell.length} tokens, {cell.share:.0%}: {_class(cell.warm_class or '')}{cold}")
    if len(wrong) > _NAMED_CELLS:
        yield f"  and {len(wrong) - _NAMED_CELLS} more cells (see the record)"
    if matrix.prefilled_tokens is not None and matrix.question_tokens is not None:
        document = matrix.prefilled_tokens - matrix.question_tokens
        took = "" if matrix.elapsed_s is None else f", in {matrix.elapsed_s:.0f} s"
        yield (
            f"heatmap prefilled (server's counts): {document} tokens of document, "
            f"{document / matrix.lengths[-1]:.2f} x ctx, {matrix.question_tokens} of questions, "
            f"{matrix.confirm_tokens or 0} read cold to confirm{took}"
        )


def _length(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else str(tokens)


def _class(kind: str) -> str:
    return kind.replace("_", " ")

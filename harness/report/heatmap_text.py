"""A heatmap as text: one row a band of depth, one column a length, ASCII only."""

from collections.abc import Iterator

from harness.quantities import depth_label, duration
from harness.records.probes import _MEANINGS, SIGNS, Matrix, heatmap_sentence

_NAMED_CELLS = 8


def heatmap_lines(matrix: Matrix) -> Iterator[str]:
    """The heatmap as lines: sentence, grid, legend, wrong cells with their classes, tokens."""
    yield heatmap_sentence(matrix)
    heads = [depth_label(length) for length in matrix.lengths]
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
        yield (
            f"  {depth_label(cell.length)}, {cell.share:.0%}: {_class(cell.warm_class or '')}{cold}"
        )
    if len(wrong) > _NAMED_CELLS:
        yield f"  and {len(wrong) - _NAMED_CELLS} more cells (see the record)"
    if matrix.prefilled_tokens is not None and matrix.question_tokens is not None:
        document = matrix.prefilled_tokens - matrix.question_tokens
        took = "" if matrix.elapsed_s is None else f", in {duration(matrix.elapsed_s)}"
        yield (
            f"heatmap prefilled (server's counts): {document} tokens of document, "
            f"{document / matrix.lengths[-1]:.2f} x ctx, {matrix.question_tokens} of questions, "
            f"{matrix.confirm_tokens or 0} read cold to confirm{took}"
        )


def _class(kind: str) -> str:
    return kind.replace("_", " ")

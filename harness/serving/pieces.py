"""Counting many lines by one answer of the tokenizer: its pieces, summed up to each line's end."""

from collections.abc import Iterator, Sequence

from harness.errors import ServerError
from harness.serving.shapes import TokenPieces

_SEAM_BYTES = 16
"""What a tokenizer may add to a text or take from it (a blank before it, say)."""


def blocks(texts: Sequence[str], limit_bytes: int = 1 << 20) -> Iterator[Sequence[str]]:
    """`texts` in parts that one request may carry."""
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= limit_bytes:
            yield texts[start : index + 1]
            start, size = index + 1, 0
    if start < len(texts):
        yield texts[start:]


def counted(texts: Sequence[str], pieces: TokenPieces) -> list[int]:
    """Tokens of each of `texts`, which were sent as one.

    Raises:
        ServerError: the pieces are not the text.
    """
    ends: list[int] = []
    total = 0
    for text in texts:
        total += len(text.encode())
        ends.append(total)
    counts = [0] * len(texts)
    position = index = 0
    for token in pieces.tokens:
        while index < len(ends) - 1 and position >= ends[index]:
            index += 1
        counts[index] += 1
        position += token.size_bytes
    if abs(position - total) > _SEAM_BYTES + total // 100:
        raise ServerError(
            f"the pieces of /tokenize make {position} bytes of the {total} that were sent, so "
            "tokens cannot be counted by line; report the server's build and model",
            cause="SETUP",
        )
    return counts

"""Continuations: openings of the document's own lines, whose next token the server must weigh.

A line that stands in the document is begun again after its end, so that the likeliest next token
hangs on what was read far back. They are a function of the document alone, and so of seed, grammar
version and budget.
"""

from itertools import count

MOST = 32
"""Continuations of a rung that takes long enough to pay for them."""


def continuations(document: str, most: int = MOST) -> list[str]:
    """At most `most` openings, the first words of lines at places spread evenly over the document.

    Whatever number of them is used, from the first on, is spread over the whole of it (van der
    Corput's sequence). None ends in white space, and no two are equal.
    """
    lines = [line for line in document.splitlines() if len(line.split()) > 3]
    found: dict[str, None] = {}
    for number in count(1):
        if len(found) >= most or number > 4 * most or not lines:
            break
        words = lines[int(_spread(number) * len(lines))].split(" ")
        found[" ".join(words[: len(words) // 2])] = None
    return list(found)


def _spread(number: int) -> float:
    """Binary digits of `number` mirrored at the point: 1/2, 1/4, 3/4, 1/8, 5/8 …"""
    place, value = 0.5, 0.0
    while number:
        number, bit = divmod(number, 2)
        value += bit * place
        place /= 2
    return value

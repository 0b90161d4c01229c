"""Continuations: the same for the same document, spread over it however few are used."""

import random
from itertools import islice

from harness.questions.background import lines
from harness.questions.fidelity import MOST, continuations


def document(count: int) -> str:
    return "".join(islice(lines(random.Random(0), "plain"), count))


def test_they_are_openings_of_the_documents_own_lines() -> None:
    text = document(400)
    found = continuations(text)
    assert found == continuations(text)
    assert len(found) == len(set(found)) == MOST
    for opening in found:
        assert any(line.startswith(opening + " ") for line in text.splitlines())
        assert opening == opening.strip() != ""


def test_the_first_few_are_spread_over_all_of_it() -> None:
    text = document(400)
    places = [text.index(opening) / len(text) for opening in continuations(text)]
    assert {int(place * 8) for place in places[:15]} == set(range(8))


def test_a_short_document_gives_what_it_has() -> None:
    assert len(continuations(document(3))) <= 3
    assert continuations("") == []

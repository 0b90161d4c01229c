"""A chat template that writes today's date, and a run over midnight."""

from tests.faults.conftest import Measure
from tests.faults.fake_server import HEAD, FakeServer
from tests.faults.turn import Turn


def test_a_date_in_the_template_is_named_and_costs_one_reading(run: Measure) -> None:
    server = FakeServer()
    server.head = f"{HEAD}Today: 2 Dec.\n"

    def change(turn: Turn) -> None:
        if turn.place == "rung" and turn.nth == 1:
            server.head = f"{HEAD}Today: 3 Dec.\n"

    server.change = change
    with server:
        result = run(server)
    assert result.record is not None, result.refused
    short, deep = (result.record.rung(depth) for depth in (2048, 4096))
    assert short is not None
    assert deep is not None
    (said,) = [note for note in short.notes if "re-read" in note]
    assert "'Today: 2 Dec.' at first and writes 'Today: 3 Dec.' now" in said
    assert [p.kind for p in deep.prefills] == ["climb"]
    assert deep.notes == ()
    assert {ask.failure_class for ask in (*short.asks, *deep.asks)} == {"right"}


def test_questions_that_are_read_again_are_not_the_template_s_doing(run: Measure) -> None:
    server = FakeServer()

    def change(turn: Turn) -> None:
        if turn.place == "rung":
            server._cache = []

    server.change = change
    with server:
        result = run(server)
    assert result.record is not None, result.refused
    rung = result.record.rung(2048)
    assert rung is not None
    notes = [note for note in rung.notes if "re-read" in note]
    assert notes
    assert not any("template" in note for note in notes)

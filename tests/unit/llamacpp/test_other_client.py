"""Another client of the same server, by the server's own counters."""

import pytest

from harness.llamacpp.other_client import Counters, counters, other_client

METRICS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total {read}
llamacpp:tokens_predicted_total {generated}
llamacpp:prompt_tokens_seconds 1234.5
"""


def at(read: int, generated: int, *tasks: int, busy: int | None = None) -> Counters:
    slots = [{"id": i, "id_task": t, "is_processing": i == busy} for i, t in enumerate(tasks)]
    return counters(METRICS.format(read=read, generated=generated), slots)


def judged(before: Counters, after: Counters) -> str | None:
    return other_client(before, after, read_tokens=2000, generated_tokens=128)


def test_what_the_server_did_for_us_alone_is_no_contention() -> None:
    assert judged(at(100, 10, 5, 0), at(2103, 138, 9, 0)) is None


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (at(7220, 138, 9, 0), "it read 5,120 tokens that are not ours"),
        (at(2100, 438, 9, 0), "it generated 300 tokens that are not ours"),
        (at(2100, 138, 9, 7), "it worked in slot 1"),
        (at(2100, 138, 9, 0, busy=1), "it worked in slot 1"),
        (at(2100, 138, 9, 0, busy=0), "it worked in slot 0"),
    ],
)
def test_another_client_is_named_by_what_it_did(after: Counters, says: str) -> None:
    said = judged(at(100, 10, 5, 0), after)
    assert said is not None
    assert said.startswith("contention: another client used the same server: ")
    assert says in said


def test_a_server_that_tells_nothing_accuses_nobody() -> None:
    assert judged(counters(None, None), counters(None, None)) is None
    assert judged(counters("", [{"id": 0}]), counters("", [{"id": 0}])) is None
    large = counters("llamacpp:prompt_tokens_total 1.5e+07\n", None)
    assert large.read_tokens == 15_000_000

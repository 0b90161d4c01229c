"""Another client on the same server, seen by two looks at /slots."""

from contextlib import AbstractContextManager
from typing import Any, cast

import pytest

from harness.errors import ServerError
from harness.measuring.other_clients import OtherClients, another


def slot(number: int, task: int, *, working: bool = False) -> dict[str, Any]:
    return {"id": number, "id_task": task, "is_processing": working}


def test_our_own_request_is_nobody_else_s() -> None:
    assert another([slot(0, 5), slot(1, -1)], [slot(0, 9), slot(1, -1)]) is None
    assert another([{"id": 0}], [{"id": 0}]) is None  # a build that says no more


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([slot(0, 5), slot(1, 4)], [slot(0, 9), slot(1, 8)]),  # came and went meanwhile
        ([slot(0, 5), slot(1, 4)], [slot(0, 9), slot(1, 4, working=True)]),
        ([slot(0, 5), slot(1, 6, working=True)], [slot(0, 9), slot(1, 6)]),
    ],
)
def test_another_client_is_named_as_contention(before: Any, after: Any) -> None:
    said = another(before, after)
    assert said is not None
    assert said.startswith("contention: another client's request ran in slot ")
    assert "1" in said


class Client:
    """Answers /slots by turns."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), 0

    def get(self, path: str) -> Any:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def around(self, others: OtherClients, said: list[Any]) -> AbstractContextManager[None]:
        return others.watched(cast(Any, self), lambda *what: said.append(what))


def test_samples_of_that_time_are_disturbed_and_others_are_not() -> None:
    others, said = OtherClients(), list[Any]()
    calm = Client({"data": [slot(0, 1)]}, {"data": [slot(0, 2)]})
    with calm.around(others, said):
        pass
    assert said == []
    busy = Client({"data": [slot(0, 2)]}, {"data": [slot(0, 3, working=True)]})
    with busy.around(others, said):
        pass
    assert [code for code, _ in said] == ["contention"]
    ((start_ns, end_ns, _),) = others._seen
    assert others.during(start_ns, end_ns) == said[0][1]
    assert others.during(end_ns + 1, end_ns + 2) is None


@pytest.mark.parametrize("answer", [None, {"error": 1}, ServerError("HTTP 501")])
def test_a_server_that_does_not_tell_is_not_asked_again(answer: Any) -> None:
    others, client = OtherClients(), Client(answer)
    for _ in range(2):
        with client.around(others, []):
            pass
    assert client.asked == 1

"""The process that computes: behind a proxy, of another user, beside an intruder."""

from dataclasses import dataclass, field

import pytest

from harness.machine.computing import computing
from harness.machine.processes import CpuTotals, ProcessTimes, below

ME, PROXY, WORKER, SERVER, OTHER = 1, 10, 11, 20, 30
NAMES = {ME: "pytest", PROXY: "nginx", WORKER: "nginx", SERVER: "llama-server", OTHER: "firefox"}
PARENTS = {WORKER: PROXY}


@dataclass
class Machine:
    """A table whose processes use CPU by rates: CPUs at rest, and more while a request runs."""

    resting: dict[int, float] = field(default_factory=dict)
    asked: dict[int, float] = field(default_factory=dict)
    hidden: frozenset[int] = frozenset()
    now_s: float = 0.0
    used: dict[int, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 5.0))
    sees_everyone: bool = True
    sums_children: bool = True
    walk_s: float = 10.0

    def passes(self, seconds: float, rates: dict[int, float]) -> None:
        self.now_s += seconds
        for pid, rate in rates.items():
            self.used[pid] += rate * seconds

    def sleep(self, seconds: float) -> None:
        self.passes(seconds, self.resting)

    def ask(self) -> None:
        rates = {pid: self.resting.get(pid, 0.0) + self.asked.get(pid, 0.0) for pid in NAMES}
        self.passes(1.0, rates)

    def totals(self) -> CpuTotals:
        return CpuTotals(sum(self.used.values()), None)

    def pids(self) -> set[int]:
        return set(NAMES) - self.hidden

    def read(self, pid: int) -> ProcessTimes | None:
        if pid in self.hidden:
            return None
        return ProcessTimes(pid, PARENTS.get(pid, 0), NAMES[pid], self.used[pid], 0.0)

    def descendants(self, pids: set[int]) -> set[int]:
        return below({pid: PARENTS.get(pid, 0) for pid in NAMES}, pids)

    def command(self, pid: int) -> tuple[str, ...]:
        return ()

    def found(self, listener: int | None):
        return computing(
            listener,
            self.ask,
            table=self,
            own=ME,
            clock=lambda: self.now_s,
            sleep=self.sleep,
        )


def test_a_server_that_computes_itself_is_the_one_that_listens() -> None:
    found = Machine(asked={SERVER: 1.8, ME: 0.4}).found(SERVER)
    assert (found.pid, found.sentence) == (SERVER, None)


def test_so_is_a_listener_whose_child_computes() -> None:
    assert Machine(asked={WORKER: 1.5}).found(PROXY).pid == PROXY


@pytest.mark.parametrize("listener", [PROXY, None])
def test_behind_a_proxy_or_of_another_user_it_is_found_by_its_work(listener: int | None) -> None:
    found = Machine(asked={SERVER: 1.6, WORKER: 0.1}, resting={OTHER: 0.5}).found(listener)
    assert found.pid == SERVER
    assert found.sentence is not None
    assert "llama-server (PID 20)" in found.sentence


def test_a_process_that_computes_anyway_is_not_taken_for_it() -> None:
    found = Machine(resting={OTHER: 1.0}, asked={PROXY: 0.05}, hidden=frozenset({SERVER})).found(
        PROXY
    )
    assert found.pid is None
    assert found.sentence is not None
    assert "the server's memory is not read" in found.sentence


def test_two_that_work_alike_cannot_be_told_apart() -> None:
    assert Machine(asked={SERVER: 0.9, OTHER: 0.9}).found(None).pid is None

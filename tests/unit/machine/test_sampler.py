"""The sampler on a machine that the test makes up: no clock, no thread, no sleep."""

import mmap
import os
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.machine.contention import find
from harness.machine.gpu_use import GpuWatch
from harness.machine.load import Conditions, GpuState, GpuUse
from harness.machine.pressure import Pressure, PressureProbe
from harness.machine.processes import CpuTotals, ProcessTimes, below
from harness.machine.sampler import Host, Sampler

S = 1_000_000_000
ME = os.getpid()
FIREFOX, SERVER = ME + 1, ME + 2


@dataclass
class FakeTable:
    """Processes as a dictionary; `steps` move them on. The machine's total is their sum."""

    processes: dict[int, list[Any]] = field(default_factory=dict)
    sees_everyone: bool = True
    sums_children: bool = True
    walk_s: float = 10.0
    gone_s: float = 0.0
    steal_s: float | None = 0.0
    reads: int = 0
    broken: bool = False

    def add(self, pid: int, name: str, parent: int = 1, cpu_s: float = 0.0) -> None:
        self.processes[pid] = [name, parent, cpu_s]

    def totals(self) -> CpuTotals:
        if self.broken:
            raise ValueError("odd counter")
        return CpuTotals(self.gone_s + sum(p[2] for p in self.processes.values()), self.steal_s)

    def pids(self) -> set[int]:
        return set(self.processes)

    def read(self, pid: int) -> ProcessTimes | None:
        self.reads += 1
        if pid not in self.processes:
            return None
        name, parent, cpu_s = self.processes[pid]
        return ProcessTimes(pid, parent, name, cpu_s, 0.0)

    def descendants(self, pids: set[int]) -> set[int]:
        return below({pid: p[1] for pid, p in self.processes.items()}, pids)

    def command(self, pid: int) -> tuple[str, ...]:
        return ("python3", "-m", "vllm") if self.processes[pid][0] == "python3" else ()


@dataclass
class Machine:
    """The sampler's host, and what happens on it second by second."""

    table: FakeTable = field(default_factory=FakeTable)
    now_ns: int = 0
    gpu: dict[int, float] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    pressure: Pressure = field(default_factory=lambda: Pressure(0.0, 0, 9_000))
    conditions_read: int = 0

    def __post_init__(self) -> None:
        self.table.add(ME, "pytest")
        self.table.add(FIREFOX, "firefox", cpu_s=1000.0)
        for pid in range(ME + 100, ME + 200):
            self.table.add(pid, f"idle{pid}")
        self.sampler = Sampler(host=self.host())

    def host(self) -> Host:
        machine = self

        class FakeGpu(GpuWatch):
            def read(self, *arguments: Any) -> tuple[GpuUse, ...] | None:
                name = arguments[2]
                return tuple(GpuUse(pid, name(pid), share) for pid, share in machine.gpu.items())

        class FakeConditions:
            def read(self) -> Conditions:
                machine.conditions_read += 1
                return machine.conditions

        class FakePressure:
            def read(self) -> Pressure:
                return machine.pressure

        conditions: Any = FakeConditions()
        pressure: Any = FakePressure()
        return Host(
            self.table,
            FakeGpu(None, None, None),
            conditions,
            pressure,
            clock_ns=lambda: self.now_ns,
            cpus=2,
        )

    def second(self, **cpu_s: float) -> None:
        """One second passes in which the named processes use CPU; then a reading is taken."""
        self.now_ns += S
        for process in self.table.processes.values():
            process[2] += cpu_s.get(process[0], 0.0)
        self.sampler.mark()


@pytest.fixture
def machine() -> Machine:
    found = Machine()
    found.sampler.mark()
    return found


def test_others_are_counted_and_named_and_we_are_not(machine: Machine) -> None:
    machine.second(pytest=0.8, firefox=0.7)
    (reading,) = machine.sampler.readings()
    assert reading.others_cpu_s == pytest.approx(0.7)
    assert [(use.name, use.cpu_s) for use in reading.processes] == [("firefox", pytest.approx(0.7))]


def test_many_processes_of_one_name_are_one_cause(machine: Machine) -> None:
    for index in range(14):
        machine.table.add(FIREFOX + 10 + index, "sh")
    machine.second(sh=0.1)
    readings = machine.sampler.readings()
    (use,) = readings[0].processes
    assert (use.name, use.cpu_s) == ("sh", pytest.approx(1.4))
    found = find(readings, 0, S)
    assert found is not None
    assert found.causes[0].message == "sh used 70 % of the CPU (1.40 of 2 cores)"


def test_the_servers_tree_is_ours_whenever_it_starts(machine: Machine) -> None:
    machine.table.add(SERVER, "llama-server", parent=ME)
    machine.table.add(SERVER + 1, "llama-server", parent=SERVER)
    machine.second(**{"llama-server": 1.0})
    (reading,) = machine.sampler.readings()
    assert reading.others_cpu_s == pytest.approx(0.0)
    assert reading.rivals == ()


def test_a_server_started_by_hand_can_be_excluded(machine: Machine) -> None:
    machine.table.add(SERVER, "llama-server", cpu_s=500.0)
    machine.sampler.exclude(SERVER)
    machine.second(**{"llama-server": 1.0})
    machine.second(**{"llama-server": 1.0})
    assert machine.sampler.readings()[-1].others_cpu_s == pytest.approx(0.0)
    assert machine.sampler.readings()[-1].rivals == ()


def test_a_rival_that_appears_is_told_with_its_time(machine: Machine) -> None:
    machine.second()
    machine.table.add(SERVER, "llama-bench")
    machine.second()
    machine.second()
    rivals = [reading.rivals for reading in machine.sampler.readings()]
    assert rivals[0] == ()
    assert [(r.pid, r.name, r.since_ns) for r in rivals[1]] == [(SERVER, "llama-bench", S)]
    assert rivals[2] == rivals[1]
    found = find(machine.sampler.readings(), S, 2 * S)
    assert found is not None
    assert found.causes[0].kind == "rival"
    del machine.table.processes[SERVER]
    machine.second()
    assert machine.sampler.readings()[-1].rivals == ()


def test_a_rival_that_execs_after_its_first_reading_is_found(machine: Machine) -> None:
    machine.table.add(SERVER, "bash")
    machine.second()
    machine.table.processes[SERVER][0] = "llama-bench"
    machine.second()
    assert [r.name for r in machine.sampler.readings()[-1].rivals] == ["llama-bench"]


def test_rivals_run_by_an_interpreter_are_known_by_their_command(machine: Machine) -> None:
    machine.table.add(SERVER, "python3")
    machine.second(python3=1.0)
    reading = machine.sampler.readings()[-1]
    assert [r.name for r in reading.rivals] == ["vllm"]
    assert reading.processes[0].name == "python3 -m vllm"


def test_gpu_use_of_others_bears_their_names(machine: Machine) -> None:
    machine.table.add(SERVER, "python3")
    machine.gpu = {SERVER: 0.4}
    machine.second()
    assert machine.sampler.readings()[-1].gpu == (GpuUse(SERVER, "python3 -m vllm", 0.4),)


def test_rivals_that_were_there_before_have_no_time() -> None:
    machine = Machine()
    machine.table.add(SERVER, "ollama")
    machine.sampler.mark()
    machine.second()
    assert [r.since_ns for r in machine.sampler.readings()[0].rivals] == [None]


def test_reading_every_process_is_rare_while_quiet_and_while_contended(machine: Machine) -> None:
    machine.second(firefox=1.0)
    machine.table.reads = 0
    for _ in range(9):
        machine.second(firefox=1.0)
    assert machine.table.reads < 100  # there are 102 processes
    for _ in range(10):
        machine.second()
    assert 100 <= machine.table.reads < 300
    assert all(r.processes[0].name == "firefox" for r in machine.sampler.readings()[:9])


def test_one_that_was_idle_so_far_is_named_at_once(machine: Machine) -> None:
    for _ in range(3):
        machine.second()
    machine.second(**{f"idle{ME + 150}": 1.0})
    assert machine.sampler.readings()[-1].processes[0].name == f"idle{ME + 150}"


def test_use_before_the_reading_is_not_blamed_on_it(machine: Machine) -> None:
    for _ in range(5):
        machine.second(firefox=0.05)  # too little to be looked up
    machine.second(firefox=0.4)
    assert machine.sampler.readings()[-1].processes[0].cpu_s == pytest.approx(0.4)


def test_load_of_processes_gone_since_counts_unnamed(machine: Machine) -> None:
    machine.table.gone_s += 1.5
    machine.second()
    reading = machine.sampler.readings()[-1]
    assert reading.others_cpu_s == pytest.approx(1.5)
    assert reading.processes == ()


def test_our_own_time_that_falls_makes_no_load_of_others(machine: Machine) -> None:
    machine.table.processes[ME][2] = 50.0
    machine.now_ns += S
    machine.sampler.mark()
    machine.table.processes[ME][2] = 0.0
    machine.table.gone_s += 50.0
    machine.second()
    assert machine.sampler.readings()[-1].others_cpu_s is None


def test_steal_pressure_and_swap_are_differences(machine: Machine) -> None:
    machine.table.steal_s = 0.25
    machine.pressure = Pressure(0.5, 8192, 7_000)
    machine.second()
    machine.second()
    first, second = machine.sampler.readings()
    assert (first.steal_s, first.memory_stall_s, first.swapped_bytes) == (0.25, 0.5, 8192)
    assert (second.steal_s, second.memory_stall_s, second.swapped_bytes) == (0.0, 0.0, 0)
    assert second.available_bytes == 7_000  # a level, not a difference


def test_slow_probes_are_asked_rarely(machine: Machine) -> None:
    for _ in range(25):
        machine.second()
    assert machine.conditions_read == 3


def test_marks_close_together_are_one_reading(machine: Machine) -> None:
    machine.second()
    machine.now_ns += S // 20
    machine.sampler.mark()
    assert len(machine.sampler.readings()) == 1


def test_readings_join_without_gaps(machine: Machine) -> None:
    for _ in range(5):
        machine.second()
    readings = machine.sampler.readings()
    assert all(a.end_ns == b.start_ns for a, b in pairwise(readings))


def test_a_counter_that_fails_never_raises_and_is_said(machine: Machine) -> None:
    machine.second()
    machine.table.broken = True
    machine.second()
    machine.table.broken = False
    machine.second()
    machine.second()
    assert len(machine.sampler.readings()) == 2  # nothing is made up for the gap
    assert "some intervals: ValueError: odd counter" in machine.sampler.not_watched()


def test_a_reading_holds_the_looks_at_the_gpus_since_the_one_before(machine: Machine) -> None:
    clocks = iter((1980.0, 600.0, 570.0, 555.0, 1410.0))
    asked = []

    class FakeStates:
        def read(self) -> tuple[GpuState, ...]:
            asked.append(1)
            return (GpuState("card1", "NVML", core_mhz=next(clocks), held_by=("idle",)),)

    states: Any = FakeStates()
    host = replace(machine.host(), gpu_states=states)
    sampler = Sampler(host=host)
    sampler.mark()
    for _ in range(2):
        sampler.look()
    machine.now_ns += S
    sampler.mark()
    machine.now_ns += S
    sampler.mark()
    first, second = sampler.readings()
    assert first.gpu_states[0].core_mhz == 585.0
    assert second.gpu_states[0].core_mhz == 1410.0
    assert any("what holds them back (NVML)" in said for said in sampler.watched())
    assert len(asked) == 5


def test_where_the_server_is_not_known_others_are_not_judged(machine: Machine) -> None:
    machine.gpu = {FIREFOX: 0.9}
    sampler = Sampler(host=machine.host(), server_known=False)
    sampler.mark()
    machine.now_ns += S
    machine.table.processes[FIREFOX][2] += 1.9
    sampler.mark()
    (reading,) = sampler.readings()
    assert reading.others_cpu_s is None
    assert reading.gpu is None
    assert find(sampler.readings(), 0, S) is None
    assert any("could not be told from them" in said for said in sampler.not_watched())


def test_where_no_gpu_tells_none_is_asked_again(machine: Machine) -> None:
    asked = []

    class Nothing:
        def read(self) -> tuple[GpuState, ...]:
            asked.append(1)
            return ()

    states: Any = Nothing()
    sampler = Sampler(host=replace(machine.host(), gpu_states=states))
    for _ in range(3):
        sampler.look()
    assert len(asked) == 1


def test_what_is_watched_and_what_is_not(machine: Machine) -> None:
    machine.conditions = Conditions(cpu_mhz=3000.0)
    fresh = Machine(conditions=Conditions(cpu_mhz=3000.0), pressure=Pressure(None, None, None))
    fresh.table.steal_s = None
    fresh.sampler.mark()
    fresh.second()
    assert "CPU clock" in fresh.sampler.watched()
    assert "steal time" not in fresh.sampler.watched()
    missing = fresh.sampler.not_watched()
    assert "steal time: not told by this system" in missing
    assert "memory stalls: this kernel has no pressure information" in missing
    assert "GPU clocks: no GPU with a readable counter here" in missing
    assert any("memory bandwidth" in sentence for sentence in missing)
    assert "steal time" in machine.sampler.watched()


def test_start_and_stop_can_be_repeated() -> None:
    sampler = Sampler(host=Machine().host(), interval_s=3600)
    sampler.stop()
    sampler.start()
    thread = sampler._thread
    sampler.start()
    assert sampler._thread is thread
    assert thread is not None
    assert thread.daemon
    sampler.stop()
    sampler.stop()
    assert not thread.is_alive()


def test_pressure_in_proc(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/memory").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=700\n"
    )
    (tmp_path / "vmstat").write_text("pgpgin 5\npswpin 10\npswpout 20\npswpinx 9\n")
    (tmp_path / "meminfo").write_text("MemTotal:  24 kB\nMemAvailable:     12 kB\n")
    found = PressureProbe(tmp_path).read()
    assert found.available_bytes == 12 * 1024
    assert found.stall_s == 1.5
    assert found.swapped_bytes == 30 * mmap.PAGESIZE
    assert PressureProbe(tmp_path / "none").read().stall_s is None

"""The run's load and conditions as a series, and as lines in the report."""

from dataclasses import replace

from harness.machine.computing import Computing
from harness.machine.load import Conditions, GpuState, Reading
from harness.machine.watch import SERIES_POINTS, MachineWatcher, Pauses, series
from harness.records.lines import Event, GpuAt, RunRecord
from harness.records.metrics import METRICS
from harness.report.plots.machine import machine_timeline
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge
from tests.made import record, rung


def reading(second: int, others_cpu_s: float | None, mhz: float | None = 3000.0) -> Reading:
    return Reading(
        start_ns=second * 10**9,
        end_ns=(second + 1) * 10**9,
        cpus=2,
        others_cpu_s=others_cpu_s,
        conditions=Conditions(cpu_mhz=mhz),
    )


def gpus(second: int, *states: tuple[float, float, tuple[str, ...]]) -> Reading:
    """A reading with a state of each GPU: MHz, busy, what held it."""
    found = tuple(
        GpuState(f"card{i}", "NVML", core_mhz=mhz, busy=busy, held_by=held)
        for i, (mhz, busy, held) in enumerate(states)
    )
    return replace(reading(second, 0.0), gpu_states=found)


def judged(run: RunRecord) -> Judged:
    bands = {name: metric.band for name, metric in METRICS.items()}
    return Judged(run, judge(run, None, bands), None)


def test_shares_are_of_all_cpus_and_absent_is_none() -> None:
    one, two = series([reading(5, 0.5), reading(6, None, None)])
    assert one == {
        **dict.fromkeys(("steal_share", "cpu_c", "gpu_c", "gpu_mhz", "gpu_memory_mhz")),
        **dict.fromkeys(("gpu_power_w", "gpu_busy", "gpu_held_by")),
        "at_s": 1.0,
        "others_share": 0.25,
        "cpu_mhz": 3000.0,
    }
    assert two["others_share"] is None
    assert two["cpu_mhz"] is None
    assert series([]) == []


def test_the_server_s_gpu_is_the_one_that_works_and_a_window_knows_its_clock() -> None:
    idle = (210.0, 0.0, ("idle",))
    readings = [
        gpus(0, idle, (1980.0, 0.9, ())),
        gpus(1, idle, (1980.0, 0.8, ())),
        gpus(2, idle, (570.0, 0.1, ("idle",))),
    ]
    watched = Watched()
    watched._readings = readings
    watcher = MachineWatcher(Computing(None), watched)  # type: ignore[arg-type]
    assert watcher.gpu_at(0, 2 * 10**9) == GpuAt(counter="NVML", core_mhz=1980.0, held_by=())
    assert watcher.gpu_at(2 * 10**9, 3 * 10**9) == GpuAt(
        counter="NVML", core_mhz=570.0, held_by=("idle",)
    )
    assert watcher.gpu_at(9 * 10**9, 10 * 10**9) is None
    assert [p["gpu_mhz"] for p in series(readings)] == [1980.0, 1980.0, 570.0]
    assert series(readings)[2]["gpu_held_by"] == ["idle"]


def test_a_night_is_averaged_down() -> None:
    points = series([reading(s, 0.2 if s % 2 else 0.0) for s in range(36_000)])
    assert len(points) <= SERIES_POINTS
    assert {p["others_share"] for p in points} == {0.05}
    assert points[-1]["at_s"] == 36_000.0


def test_the_report_draws_what_was_read_and_tables_it() -> None:
    data = {"series": series([reading(s, 0.5) for s in range(4)])}
    run = record(rung(), events=[Event(code="machine", message="", data=data)])
    figure = machine_timeline(judged(run), 0)
    assert figure is not None
    names = [trace["name"] for trace in figure.traces]
    assert names == ["others' CPU use, %", "CPU clock, MHz"]
    assert figure.traces[0]["y"] == [25.0] * 4
    assert len(figure.table.rows) == 4
    assert machine_timeline(judged(record(rung())), 0) is None


class Watched:
    """A sampler that watched some seconds."""

    cost_s = 0.0

    def __init__(self, *seconds: int) -> None:
        self._readings = [reading(second, 0.0) for second in seconds]

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def mark(self) -> None:
        pass

    def readings(self) -> list[Reading]:
        return self._readings


def test_a_sample_that_was_hardly_watched_is_not_called_undisturbed() -> None:
    watcher = MachineWatcher(Computing(None), Watched(0, 1, 2))  # type: ignore[arg-type]
    assert watcher.contention(0, 3 * 10**9) is None
    assert watcher.contention(10**9, 4 * 10**9) is None
    said = watcher.contention(2 * 10**9, 12 * 10**9)
    assert said == "contention: not known, the machine was watched for 10% of it"


def test_a_machine_that_was_suspended_disturbs_what_it_touches() -> None:
    """Case 55: the clock that stands still while suspended against the one that does not."""
    second = 10**9
    clock = iter([0, 1, 2, 3])
    boot = iter([100, 101, 702, 703])  # ten minutes asleep between the second look and the third
    pauses = Pauses(lambda: next(clock) * second, lambda: next(boot) * second)
    for _ in range(4):
        pauses.look()
    said = pauses.within(second, 2 * second)
    assert said is not None
    assert "was suspended, or its clock was set, for 600 s" in said
    assert pauses.within(0, second) is None
    assert pauses.within(2 * second, 3 * second) is None
    assert Pauses().within(0, second) is None

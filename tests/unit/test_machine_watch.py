"""The run's load and conditions as a series, and as lines in the report."""

from harness.machine.load import Conditions, Reading
from harness.machine.watch import SERIES_POINTS, MachineWatcher, series
from harness.records.lines import Event, RunRecord
from harness.records.metrics import METRICS
from harness.report.plots.machine import machine_timeline
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge
from tests.unit.made_up import record, rung


def reading(second: int, others_cpu_s: float | None, mhz: float | None = 3000.0) -> Reading:
    return Reading(
        start_ns=second * 10**9,
        end_ns=(second + 1) * 10**9,
        cpus=2,
        others_cpu_s=others_cpu_s,
        conditions=Conditions(cpu_mhz=mhz),
    )


def judged(run: RunRecord) -> Judged:
    bands = {name: metric.band for name, metric in METRICS.items()}
    return Judged(run, judge(run, None, bands), None)


def test_shares_are_of_all_cpus_and_absent_is_none() -> None:
    one, two = series([reading(5, 0.5), reading(6, None, None)])
    assert one == {
        **dict.fromkeys(("steal_share", "gpu_mhz", "cpu_c", "gpu_c")),
        "at_s": 1.0,
        "others_share": 0.25,
        "cpu_mhz": 3000.0,
    }
    assert two["others_share"] is None
    assert two["cpu_mhz"] is None
    assert series([]) == []


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
    watcher = MachineWatcher(None, Watched(0, 1, 2))  # type: ignore[arg-type]
    assert watcher.contention(0, 3 * 10**9) is None
    assert watcher.contention(10**9, 4 * 10**9) is None
    said = watcher.contention(2 * 10**9, 12 * 10**9)
    assert said == "contention: not known, the machine was watched for 10% of it"

import dataclasses
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.contention import Thresholds, busy, coverage, find, summarise
from harness.machine.load import Conditions, GpuUse, ProcessUse, Reading, Rival

S = 1_000_000_000


def reading(second: float, span_s: float = 1.0, cpus: int = 2, **values: object) -> Reading:
    """A quiet reading from `second` on, changed by `values`."""
    quiet = Reading(
        start_ns=int(second * S),
        end_ns=int((second + span_s) * S),
        cpus=cpus,
        others_cpu_s=0.0,
        steal_s=0.0,
        gpu=(),
        memory_stall_s=0.0,
        swapped_bytes=0,
    )
    return dataclasses.replace(quiet, **values)  # type: ignore[arg-type]


def loaded(second: float, name: str, cpu_s: float, cpus: int = 2) -> Reading:
    used = (ProcessUse(100, name, cpu_s),)
    return reading(second, cpus=cpus, others_cpu_s=cpu_s, processes=used)


def kinds(*readings: Reading, thresholds: Thresholds | None = None) -> list[str]:
    found = find(readings, readings[0].start_ns, readings[-1].end_ns, thresholds or Thresholds())
    return [cause.kind for cause in found.causes] if found else []


def test_the_process_and_how_much_it_used_are_named() -> None:
    readings = [loaded(second, "firefox", 0.76) for second in range(10)]
    found = find(readings, 0, 10 * S)
    assert found is not None
    assert found.causes[0].process == "firefox"
    assert found.message("generation at 32768") == (
        "contention: firefox used 38 % of the CPU (0.76 of 2 cores) during generation at 32768"
    )


def test_a_desktops_few_percent_do_not_mark_a_measurement_on_two_cpus() -> None:
    assert kinds(*(loaded(second, "gnome-shell", 0.07) for second in range(10))) == []
    assert kinds(*(loaded(second, "gnome-shell", 0.12) for second in range(10))) == ["cpu"]


def test_one_busy_core_marks_a_machine_of_many() -> None:
    assert kinds(*(loaded(second, "cc1plus", 1.0, cpus=32) for second in range(5))) == ["cpu"]
    assert kinds(*(loaded(second, "Xorg", 0.3, cpus=32) for second in range(5))) == []


def test_half_of_the_others_is_said_to_be_only_the_first_of_them() -> None:
    uses = (ProcessUse(1, "make", 0.5), ProcessUse(2, "backup", 0.4))
    found = find([reading(0, others_cpu_s=1.0, processes=uses)], 0, S)
    assert found is not None
    assert found.message() == (
        "contention: other processes used 50 % of the CPU (1.00 of 2 cores), "
        "first of them make with 25 % of the CPU (0.50 of 2 cores)"
    )


@pytest.mark.parametrize("uses", [(), (ProcessUse(1, "init", 0.01),)])
def test_load_of_nobody_that_could_be_named(uses: tuple[ProcessUse, ...]) -> None:
    found = find([reading(0, others_cpu_s=1.0, processes=uses)], 0, S)
    assert found is not None
    assert found.causes[0].process is None
    assert "too short-lived to name" in found.message()


def test_processes_of_one_name_count_together() -> None:
    uses = tuple(ProcessUse(pid, "chrome", 0.3) for pid in range(3))
    found = find([reading(0, others_cpu_s=0.9, processes=uses)], 0, S)
    assert found is not None
    assert "chrome used 45 % of the CPU" in found.message()


def test_only_the_part_inside_the_window_counts() -> None:
    readings = [loaded(0, "backup", 2.0), *(reading(second) for second in range(1, 10))]
    assert find(readings, 0, S) is not None
    assert find(readings, S, 10 * S) is None
    assert find(readings, int(0.98 * S), int(1.98 * S)) is None  # 2 % of a window
    assert find(readings, int(0.5 * S), int(1.5 * S)) is not None  # half of it
    assert find(readings, int(0.2 * S), int(0.3 * S)) is not None  # within one reading


def test_windows_without_readings_are_no_verdict_and_not_covered() -> None:
    readings = [loaded(0, "backup", 2.0)]
    assert find([], 0, S) is None
    assert find(readings, 5 * S, 6 * S) is None
    assert coverage(readings, 5 * S, 6 * S) == 0.0
    assert coverage(readings, 0, 2 * S) == 0.5
    assert coverage(readings, 3 * S, 3 * S) == 1.0


def test_what_could_not_be_read_is_no_contention() -> None:
    unread = Reading(start_ns=0, end_ns=S, cpus=2)
    assert kinds(unread) == []
    assert summarise([unread]).others_mean_share is None


def test_stolen_time_counts_from_a_smaller_share_on() -> None:
    assert kinds(*(reading(second, steal_s=0.05) for second in range(10))) == []
    assert kinds(*(reading(second, steal_s=0.07) for second in range(10))) == ["steal"]
    assert kinds(*(reading(second, others_cpu_s=0.07) for second in range(10))) == []
    found = find([reading(0, steal_s=0.2)], 0, S)
    assert found is not None
    assert found.message() == ("contention: the hypervisor took 10 % of the CPU away (steal time)")


def test_the_grain_of_the_counters_is_no_contention() -> None:
    short = reading(0, span_s=0.25, others_cpu_s=0.04, steal_s=0.03)
    assert kinds(short) == []  # 0.16 CPU, but known to ±0.02 s only
    long = [reading(s, span_s=0.25, others_cpu_s=0.04, steal_s=0.03) for s in (0, 0.25, 0.5)]
    assert kinds(*long) == ["cpu", "steal"]


def test_a_window_shorter_than_the_reading_is_judged_by_the_reading() -> None:
    readings = [loaded(second, "make", 0.3) for second in range(3)]
    assert find(readings, int(1.2 * S), int(1.25 * S)) is not None


def test_a_rival_counts_when_it_starts_or_computes_but_not_when_it_waits() -> None:
    waiting = Rival(7, "ollama")
    assert kinds(reading(0, rivals=(waiting,))) == []
    uses = (ProcessUse(7, "ollama", 0.2),)
    computing = reading(0, cpus=16, rivals=(waiting,), others_cpu_s=0.2, processes=uses)
    assert kinds(computing) == ["rival"]
    started = Rival(8, "llama-bench", since_ns=3 * S)
    readings = [reading(second) for second in range(3)]
    readings += [reading(second, rivals=(started,)) for second in range(3, 9)]
    found = find(readings, 0, 5 * S)
    assert found is not None
    assert found.message() == "contention: llama-bench (PID 8) was started"
    assert find(readings, 4 * S, 9 * S) is None  # it has been there since, idle


def test_of_many_causes_the_worst_few_are_said() -> None:
    many = tuple(Rival(100 + n, "llama-bench", since_ns=S // 2) for n in range(50))
    found = find([reading(0, rivals=many)], 0, S)
    assert found is not None
    assert len(found.causes) == 50
    assert found.message().endswith("llama-bench (PID 103) was started; and 46 more")


def test_gpu_use_is_averaged_over_the_readings_that_could_tell() -> None:
    use = (GpuUse(9, "blender", 0.4),)
    assert kinds(reading(0, gpu=use), reading(1, gpu=None)) == ["gpu"]
    assert kinds(reading(0, gpu=(GpuUse(9, "Xorg", 0.02),))) == []
    found = find([reading(0, gpu=use)], 0, S)
    assert found is not None
    assert found.message() == "contention: blender used 40 % of the GPU"
    both = (GpuUse(9, "blender", 0.3), GpuUse(10, "game", 0.3))
    found = find([reading(0, gpu=both)], 0, S)
    assert found is not None
    assert "other processes used 60 % of the GPU, first of them blender" in found.message()


def test_memory_pressure_and_swapping_count() -> None:
    assert kinds(reading(0, memory_stall_s=0.2)) == ["memory"]
    assert kinds(reading(0, swapped_bytes=1 << 20)) == []
    found = find([reading(0, swapped_bytes=310 << 20)], 0, S)
    assert found is not None
    assert found.message() == "contention: the machine swapped 310 MiB in and out"


def test_a_power_profile_that_changes_during_the_run_counts_from_then_on() -> None:
    before, after = Conditions(power_profile="balanced"), Conditions(power_profile="low-power")
    readings = [reading(0, conditions=before), reading(1, conditions=after)]
    assert find(readings, 0, S) is None
    found = find(readings, S, 2 * S)
    assert found is not None
    assert "changed from balanced to low-power" in found.message()
    assert kinds(readings[1]) == []  # it was so from the start: the machine's own state


def test_going_on_battery_counts() -> None:
    plugged, battery = Conditions(on_battery=False), Conditions(on_battery=True)
    assert kinds(reading(0, conditions=plugged), reading(1, conditions=battery)) == ["power"]
    assert kinds(reading(0, conditions=battery), reading(1, conditions=battery)) == []


def test_the_worst_cause_comes_first() -> None:
    uses = (ProcessUse(1, "make", 2.0),)
    both = reading(0, others_cpu_s=2.0, processes=uses, memory_stall_s=0.06)
    assert kinds(both) == ["cpu", "memory"]


def test_busy_says_why_and_quiet_says_nothing() -> None:
    assert busy([]) is None
    assert busy([reading(0)]) is None
    assert busy([loaded(0, "make", 1.0)]) == (
        "the machine is busy: make used 50 % of the CPU (1.00 of 2 cores)"
    )


def test_the_summary_keeps_the_worst_and_the_ranges() -> None:
    warm = Conditions(cpu_mhz=3000.0, cpu_c=60.0, power_profile="balanced", on_battery=False)
    hot = dataclasses.replace(warm, cpu_mhz=2000.0, cpu_c=95.0)
    readings = [
        reading(0, conditions=warm, steal_s=0.02, available_bytes=9),
        dataclasses.replace(
            loaded(1, "make", 1.0), conditions=hot, swapped_bytes=4096, available_bytes=5
        ),
    ]
    found = summarise(readings)
    assert found.watched_s == 2.0
    assert found.contended_s == 1.0
    assert found.worst is not None
    assert found.worst.causes[0].process == "make"
    assert found.others_mean_share == pytest.approx(0.25)
    assert found.others_peak_share == pytest.approx(0.5)
    assert found.steal_mean_share == pytest.approx(0.005)
    assert found.swapped_bytes == 4096
    assert found.available_min_bytes == 5
    assert found.cpu_mhz == (2000.0, 3000.0)
    assert found.cpu_peak_c == 95.0
    assert found.power_profiles == ("balanced",)
    assert found.on_battery is False
    assert found.message() == (
        "1 of 2 s contended, at worst: make used 50 % of the CPU (1.00 of 2 cores)"
    )
    assert summarise([reading(0)]).message() == "no contention in 1 s watched"
    assert summarise([]).message() == "the machine's other load was not watched"


amounts = st.lists(st.floats(0, 2), min_size=1, max_size=30)


@given(amounts, st.floats(0, 1), st.floats(0, 1))
def test_marked_exactly_when_the_mean_in_the_window_is_beyond_the_threshold(
    used: list[float], one: float, other: float
) -> None:
    readings = [loaded(second, "make", cpu_s) for second, cpu_s in enumerate(used)]
    start, end = (int(x * len(used) * S) for x in sorted((one, other)))
    inside = [
        max(0, min(end, (second + 1) * S) - max(start, second * S)) / S
        for second in range(len(used))
    ]
    limit = Thresholds().others_cpus(2)
    mean = sum(map(mul, used, inside)) / max(sum(inside), 1e-12)
    whole = sum(cpu_s - limit for cpu_s, part in zip(used, inside, strict=True) if part)
    found = find(readings, start, end)
    if any(inside) and abs(mean - limit) > 1e-6 and abs(whole - 0.02) > 1e-6:
        assert (found is not None) == (mean > limit and whole > 0.02)


@given(amounts)
def test_more_load_never_unmarks(used: list[float]) -> None:
    lower = [loaded(second, "make", cpu_s / 2) for second, cpu_s in enumerate(used)]
    upper = [loaded(second, "make", cpu_s) for second, cpu_s in enumerate(used)]
    end = len(used) * S
    if find(lower, 0, end) is not None:
        assert find(upper, 0, end) is not None

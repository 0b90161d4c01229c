"""What stands in the way of trustworthy numbers on a machine, by its facts and its state. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.machine.known_bad import known_bad
from harness.quantities import size

Grade = Literal["in the way", "look", "fine", "unknown"]
GRADES: tuple[Grade, ...] = ("in the way", "look", "unknown", "fine")
LITTLE_DISK_BYTES = 5 << 30
HOT_C = 90.0
_SLOW_POWER = r"(?i)\bpower saver\b|best power efficiency|\blow-power\b|\bquiet\b"
_SLOW_GOVERNOR = r"governor (?:powersave|conservative|schedutil|ondemand)\b"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing looked at: what was seen, how it is graded, and what to do."""

    topic: str
    seen: str
    grade: Grade = "fine"
    next_step: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What changes from hour to hour; `None` is what could not be read.

    `holder` says who holds the machine's lock, `notes` how many servers of ended runs are noted,
    `baselines` how many of how many belong to this machine.
    """

    system: Literal["linux", "win32", "darwin"] | str
    memory_bytes: int
    available_bytes: int | None = None
    swap_used_bytes: int | None = None
    disk: str = ""
    disk_free_bytes: int | None = None
    on_battery: bool | None = None
    cpu_c: float | None = None
    gpu_c: float | None = None
    servers: Sequence[str] = ()
    lock: str = ""
    holder: str | None = None
    notes: int = 0
    machine_class: str = ""
    baselines: tuple[int, int] = (0, 0)


def examine(facts: Mapping[str, str], state: State) -> tuple[Line, ...]:
    """All lines: what is in the way first, then what to look at, then the rest."""
    bad = [
        Line(row.name, row.says, "in the way" if row.breaks else "look", row.next_step, row.source)
        for row in known_bad(facts)
    ]
    lines = [*bad, *_now(state), *_power(facts, state), *_limits(facts, state), *_system(facts)]
    if state.system == "win32":
        lines += _windows(facts)
    return tuple(sorted(lines, key=lambda line: GRADES.index(line.grade)))


def _now(state: State) -> Iterator[Line]:
    if state.servers:
        yield Line(
            "other servers", ", ".join(state.servers), "in the way", "stop them while you measure"
        )
    else:
        yield Line("other servers", "none")
    if state.holder is not None:
        yield Line("lock", state.holder, "look", "wait for that run, or --wait-lock SECONDS")
    else:
        yield Line("lock", f"free ({state.lock})")
    if state.notes:
        yield Line(
            "servers of ended runs",
            f"{state.notes} noted",
            "look",
            "the next run stops those that still run",
        )
    own, every = state.baselines
    if own:
        yield Line("baselines", f"{own} for this machine ({state.machine_class})")
    else:
        seen = f"none for this machine ({state.machine_class}), {every} for others"
        yield Line("baselines", seen, "look", "measure twice, then `harness baseline update`")
    if state.disk_free_bytes is not None:
        little = state.disk_free_bytes < LITTLE_DISK_BYTES
        yield Line(
            "free disk",
            f"{size(state.disk_free_bytes)} at {state.disk}",
            "look" if little else "fine",
            "records are small, saved slots (--save-slots) are not" if little else None,
        )
    yield from _memory(state)


def _memory(state: State) -> Iterator[Line]:
    if state.available_bytes is None:
        return
    seen = f"{size(state.available_bytes)} of {size(state.memory_bytes)} free"
    if state.swap_used_bytes:
        seen += f", {size(state.swap_used_bytes)} swapped out"
    tight = state.available_bytes < state.memory_bytes / 4
    step = "close what uses it: a model that is swapped out is read at the disk's speed"
    yield Line("memory", seen, "look" if tight else "fine", step if tight else None)


def _power(facts: Mapping[str, str], state: State) -> Iterator[Line]:
    if state.on_battery is not None:
        yield Line(
            "mains",
            "on battery" if state.on_battery else "plugged in",
            "in the way" if state.on_battery else "fine",
            "plug it in: on battery clocks are held down" if state.on_battery else None,
        )
    power = facts.get("power")
    if power is None:
        yield Line("power profile", "not readable", "unknown", "a virtual machine has its host's")
    elif re.search(_SLOW_POWER, power):
        step = (
            "powercfg /setactive SCHEME_MIN"
            if state.system == "win32"
            else "powerprofilesctl set performance"
        )
        yield Line("power profile", power, "in the way", step)
    elif re.search(_SLOW_GOVERNOR, power) and "preference performance" not in power:
        step = "cpupower frequency-set -g performance, or powerprofilesctl set performance"
        yield Line("power profile", power, "look", step)
    else:
        yield Line("power profile", power)
    if facts.get("turbo") == "off":
        yield Line("turbo", "off", "look", "fine if it stays so; baselines with it on do not fit")
    for name, value in (("CPU", state.cpu_c), ("GPU", state.gpu_c)):
        if value is not None:
            hot = value >= HOT_C
            yield Line(
                f"{name} temperature",
                f"{value:.0f} °C",
                "in the way" if hot else "fine",
                "let it cool down and look at its fans: it throttles" if hot else None,
            )
    if state.cpu_c is None and state.gpu_c is None:
        yield Line("temperatures", "not readable", "unknown", "watch drift between the controls")
    throttling = facts.get("NVIDIA throttling", "0x0000000000000000")
    if int(throttling.split(",")[0], 16) & ~0x1:  # bit 0: idle
        yield Line("NVIDIA throttling", throttling, "look", "nvidia-smi -q -d PERFORMANCE says why")


def _limits(facts: Mapping[str, str], state: State) -> Iterator[Line]:
    if limit := facts.get("memory limit"):
        seen = f"{limit} by control group, the machine has {size(state.memory_bytes)}"
        yield Line(
            "memory limit",
            seen,
            "look",
            "a server beyond it is killed (signal 9): raise it, or plan with it",
        )
    if limit := facts.get("CPU limit"):
        yield Line(
            "CPU limit",
            limit,
            "look",
            "give the server as many threads (-t), or it is throttled within each period",
        )
    if machine := facts.get("virtual machine"):
        yield Line(
            "virtual machine",
            machine,
            "look",
            "others share its host and are not seen; expect wider noise",
        )
    if kind := facts.get("container"):
        yield Line("container", kind, "look", "what runs outside of it is not seen")
    clock = facts.get("clock source")
    if clock in ("hpet", "acpi_pm", "jiffies"):
        yield Line("clock source", clock, "in the way", "boot with clocksource=tsc if it is stable")
    elif clock:
        yield Line("clock source", clock)


_PLAIN = (
    "kernel",
    "kernel flags",
    "firmware",
    "BIOS",
    "GPU target",
    "GPU memory",
    "Vulkan packages",
    "ROCm",
    "ROCm packages",
    "IOMMU",
    "huge pages",
    "NVIDIA driver",
    "NVIDIA power limit",
    "NVIDIA MIG",
    "NVIDIA ECC",
    "Windows",
    "Radeon software",
    "GPU scheduling by hardware",
    "page file",
)
"""Facts that are told as they are."""


def _system(facts: Mapping[str, str]) -> Iterator[Line]:
    if facts.get("NVIDIA persistence mode") == "Disabled":
        step = "sudo nvidia-smi -pm 1, or the first request waits for the driver"
        yield Line("NVIDIA persistence mode", "off", "look", step)
    for fact in _PLAIN:
        if fact in facts:
            yield Line(fact, facts[fact])
    amd = re.search(r"(?i)\bamd\b|radeon", facts.get("GPU", ""))
    if amd and "firmware" not in facts and "kernel" in facts:
        step = "note its version yourself: some versions break ROCm"
        yield Line("firmware", "no package of it found", "unknown", step)


def _windows(facts: Mapping[str, str]) -> Iterator[Line]:
    if facts.get("memory integrity") == "on":
        yield Line("memory integrity", "on", "look", "fine if it stays so; it costs some speed")
    exclusions = facts.get("virus scanner's exclusions")
    wanted = "exclude the folders of models and llama.cpp: the first read of a model is a scan"
    if exclusions is None:
        yield Line("virus scanner's exclusions", "not readable", "unknown", f"{wanted} (as admin)")
    else:
        none = exclusions == "none"
        yield Line(
            "virus scanner's exclusions",
            exclusions,
            "look" if none else "fine",
            wanted if none else None,
        )
    if facts.get("long paths") != "on":
        yield Line(
            "long paths",
            "off",
            "look",
            "keep the clone near the root, or set LongPathsEnabled to 1 (as admin)",
        )
    runtime = facts.get("Visual C++ runtime")
    seen = runtime or "not installed: the packages bring what the embedded server needs"
    yield Line("Visual C++ runtime", seen)
    if (delay := facts.get("GPU timeout (TdrDelay), s")) is not None:
        yield Line("GPU timeout (TdrDelay)", f"{delay} s")

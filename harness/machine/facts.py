"""What speed depends on beside hardware and server: kernel, firmware, limits, power, as text.

Whatever cannot be read is left out; nothing here raises or takes long (tools get a second each).
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from harness.machine import system_text as parse
from harness.machine.conditions import ConditionsProbe
from harness.machine.rivals import by_command, by_name, runs_a_script

_PATIENCE_S = 1.0
_PACKAGES = {
    "firmware": (
        "linux-firmware linux-firmware-amdgpu amd-gpu-firmware firmware-amd-graphics "
        "amdgpu-dkms-firmware"
    ),
    "Vulkan packages": "mesa-vulkan-drivers vulkan-radeon amdvlk",
    "ROCm packages": "rocm-core hsa-rocr rocr-runtime rocm-runtime",
}
_LISTERS = (
    ("dpkg-query", "-W", "-f", "${Package} ${Version}\\n"),
    ("rpm", "-q", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n"),
    ("pacman", "-Q"),
)
STRIX_HALO = ("0x1002", "0x1586")  # PCI ids of gfx1151, where the compute driver does not tell

PASSING = ("NVIDIA throttling",)
"""Facts of the moment: no part of what a machine is set to."""

Run = Callable[[Sequence[str]], str]


def read_facts(root: Path = Path("/"), run: Run | None = None) -> dict[str, str]:
    """The facts of this machine by name. `root` and `run` are for tests."""
    ask = run or output
    facts: dict[str, str | None] = {}
    if sys.platform == "win32":
        from harness.machine.windows_facts import read_registry

        facts |= read_registry()
    elif sys.platform == "linux":
        facts |= _linux(root) | _packages(ask)
    facts["power"] = ConditionsProbe(nvml=None, sys_root=root / "sys").read().power_profile
    if shutil.which("nvidia-smi"):
        query = f"--query-gpu={','.join(parse.NVIDIA_QUERY)}"
        facts |= parse.nvidia_facts(ask(("nvidia-smi", query, "--format=csv,noheader")))
    return {name: value for name, value in facts.items() if value}


def output(command: Sequence[str]) -> str:
    """A tool's standard output; empty where it is missing, fails to start or hangs."""
    try:
        done = subprocess.run(  # noqa: S603 - the system's own tools
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _packages(run: Run) -> dict[str, str | None]:
    lister = next((words for words in _LISTERS if shutil.which(words[0])), None)
    if lister is None:
        return {}
    found = parse.packages(run((*lister, *" ".join(_PACKAGES.values()).split())))
    return {
        fact: ", ".join(f"{n} {found[n]}" for n in names.split() if n in found)
        for fact, names in _PACKAGES.items()
    }


def _linux(root: Path) -> dict[str, str | None]:
    sys_, proc = root / "sys", root / "proc"
    dmi = {n: _text(sys_ / "class/dmi/id" / n) for n in ("sys_vendor", "product_name")}
    bios = (_text(sys_ / "class/dmi/id" / n) for n in ("product_name", "bios_version", "bios_date"))
    cpu = sys_ / "devices/system/cpu"
    kfd = (_text(p) for p in sorted(sys_.glob("class/kfd/kfd/topology/nodes/*/properties")))
    marks = (
        "docker" if (root / ".dockerenv").exists() else "",
        "podman" if (root / "run/.containerenv").exists() else "",
        _text(root / "run/systemd/container"),
    )
    return {
        "kernel": _text(proc / "sys/kernel/osrelease"),
        "kernel flags": parse.kernel_flags(_text(proc / "cmdline")),
        "BIOS": ", ".join(text for text in bios if text),
        "GPU target": ", ".join(parse.kfd_targets(kfd)) or _strix_halo(sys_),
        "GPU memory": "; ".join(_gpu_memory(sys_)),
        "NVIDIA module": _first_line(proc / "driver/nvidia/version").partition("  ")[2].strip(),
        "ROCm": _text(root / "opt/rocm/.info/version"),
        "IOMMU": parse.iommu(
            (p.name for p in sys_.glob("class/iommu/*")),
            (_text(p) for p in sys_.glob("kernel/iommu_groups/*/type")),
        ),
        "turbo": _turbo(cpu),
        "huge pages": _chosen(_text(sys_ / "kernel/mm/transparent_hugepage/enabled")),
        "clock source": _text(sys_ / "devices/system/clocksource/clocksource0/current_clocksource"),
        "container": parse.container(_text(proc / "1/cgroup"), marks),
        "virtual machine": parse.hypervisor(
            _text(proc / "cpuinfo"),
            dmi["sys_vendor"],
            dmi["product_name"],
            _text(proc / "sys/kernel/osrelease"),
        ),
        "memory limit": _gib(memory_limit_bytes(root)),
        "CPU limit": _cpus(root),
    }


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """The least memory limit of the control groups this process is in (v2, else v1), bytes."""
    read = (parse.memory_limit_bytes(_text(f)) for f in _cgroup_files(root, "memory.max"))
    v1 = (
        parse.memory_limit_bytes(_text(f))
        for f in _cgroup_files(root, "memory.limit_in_bytes", "memory")
    )
    return min((limit for limit in (*read, *v1) if limit is not None), default=None)


def _cpus(root: Path) -> str | None:
    read = (parse.cpu_limit(_text(f)) for f in _cgroup_files(root, "cpu.max"))
    least = min((limit for limit in read if limit is not None), default=None)
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    told = [f"{least:g} CPUs by control group" if least is not None else ""]
    if bound is not None and bound != os.cpu_count():
        told.append(f"bound to {bound} of {os.cpu_count()} CPUs")
    return ", ".join(filter(None, told)) or None


def _cgroup_files(root: Path, name: str, controller: str = "") -> Iterator[Path]:
    """A control file of this process's group and of those above it, as far as they are seen."""
    text = _text(root / "proc/self/cgroup")
    path = parse.cgroup_path(text, controller)
    for top in (root / "sys/fs/cgroup" / controller, root / "sys/fs/cgroup/unified"):
        if path is not None:
            group = top / path.strip("/")
            for folder in (group, *(p for p in group.parents if p.is_relative_to(top))):
                if (folder / name).is_file():
                    yield folder / name


def _gpu_memory(sys_: Path) -> Iterator[str]:
    """AMD GPUs: memory set apart at boot (BIOS), and what of the system's they may map (GTT)."""
    for card in sorted(sys_.glob("class/drm/card*/device")):
        vram, gtt = (_text(card / f"mem_info_{kind}_total") for kind in ("vram", "gtt"))
        if vram.isdigit() and gtt.isdigit():
            yield f"{_gib(int(vram))} set apart, GTT {_gib(int(gtt))}"


def _strix_halo(sys_: Path) -> str | None:
    for card in sys_.glob("class/drm/card*/device"):
        if (_text(card / "vendor"), _text(card / "device")) == STRIX_HALO:
            return "gfx1151"
    return None


def _turbo(cpu: Path) -> str | None:
    boost, no_turbo = _text(cpu / "cpufreq/boost"), _text(cpu / "intel_pstate/no_turbo")
    if not boost and not no_turbo:
        return None
    return "off" if boost == "0" or no_turbo == "1" else "on"


def _chosen(text: str) -> str:
    """The choice in brackets: `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0]


def _gib(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 2**30:.4g} GiB"


def _first_line(path: Path) -> str:
    return next(iter(_text(path).splitlines()), "")


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    return ""


def other_servers() -> tuple[str, ...]:
    """Inference servers and benchmarks that run now, by name and process id."""
    found = []
    for process in psutil.process_iter(["name"]):
        name = str(process.info["name"] or "")
        with contextlib.suppress(psutil.Error, OSError):
            rival = by_name(name) or (runs_a_script(name) and by_command(process.cmdline()))
            if rival:
                found.append(f"{rival} (pid {process.pid})")
    return tuple(found)

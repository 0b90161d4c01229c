"""What text of a system's files and tools says about it: parsers, nothing is read here."""

import re
from collections.abc import Iterable, Iterator, Mapping

_KERNEL_FLAGS = re.compile(
    r"^(?:amd_iommu|iommu|iommu\.passthrough|intel_iommu|amdgpu\.\S+?|amdttm\.\S+?|ttm\.\S+?"
    r"|amd_pstate|intel_pstate|mitigations|transparent_hugepage|numa_balancing|isolcpus|nohz_full"
    r"|processor\.max_cstate|intel_idle\.max_cstate|zswap\.enabled|clocksource|tsc|mem)(?:=|$)"
)
_CONTAINERS = ("docker", "kubepods", "lxc", "podman", "libpod", "containerd")
_MAKERS_OF_MACHINES = (
    ("QEMU", "KVM"),
    ("VMware", "VMware"),
    ("innotek", "VirtualBox"),
    ("Xen", "Xen"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google", "Google Compute Engine"),
    ("Parallels", "Parallels"),
)


def kernel_flags(cmdline: str) -> str | None:
    """Flags of `/proc/cmdline` that change speed or memory, in its order."""
    found = [word for word in cmdline.split() if _KERNEL_FLAGS.match(word)]
    return " ".join(found) or None


def packages(text: str) -> dict[str, str]:
    """`NAME VERSION` lines, as `dpkg-query -W`, `rpm -q --qf` and `pacman -Q` print them.

    Lines about packages that are not installed are passed over.
    """
    lines = (line.split() for line in text.splitlines())
    return {w[0]: w[1] for w in lines if len(w) == 2 and re.match(r"\d", w[1])}


def gfx_target(version: int) -> str | None:
    """A KFD node's `gfx_target_version` as compilers write it: 110501 is gfx1151, 90010 gfx90a."""
    if version <= 0:  # a CPU's node
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def kfd_targets(properties: Iterable[str]) -> Iterator[str]:
    """The targets in the texts of `/sys/class/kfd/kfd/topology/nodes/*/properties`."""
    for text in properties:
        found = re.search(r"^gfx_target_version (\d+)$", text, flags=re.MULTILINE)
        if found and (target := gfx_target(int(found[1]))):
            yield target


def iommu(units: Iterable[str], group_types: Iterable[str]) -> str:
    """`off`, `passthrough` or `translated`, by units in use and the domains' types.

    Source of the types: the kernel's `Documentation/ABI/testing/sysfs-kernel-iommu_groups`.
    """
    types = {text.strip() for text in group_types}
    if not any(True for _ in units) and not types:
        return "off"
    return "translated" if any(t.startswith("DMA") for t in types) else "passthrough"


def container(cgroup: str, marks: Iterable[str]) -> str | None:
    """Which kind of container this is, by `/proc/1/cgroup` and marks found (`docker`, `podman`)."""
    named = [mark for mark in marks if mark]
    return next(iter(named), None) or next((k for k in _CONTAINERS if f"/{k}" in cgroup), None)


def hypervisor(cpuinfo: str, vendor: str, product: str, release: str) -> str | None:
    """What runs this machine if it is virtual, by CPU flag, firmware's names, kernel's release."""
    if "microsoft" in release.lower():
        return "WSL 2"
    if vendor.startswith("Microsoft") and product == "Virtual Machine":
        return "Hyper-V"
    known = next((n for mark, n in _MAKERS_OF_MACHINES if mark in f"{vendor} {product}"), None)
    if known is not None:
        return known
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, flags=re.MULTILINE)
    return "a hypervisor that does not say its name" if flags else None


def cgroup_path(cgroup: str, controller: str) -> str | None:
    """Our own group in `/proc/self/cgroup`: of a v1 controller, or of v2 (`""`)."""
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            return path
    return None


def memory_limit_bytes(text: str) -> int | None:
    """A limit in `memory.max` (v2) or `memory.limit_in_bytes` (v1); `None` for none."""
    text = text.strip()
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None


def cpu_limit(text: str) -> float | None:
    """CPUs that `cpu.max` (v2, `QUOTA PERIOD`) allows; `None` for no limit."""
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def nvidia_facts(csv: str) -> dict[str, str]:
    """`nvidia-smi --query-gpu=…,NVIDIA_QUERY --format=csv,noheader`'s rows as facts, told apart."""
    facts: dict[str, str] = {}
    rows = [[cell.strip() for cell in line.split(",")] for line in csv.splitlines() if line.strip()]
    for name, column in zip(NVIDIA_QUERY, zip(*rows, strict=False), strict=False):
        told = [c for c in column if c not in ("[N/A]", "[Not Supported]", "")]
        if told:
            facts[NVIDIA_QUERY[name]] = ", ".join(dict.fromkeys(told))
    return facts


NVIDIA_QUERY: Mapping[str, str] = {
    "driver_version": "NVIDIA driver",
    "persistence_mode": "NVIDIA persistence mode",
    "power.limit": "NVIDIA power limit",
    "mig.mode.current": "NVIDIA MIG",
    "ecc.mode.current": "NVIDIA ECC",
    "clocks_throttle_reasons.active": "NVIDIA throttling",
}

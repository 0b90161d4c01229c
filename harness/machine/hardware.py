"""Which machine this is: CPU, cores, memory, GPUs, OS, driver, and the class it belongs to.

The machine class names the hardware only (CPU, cores, GPUs). OS, driver and the harness's Python
are recorded beside it and stay out of it: they are among the things under test.
"""

import contextlib
import platform
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from harness.errors import SetupError
from harness.machine.facts import PASSING, read_facts
from harness.machine.graphics import Gpu, read_gpus
from harness.records.lines import Machine


def read_machine(
    machine_class: str | None = None, facts: Mapping[str, str] | None = None
) -> Machine:
    """The machine at hand. `machine_class` overrides the derived class; `facts` are read if absent.

    Raises `SetupError` when `machine_class` isn't lower-case ASCII letters, digits, `.`, `_`
    and `-` (it becomes a folder's name).
    """
    if machine_class is not None and not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", machine_class):
        raise SetupError(
            f"machine class {machine_class!r} can't be a folder's name: use lower-case letters, "
            "digits, '.', '_' and '-', for example 'evo-x2'"
        )
    brand = cpu_brand()
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    gpus = name_apu(read_gpus(), brand)
    told = read_facts() if facts is None else facts
    drivers = dict.fromkeys(gpu.driver for gpu in gpus if gpu.driver)
    return Machine(
        machine_class=machine_class or class_slug(brand, cores, (gpu.name for gpu in gpus)),
        cpu=brand,
        cpu_cores=cores,
        memory_bytes=psutil.virtual_memory().total,
        gpus=tuple(gpu.name for gpu in gpus),
        os=_os_name(),
        python=platform.python_version(),
        driver="; ".join(drivers) or None,
        conditions={k: v for k, v in told.items() if k not in PASSING},
    )


def class_slug(cpu: str, cores: int, gpus: Iterable[str] = ()) -> str:
    """The class of a machine, ASCII: `amd-epyc-2c`, `amd-ryzen-ai-max-395-16c-radeon-8060s`.

    The same hardware gets the same class under Linux and Windows: trade marks, clock rates, core
    counts in words and makers' names of GPUs are dropped. Several equal GPUs read `2x-…`.
    """
    cpu = re.sub(r"\s(w/|with)\s.*", "", _plain(cpu), flags=re.IGNORECASE)
    cpu = re.sub(r"@.*|\b\d+-core\b|\bprocessor\b|\bcpu\b", "", cpu, flags=re.IGNORECASE)
    names: dict[str, int] = {}
    for gpu in gpus:
        plain = re.sub(
            r"\b(amd|nvidia|intel|graphics|corporation)\b", "", _plain(gpu), flags=re.IGNORECASE
        )
        slug = _slug(plain)
        names[slug] = names.get(slug, 0) + 1
    parts = [_slug(cpu) or "cpu", f"{cores}c"]
    parts += [f"{count}x-{name}" if count > 1 else name for name, count in sorted(names.items())]
    return "-".join(part for part in parts if part)


def name_apu(gpus: tuple[Gpu, ...], cpu: str) -> tuple[Gpu, ...]:
    """Name a single AMD GPU known by number only from its CPU: `… 395 w/ Radeon 8060S`."""
    found = re.search(r"\sw/\s*(Radeon\s+\S+)", cpu)
    if found and len(gpus) == 1 and gpus[0].name.startswith("AMD GPU"):
        return (Gpu(f"AMD {found[1]}", gpus[0].driver),)
    return gpus


def cpuinfo_brand(text: str) -> str | None:
    """The CPU's brand in the text of `/proc/cpuinfo` (x86 `model name`, else `Hardware`)."""
    for field in ("model name", "Hardware", "cpu model"):
        found = re.search(rf"^{field}\s*:\s*(.+)$", text, flags=re.MULTILINE)
        if found:
            return found[1].strip()
    return None


def _plain(name: str) -> str:
    return re.sub(r"\((r|tm|c)\)|[®™©]", " ", name, flags=re.IGNORECASE)


def _slug(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")


def cpu_brand() -> str:
    """The CPU's brand as its maker writes it."""
    brand: str | None = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            brand = cpuinfo_brand(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        if brand is None:
            with contextlib.suppress(OSError):
                brand = Path("/proc/device-tree/model").read_text(encoding="utf-8").strip("\0\n ")
    elif sys.platform == "darwin":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            brand = subprocess.run(
                ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
                capture_output=True,
                text=True,
                timeout=5,
                check=True,
            ).stdout.strip()
    elif sys.platform == "win32":
        import winreg

        with (
            contextlib.suppress(OSError),
            winreg.OpenKey(
                winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
            ) as key,
        ):
            brand = str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    return brand or platform.processor() or platform.machine() or "unknown CPU"


def _os_name() -> str:
    name = platform.platform()
    if platform.system() == "Linux":
        with contextlib.suppress(OSError):
            distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
            name = f"{distribution}, kernel {platform.release()}"
    elif platform.system() == "Darwin":
        name = f"macOS {platform.mac_ver()[0]}"
    return name

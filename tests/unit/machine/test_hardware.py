from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.machine.graphics import Gpu, linux_gpus, windows_gpus
from harness.machine.hardware import class_slug, cpuinfo_brand, name_apu, read_machine

IDS = """\
# List of AMDGPU IDs
1.0.0
1586,	C1,	AMD Radeon 8060S Graphics
1586,	C2,	AMD Radeon 8050S Graphics
"""


@pytest.mark.parametrize(
    ("cpu", "cores", "gpus", "slug"),
    [
        ("AMD EPYC", 2, (), "amd-epyc-2c"),
        (
            "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S",
            16,
            ("AMD Radeon(TM) 8060S Graphics",),
            "amd-ryzen-ai-max-395-16c-radeon-8060s",
        ),
        (
            "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S",
            16,
            ("AMD Radeon 8060S Graphics",),
            "amd-ryzen-ai-max-395-16c-radeon-8060s",
        ),
        ("AMD Ryzen 9 7950X 16-Core Processor", 16, (), "amd-ryzen-9-7950x-16c"),
        ("Intel(R) Core(TM) i9-13900K CPU @ 3.00GHz", 24, (), "intel-core-i9-13900k-24c"),
        ("AMD Ryzen 7 5700G with Radeon Graphics", 8, (), "amd-ryzen-7-5700g-8c"),
        ("X", 8, ("NVIDIA RTX A6000", "NVIDIA RTX A6000"), "x-8c-2x-rtx-a6000"),
        ("Процессор", 4, (), "cpu-4c"),
    ],
)
def test_class_of_a_machine(cpu: str, cores: int, gpus: tuple[str, ...], slug: str) -> None:
    assert class_slug(cpu, cores, gpus) == slug


def test_order_of_the_gpus_does_not_matter() -> None:
    assert class_slug("X", 8, ("B", "A")) == class_slug("X", 8, ("A", "B"))


def test_brand_in_cpuinfo() -> None:
    assert cpuinfo_brand("vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9654\n") == (
        "AMD EPYC 9654"
    )
    assert cpuinfo_brand("processor\t: 0\nCPU part\t: 0xd0c\n") is None


def test_class_can_be_given_but_must_be_a_folder_name() -> None:
    assert read_machine("evo-x2").machine_class == "evo-x2"
    with pytest.raises(SetupError, match="folder's name"):
        read_machine("../elsewhere")


def test_this_machine_has_a_class_and_memory() -> None:
    machine = read_machine()
    assert machine.machine_class.isascii()
    assert machine.memory_bytes > 0
    assert f"-{machine.cpu_cores}c" in machine.machine_class


def card(root: Path, name: str, **files: str) -> None:
    device = root / "class/drm" / name / "device"
    device.mkdir(parents=True)
    for file, text in files.items():
        (device / file).write_text(text + "\n")


def test_gpus_of_a_linux_machine(tmp_path: Path) -> None:
    ids = tmp_path / "amdgpu.ids"
    ids.write_text(IDS)
    sysfs, proc = tmp_path / "sys", tmp_path / "proc"
    card(sysfs, "card0", vendor="0x1a03", device="0x2000")  # a server board's ASPEED display
    card(sysfs, "card1", vendor="0x1002", device="0x1586", revision="0xc1")
    (sysfs / "class/drm/card1-DP-1").mkdir()
    card(sysfs, "card2", vendor="0x8086", device="0xe20b")
    nvidia = proc / "driver/nvidia/gpus/0000:01:00.0"
    nvidia.mkdir(parents=True)
    (nvidia / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 99\n")
    (proc / "driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
    )
    assert linux_gpus(sysfs, proc, ids) == (
        Gpu("AMD Radeon 8060S Graphics", "amdgpu of the kernel"),
        Gpu("Intel GPU e20b"),
        Gpu("NVIDIA H200", "NVIDIA 570.86.15"),
    )


def test_an_amd_gpu_without_a_known_name_is_named_by_the_apu(tmp_path: Path) -> None:
    card(tmp_path, "card1", vendor="0x1002", device="0x1586", revision="0xff")
    found = linux_gpus(tmp_path, tmp_path, tmp_path / "none")
    assert found == (Gpu("AMD GPU 1586", "amdgpu of the kernel"),)
    named = name_apu(found, "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S")
    assert named == (Gpu("AMD Radeon 8060S", "amdgpu of the kernel"),)
    assert name_apu((), "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S") == ()  # a VM has none of it


def test_gpus_of_a_windows_machine() -> None:
    adapters = [
        {
            "MatchingDeviceId": r"PCI\VEN_1002&DEV_1586",
            "DriverDesc": "AMD Radeon(TM) 8060S Graphics",
            "DriverVersion": "32.0.21013.1000",
        },
        {"MatchingDeviceId": r"root\basicdisplay", "DriverDesc": "Microsoft Basic Display"},
        {"MatchingDeviceId": r"root\parsecvda", "DriverDesc": "Parsec Virtual Display"},
        {},
    ]
    name = "AMD Radeon(TM) 8060S Graphics"
    assert windows_gpus(adapters) == (Gpu(name, f"{name} 32.0.21013.1000"),)

"""What `harness doctor` reads, on recorded outputs of real tools, and what it makes of it."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.machine import system_text as parse
from harness.machine.doctor import Line, State, examine
from harness.machine.facts import memory_limit_bytes, output, read_facts
from harness.machine.known_bad import KNOWN_BAD, known_bad
from harness.machine.windows_facts import registry_facts
from harness.report.doctor import doctor_text

# /proc/cmdline of a Strix Halo under NixOS, github.com/antirez/ds4/pull/871 (its "…" left out)
NIXOS = (
    "iommu.passthrough=0 amd_pstate=active amdgpu.dcdebugmask=0x600 ttm.pages_limit=25165824 "
    "ttm.page_pool_size=25165824"
)
# the same of a GMKtec under Ubuntu, github.com/ROCm/legacy-rocm-build/issues/5595
UBUNTU = (
    "BOOT_IMAGE=/boot/vmlinuz-6.14.0-1014-oem root=UUID=d55f0c3f-88f5-4c65-a93a-285c1a30361c ro "
    "quiet splash amdgpu.gtt_size=122880 vt.handoff=7"
)
# `pacman -Q`, github.com/ROCm/legacy-rocm-build/issues/5724 (comment of 2026-01-12)
PACMAN = "linux-firmware-amdgpu 20251125-2\n"
# `rpm -q --qf …`, Fedora's package names in the same issue; a package that is missing reads so
RPM = "amd-gpu-firmware 20251111-1.fc43\npackage amdvlk is not installed\n"
# `dpkg-query -W -f …` on Debian 12 (libvulkan1 installed, the other known only)
DPKG = "mesa-vulkan-drivers 22.3.6-1+deb12u2\nlinux-firmware \n"
# /sys/class/kfd/kfd/topology/nodes/{0,1}/properties, shortened, of a Strix Halo
KFD = ("cpu_cores_count 32\nsimd_count 0\ngfx_target_version 0\n", "gfx_target_version 110501\n")
# /proc/self/cgroup: Debian 12's v2 in a login; a virtual machine with v1 beside v2; Docker's v2
V2, V1 = "0::/user.slice/user-1000.slice/session-2.scope\n", "4:memory:/pod/41b3\n1:cpu:/\n0::/\n"
# `nvidia-smi --query-gpu=… --format=csv,noheader` on a virtual machine with one H200
NVIDIA = "580.159.04, Enabled, 700.00 W, Disabled, Enabled, 0x0000000000000001\n"
STATE = State("linux", 64 << 30, 60 << 30, 0, "/r", 100 << 30, lock="/l", baselines=(1, 1))


def test_flags_of_a_kernel_that_matter_are_kept_in_order() -> None:
    assert parse.kernel_flags(NIXOS) == NIXOS
    assert parse.kernel_flags(UBUNTU) == "amdgpu.gtt_size=122880"
    assert parse.kernel_flags("quiet ro memory_hotplug=x") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (PACMAN, {"linux-firmware-amdgpu": "20251125-2"}),
        (RPM, {"amd-gpu-firmware": "20251111-1.fc43"}),
        (DPKG, {"mesa-vulkan-drivers": "22.3.6-1+deb12u2"}),
    ],
)
def test_packages_of_every_manager(text: str, found: dict[str, str]) -> None:
    assert parse.packages(text) == found


def test_targets_of_gpus() -> None:
    assert list(parse.kfd_targets(KFD)) == ["gfx1151"]
    assert [parse.gfx_target(v) for v in (90010, 100300, 120001)] == [
        "gfx90a",
        "gfx1030",
        "gfx1201",
    ]


@pytest.mark.parametrize(
    ("units", "types", "state"),
    [
        ((), (), "off"),
        (("ivhd0",), ("DMA-FQ\n", "identity\n"), "translated"),
        (("ivhd0",), ("identity\n",), "passthrough"),
    ],
)
def test_the_iommu(units: tuple[str, ...], types: tuple[str, ...], state: str) -> None:
    assert parse.iommu(units, types) == state


def test_what_runs_a_virtual_machine() -> None:
    flags = "flags\t\t: fpu vme hypervisor lahf_lm\n"
    assert parse.hypervisor(flags, "", "", "6.6.114.1-microsoft-standard-WSL2") == "WSL 2"
    assert parse.hypervisor(flags, "QEMU", "Standard PC (Q35 + ICH9, 2009)", "6.1") == "KVM"
    assert parse.hypervisor(flags, "Microsoft Corporation", "Virtual Machine", "6") == "Hyper-V"
    assert "does not say" in (parse.hypervisor(flags, "", "", "6.18.44") or "")
    assert parse.hypervisor("flags\t: fpu\n", "GMKtec", "NucBox_EVO-X2", "6.18.9") is None


def test_limits_of_control_groups() -> None:
    assert parse.memory_limit_bytes("2147483648\n") == 2 << 30
    assert parse.memory_limit_bytes("max\n") is None
    assert parse.memory_limit_bytes("9223372036854771712\n") is None  # v1's word for none
    assert parse.cpu_limit("150000 100000\n") == 1.5
    assert parse.cpu_limit("max 100000\n") is None
    assert parse.cgroup_path(V2, "") == "/user.slice/user-1000.slice/session-2.scope"
    assert parse.cgroup_path(V1, "memory") == "/pod/41b3"


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_least_limit_of_a_group_and_those_above_it_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/run-1.scope\n",
            "sys/fs/cgroup/system.slice/run-1.scope/memory.max": "max\n",
            "sys/fs/cgroup/system.slice/memory.max": "2147483648\n",
        },
    )
    assert memory_limit_bytes(tmp_path) == 2 << 30


def test_a_limit_of_the_first_version_is_found_where_the_group_itself_is_not_seen(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        {"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n"},
    )
    assert memory_limit_bytes(tmp_path) == 1 << 30


@pytest.mark.skipif("sys.platform != 'linux'", reason="reads Linux' files")
def test_facts_of_a_strix_halo_machine(tmp_path: Path) -> None:
    """Values of github.com/noamsto/nix-amd-ai/issues/42 (memory) and the sources above."""
    write(
        tmp_path,
        {
            "proc/cmdline": NIXOS,
            "proc/sys/kernel/osrelease": "7.1.0\n",
            "sys/class/drm/card1/device/mem_info_vram_total": "4294967296\n",
            "sys/class/drm/card1/device/mem_info_gtt_total": "103079215104\n",
            "sys/class/drm/card1/device/vendor": "0x1002\n",
            "sys/class/drm/card1/device/device": "0x1586\n",
            "sys/kernel/iommu_groups/0/type": "DMA-FQ\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "sys/firmware/acpi/platform_profile": "low-power\n",
        },
    )
    facts = read_facts(tmp_path, run=lambda _: "")
    assert facts["GPU memory"] == "4 GiB set apart, GTT 96 GiB"
    assert facts["GPU target"] == "gfx1151"
    assert facts["huge pages"] == "madvise"
    assert facts["IOMMU"] == "translated"
    graded = {line.topic: line.grade for line in examine(facts, STATE)}
    assert graded["power profile"] == "in the way"
    assert graded["IOMMU on"] == "look"


def test_nothing_is_needed_and_a_tool_that_hangs_is_left() -> None:
    assert output(("no-such-tool-at-all",)) == ""
    with tempfile.TemporaryDirectory() as folder:
        assert isinstance(read_facts(Path(folder), run=lambda _: ""), dict)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (
            {"firmware": "linux-firmware-amdgpu 20251125-2", "GPU target": "gfx1151"},
            "firmware 20251125 with ROCm",
        ),
        ({"kernel": "6.17.0-14-generic", "GPU target": "gfx1151"}, "Linux before 6.18.4"),
        ({"kernel": "6.18.3-arch1-1", "GPU target": "gfx1151"}, "Linux before 6.18.4"),
        ({"kernel flags": "amd_iommu=pt"}, "amd_iommu=pt"),
        ({"kernel flags": UBUNTU}, "amdgpu.gtt_size"),
        ({"kernel flags": "amdgpu.gttsize=122800"}, "amdgpu.gttsize"),
        ({"Radeon software": "24.9.1"}, "Adrenalin 24.9.1 and 24.10.1"),
        ({"Vulkan packages": "amdvlk 2025.Q2.1-1", "GPU target": "gfx1151"}, "AMDVLK"),
    ],
)
def test_combinations_called_bad_are_found(facts: dict[str, str], name: str) -> None:
    assert name in [row.name for row in known_bad(facts)]


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"firmware": "linux-firmware 20260110-1", "GPU target": "gfx1151", "kernel": "6.18.9-200"},
        {"firmware": "linux-firmware 20251125-2", "GPU target": "gfx90a"},
        {"kernel": "6.18.40", "GPU target": "gfx1151"},
        {"kernel": "6.1.0-44-amd64", "GPU": "NVIDIA H200"},
        {"kernel flags": "amdgpu.gttsize=126976 ttm.pages_limit=32505856"},
    ],
)
def test_others_are_not(facts: dict[str, str]) -> None:
    assert not list(known_bad(facts))


def test_every_row_of_the_table_names_where_it_is_said() -> None:
    assert all("/" in row.source and row.next_step for row in KNOWN_BAD)
    assert len({row.name for row in KNOWN_BAD}) == len(KNOWN_BAD)


def lines(state: State = STATE, **facts: str) -> dict[str, Line]:
    named = {name.replace("_", " "): value for name, value in facts.items()}
    return {line.topic: line for line in examine(named, state)}


def test_a_machine_in_good_order_has_nothing_in_the_way() -> None:
    seen = lines(power="profile performance", clock_source="tsc")
    assert {line.grade for line in seen.values()} <= {"fine", "unknown"}


@pytest.mark.parametrize(
    ("state", "topic", "grade"),
    [
        (replace(STATE, servers=("ollama (pid 7)",)), "other servers", "in the way"),
        (replace(STATE, on_battery=True), "mains", "in the way"),
        (replace(STATE, cpu_c=97.0), "CPU temperature", "in the way"),
        (replace(STATE, holder="pid 7"), "lock", "look"),
        (replace(STATE, notes=1), "servers of ended runs", "look"),
        (replace(STATE, baselines=(0, 3)), "baselines", "look"),
        (replace(STATE, disk_free_bytes=1 << 30), "free disk", "look"),
        (replace(STATE, available_bytes=8 << 30), "memory", "look"),
    ],
)
def test_what_stands_in_the_way_now(state: State, topic: str, grade: str) -> None:
    line = lines(state)[topic]
    assert line.grade == grade
    assert line.next_step


def test_limits_and_what_was_recorded_of_an_nvidia_gpu() -> None:
    facts = parse.nvidia_facts(NVIDIA)
    assert facts["NVIDIA driver"] == "580.159.04"
    seen = lines(
        **{name.replace(" ", "_"): value for name, value in facts.items()},
        memory_limit="2 GiB",
        clock_source="hpet",
    )
    assert "NVIDIA throttling" not in seen  # bit 0: idle
    assert seen["memory limit"].grade == "look"
    assert seen["clock source"].grade == "in the way"
    busy = lines(NVIDIA_throttling="0x0000000000000004")
    assert busy["NVIDIA throttling"].grade == "look"


def test_windows_registry_in_words() -> None:
    table: dict[str, object] = {
        "DisplayVersion": "25H2",
        "CurrentBuild": "26200",
        "UBR": 7171,
        "SystemProductName": "NucBox_EVO-X2",
        "HwSchMode": 2,
        "Enabled": 1,
        "LongPathsEnabled": 0,
        "HardwareInformation.qwMemorySize": 96 << 30,
        "RadeonSoftwareVersion": "24.10.1",
        "PagingFiles": ["?:\\pagefile.sys"],
    }
    facts = {
        k: v for k, v in registry_facts(lambda _, name: table.get(name), ("0000",)).items() if v
    }
    assert facts["Windows"] == "25H2 26200 7171"
    assert facts["GPU memory"] == "96 GiB set apart"
    seen = {line.topic: line for line in examine(facts, replace(STATE, system="win32"))}
    assert seen["long paths"].grade == "look"
    assert seen["memory integrity"].seen == "on"
    assert seen["virus scanner's exclusions"].grade == "unknown"
    assert seen["Adrenalin 24.9.1 and 24.10.1"].grade == "in the way"


def test_the_answer_comes_first_and_every_trouble_has_its_next_step_and_source() -> None:
    facts = {"firmware": "linux-firmware 20251125-2", "GPU target": "gfx1151"}
    text = doctor_text("this box", examine(facts, STATE), width=60)
    assert text.startswith("this box: 1 in the way of trustworthy numbers;")
    assert "In the way\n  firmware 20251125 with ROCm: " in text
    assert "next: install linux-firmware 20260110" in text
    assert "source: github.com/ROCm/legacy-rocm-build/issues/5724" in text

"""Combinations that public reports call bad: what they are recognised by, and who says so."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownBad:
    """All of `where` (fact → regular expression, searched) must hold.

    `breaks` tells what makes answers or servers fail from what costs speed or surprises.
    """

    name: str
    where: Mapping[str, str]
    says: str
    next_step: str
    source: str
    breaks: bool = True


KNOWN_BAD = (
    KnownBad(
        "firmware 20251125 with ROCm",
        {"firmware": r"\b20251125\b", "GPU target": r"gfx115\d"},
        "linux-firmware 20251125 makes ROCm hang or fault on gfx115x (MES 0x83)",
        "install linux-firmware 20260110 or newer, or go back to 20251111, and reboot",
        "github.com/ROCm/legacy-rocm-build/issues/5724, "
        "github.com/kyuz0/amd-strix-halo-toolboxes/issues/37",
    ),
    KnownBad(
        "firmware 20251125",
        {
            "firmware": r"(?:linux-firmware|amd-gpu-firmware)\S* 20251125\b",
            "GPU": r"(?i)amd|radeon",
        },
        "linux-firmware 20251125: frequent crashes of AMD GPUs, bisected to it",
        "install another linux-firmware and reboot",
        "gitlab.freedesktop.org/drm/amd/-/issues/4737",
    ),
    KnownBad(
        "firmware 20260810 with Linux 7.2",
        {"firmware": r"\b20260810\b", "kernel": r"^7\.2\.", "GPU target": r"gfx115\d"},
        "Linux 7.2 with linux-firmware 20260810: one user's models went wrong on gfx115x",
        "measure once with linux-firmware 20260622 and its kernel before you trust a baseline",
        "github.com/noamsto/nix-amd-ai/issues/105",
    ),
    KnownBad(
        "Linux before 6.18.4",
        {
            "kernel": r"^(?:[0-5]\.|6\.(?:\d|1[0-7])\.|6\.18\.[0-3](?!\d))",
            "GPU target": r"gfx1151",
        },
        "Linux before 6.18.4 has a fault that makes gfx1151 unstable",
        "install Linux 6.18.4 or newer",
        "github.com/kyuz0/amd-strix-halo-toolboxes (README), its issue 69",
    ),
    KnownBad(
        "AMDVLK",
        {"Vulkan packages": r"\bamdvlk\b", "GPU target": r"gfx1151"},
        "AMDVLK reads prompts about a quarter slower than RADV on gfx1151, and limits buffers",
        "remove amdvlk, or say which driver: AMD_VULKAN_ICD=RADV, `[env]` in harness.toml",
        "github.com/GPUOpen-Drivers/AMDVLK/issues/420",
        breaks=False,
    ),
    KnownBad(
        "IOMMU on",
        {"IOMMU": r"translated|passthrough", "GPU target": r"gfx1151"},
        "with the IOMMU on gfx1151 was measured 5 to 16 % slower at reading prompts",
        "amd_iommu=off on the kernel's command line if you need neither NPU nor virtual machines; "
        "whatever you choose, do not change it between runs that are compared",
        "github.com/kyuz0/amd-strix-halo-toolboxes/issues/66, "
        "github.com/noamsto/nix-amd-ai/pull/132",
        breaks=False,
    ),
    KnownBad(
        "amd_iommu=pt",
        {"kernel flags": r"\bamd_iommu=pt\b"},
        "amd_iommu=pt is no value of it: the kernel ignores it and translates",
        "write iommu=pt, or amd_iommu=off",
        "github.com/kyuz0/amd-strix-halo-toolboxes/issues/66",
        breaks=False,
    ),
    KnownBad(
        "amdgpu.gtt_size",
        {"kernel flags": r"\bamdgpu\.gtt_size="},
        "amdgpu.gtt_size is no parameter: the kernel ignores it, GTT keeps its default",
        "write ttm.pages_limit=PAGES (4 KiB each; 27262976 is 104 GiB)",
        "github.com/ROCm/legacy-rocm-build/issues/5595",
        breaks=False,
    ),
    KnownBad(
        "amdgpu.gttsize",
        {"kernel flags": r"\bamdgpu\.gttsize=(?!.*\bttm\.pages_limit=)"},
        "amdgpu.gttsize alone is deprecated: newer kernels go by ttm.pages_limit",
        "add ttm.pages_limit=PAGES (4 KiB each; 27262976 is 104 GiB)",
        "github.com/ROCm/legacy-rocm-build/issues/5595",
        breaks=False,
    ),
    KnownBad(
        "Adrenalin 24.9.1 and 24.10.1",
        {"Radeon software": r"\b24\.(?:9\.1|10\.1)\b"},
        "with Adrenalin 24.9.1 and 24.10.1 HIP puts what is larger than 4 GB into shared memory",
        "install another version of the driver",
        "github.com/ROCm/legacy-rocm-build/issues/4040",
    ),
)


def known_bad(facts: Mapping[str, str]) -> Iterator[KnownBad]:
    """The rows whose every condition holds of these facts."""
    for row in KNOWN_BAD:
        if all(re.search(pattern, facts.get(name, "")) for name, pattern in row.where.items()):
            yield row

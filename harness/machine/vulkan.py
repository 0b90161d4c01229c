"""Vulkan devices and how large one allocation may be, as `vulkaninfo` tells."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

_PATIENCE_S = 30.0
_NAME = re.compile(r"^\s*deviceName\s*=\s*(.+?)\s*$")
_KIND = re.compile(r"^\s*deviceType\s*=\s*(?:PHYSICAL_DEVICE_TYPE_)?(\w+)")
_LIMIT = re.compile(r"^\s*(?:maxMemoryAllocationSize|maxBufferSize)\s*=\s*(0x[0-9a-fA-F]+|\d+)")


@dataclass(frozen=True, slots=True)
class VulkanDevice:
    """A device; `max_allocation_bytes` is the lesser of its limits for one buffer, if it has any.

    `software` devices (llvmpipe) compute on the CPU.
    """

    name: str
    software: bool
    max_allocation_bytes: int | None


def vulkan_devices() -> tuple[VulkanDevice, ...]:
    """The devices of this machine; empty where `vulkaninfo` is missing or finds none."""
    program = shutil.which("vulkaninfo")
    if program is None:
        return ()
    try:
        done = subprocess.run(  # noqa: S603 - the system's own tool, no argument
            [program],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(parse_vulkaninfo(done.stdout))


def parse_vulkaninfo(text: str) -> Iterator[VulkanDevice]:
    """The devices in the full text output of `vulkaninfo`."""
    name, kind = "", ""
    limits: list[int] = []
    started = False
    for line in (*text.splitlines(), "GPU:"):
        if re.match(r"^GPU\w*:", line):
            if started and name:
                yield VulkanDevice(name, kind == "CPU", min(limits, default=None))
            name, kind, limits, started = "", "", [], True
        elif started and (match := _KIND.match(line)):
            kind = match[1]
        elif started and (match := _NAME.match(line)):
            name = match[1]
        elif started and (match := _LIMIT.match(line)):
            limits.append(int(match[1], 0))

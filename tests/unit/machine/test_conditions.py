import sys
from pathlib import Path

import pytest

from harness.machine.conditions import ConditionsProbe, scheme_text

BALANCED, OVERLAY = "381b4222-f694-41f0-9685-ff5bb260df2e", "DED574B5-45A0-4F42-8737-46345C09C238"
NONE = "00000000-0000-0000-0000-000000000000"


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows answers with its own scheme")
def test_power_profile_of_a_linux_machine(tmp_path: Path) -> None:
    write(tmp_path, "firmware/acpi/platform_profile", "balanced")
    write(tmp_path, "devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave")
    write(tmp_path, "class/drm/card1/device/power_dpm_force_performance_level", "auto")
    found = ConditionsProbe(None, tmp_path).read()
    assert found.power_profile == "profile balanced, governor powersave, GPU level auto"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows answers with its own scheme")
def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    found = ConditionsProbe(None, tmp_path).read()
    assert found.power_profile is None


@pytest.mark.parametrize(
    ("scheme", "overlay", "text"),
    [
        (BALANCED, NONE, "balanced"),
        (BALANCED, OVERLAY, "balanced + best performance"),
        ("0b5e1234-0000-0000-0000-000000000000", None, "0b5e1234-0000-0000-0000-000000000000"),
        (None, None, None),
    ],
)
def test_windows_power_schemes(scheme: str | None, overlay: str | None, text: str | None) -> None:
    assert scheme_text(scheme, overlay) == text

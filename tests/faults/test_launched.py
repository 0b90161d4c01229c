"""Faults of a server that the harness started itself: its death and its log are seen, too."""

import sys
from pathlib import Path

import psutil
import pytest

from tests.faults.conftest import CTX, Result, measure
from tests.faults.fault import REFUSED
from tests.faults.launched import LAUNCHED, Launched, program
from tests.faults.test_faults import check_inert

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")


@pytest.mark.parametrize("fault", LAUNCHED, ids=lambda fault: fault.name)
def test_a_started_server_gets_its_outcome(
    fault: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    binary = program(fault, tmp_path)
    options = {"server_url": None, "server_bin": str(binary), **fault.options}
    result = measure(None, tmp_path, tmp_path / "baselines", **options)
    if fault.outcome == REFUSED:
        assert result.refused is not None, result.terminal
        assert fault.phrase in result.refused
    else:
        check_cell(fault, result)
    check_inert(result)
    assert not [p for p in psutil.Process().children(recursive=True) if _runs(p, binary)]


def check_cell(fault: Launched, result: Result) -> None:
    assert result.refused is None
    assert result.record is not None
    assert result.verdict is not None
    cell = result.verdict.cell(CTX, "retrieval")
    assert cell is not None
    assert cell.outcome == fault.outcome, result.terminal
    assert fault.phrase in cell.message
    if fault.outcome == "ERROR":
        assert result.record.footer is not None
        failure = result.record.footer.failure
        assert failure is not None
        assert failure.cause == fault.code
        assert set(fault.log.splitlines()) <= set(failure.log_tail)


def _runs(process: psutil.Process, binary: Path) -> bool:
    try:
        return str(binary) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False

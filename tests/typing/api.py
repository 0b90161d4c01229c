"""The public face as another repository uses it, checked by mypy: `mypy tests/typing`."""

from pathlib import Path

import pytest

from harness.measuring.ladder import Ladder, Probe
from harness.serving.session import Session
from harness.settings import Settings, load
from harness.suite import *  # noqa: F403
from harness.suite import test_prefill as prefill_test
from harness.verdicts.cell import CellVerdict
from harness.verdicts.probes import ProbeVerdict


@pytest.mark.long
def test_one_more_cell(closed_ladder: Ladder, depth: int) -> None:
    cell: CellVerdict = closed_ladder.check("generation", depth)
    change: float | None = cell.change
    assert change is None or change > -1
    prefill_test(closed_ladder, depth)


@pytest.mark.long
def test_probe(heatmap: Probe) -> None:
    verdict: ProbeVerdict = heatmap.check("heatmap")
    assert verdict.outcome


@pytest.mark.smoke
def test_server(server: Session) -> None:
    assert server.client


def settings_of(root: Path) -> Settings:
    settings = load({"ctx": "8K"}, root)
    depths: tuple[int, ...] = settings.rung_depths
    assert depths
    return settings

"""One measured and judged run of the real campaign against the fake server."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.machine.computing import Computing
from harness.machine.lock import LOCK_VARIABLE
from harness.measuring.campaign import Campaign
from harness.records.baseline import Baseline, accepted, key_of
from harness.records.baseline_files import write_baseline
from harness.records.lines import RunRecord
from harness.report.terminal import summary
from harness.settings import Settings
from harness.verdicts.verdict import RunVerdict
from tests.faults.fake_server import FakeServer

CTX = 4096
DEPTHS = (2048, CTX)
BASELINES_VARIABLE = "FAULT_TABLE_BASELINES"
API_KEY = "sk-fault-table-secret"


@dataclass
class Result:
    """What a run left: refused before anything was measured, or a record and its verdict."""

    refused: str | None = None
    verdict: RunVerdict | None = None
    record: RunRecord | None = None
    record_bytes: bytes = b""
    terminal: str = ""
    said: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def progress(
        self, depth: int, done_tokens: int, total_tokens: int, eta_s: float | None
    ) -> None:
        pass

    def doing(self, depth: int, what: str) -> None:
        pass


def measure(server: FakeServer | None, folder: Path, baselines: Path, **options: object) -> Result:
    """Run the campaign, in process, and judge it."""
    settings = Settings.model_validate(
        {
            "server_url": server.url if server is not None else None,
            "ctx_tokens": CTX,
            "depths": DEPTHS,
            "repeats": 3,
            "max_repeats": 3,
            "generate_tokens": 32,
            "api_key": API_KEY,
            "idle_timeout_s": 30.0,
            "machine_class": "fault-table",
            "bands": {"ttft": 0.99},
            "results": folder / "results",
            "baselines": baselines,
            **options,
        }
    )
    result, run = Result(), None
    campaign = Campaign(
        settings,
        result,
        deepest=max(settings.rung_depths),
        watch=Unwatched,
        find=lambda listener, ask: Computing(listener),
    )
    try:
        campaign.start()
        campaign.close_climb()
        if run := campaign.judged():
            result.record, result.verdict = run.record, run.verdict
    except HarnessError as error:
        result.refused = str(error)
    finally:
        campaign.close()
    if campaign.record_path is not None:
        result.record_bytes = campaign.record_path.read_bytes()
    if run is not None:
        result.terminal = summary(run, width=120, color=False, encoding="utf-8", every=True)
    return result


Measure = Callable[..., Result]


class Unwatched:
    """The machine's other load, which is none of this table's business."""

    rest_s = 0.0

    def __init__(self, server: Computing) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def mark(self) -> None:
        pass

    def settle(self) -> None:
        pass

    def gpu_at(self, start_ns: int, end_ns: int) -> None:
        return None

    def contention(self, start_ns: int, end_ns: int) -> str | None:
        return None

    def pace(self, bursts: int) -> dict[str, tuple[float, ...]]:
        return {}

    def account(self) -> dict[str, object]:
        return {}


@pytest.fixture(autouse=True, scope="session")
def _own_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOCK_VARIABLE, str(tmp_path_factory.mktemp("lock") / "machine.lock"))
        yield


@pytest.fixture(scope="session")
def baselines(tmp_path_factory: pytest.TempPathFactory, _own_machine: None) -> Path:
    """Two healthy runs, accepted; made elsewhere if `BASELINES_VARIABLE` says where."""
    if made := os.environ.get(BASELINES_VARIABLE):
        return Path(made)
    root = tmp_path_factory.mktemp("baselines")
    accept_two(root, tmp_path_factory.mktemp("runs"))
    return root


def accept_two(root: Path, folder: Path) -> None:
    """Measure a healthy server twice and accept both runs into `root`."""
    records = []
    for name in ("first", "second"):
        with FakeServer() as server:
            result = measure(server, folder / name, root)
        assert result.record is not None, result.refused
        records.append(result.record)
    runs = tuple(accepted(record, "2026-01-01T00:00:00", None) for record in records)
    write_baseline(root, Baseline(key=key_of(records[0].header), runs=runs))


@pytest.fixture
def run(tmp_path: Path, baselines: Path) -> Measure:
    """`run(server, **options)`."""

    def measured(server: FakeServer, **options: object) -> Result:
        return measure(server, tmp_path, baselines, **options)

    return measured

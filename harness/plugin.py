"""The pytest plugin: options, markers, fixtures, and outcomes of cells as outcomes of tests.

It is loaded into every pytest run where the package is installed, so whatever measures or judges
(openai, scipy: more than a second) is imported only once a selected test needs it.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from harness.errors import HarnessError
from harness.settings import Settings, load, project_root

if TYPE_CHECKING:
    from harness.campaign import Campaign
    from harness.core.outcomes import CellVerdict
    from harness.core.probes import ProbeVerdict
    from harness.probes import ProbeKind
    from harness.serving.session import Session

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
CAMPAIGN: pytest.StashKey[Campaign] = pytest.StashKey()

_PROBES = {"heatmap": "--heatmap 8x16", "fuzz": "--fuzz-examples 20"}
"""Fixtures of what runs only when asked for, and how to ask."""

FAILING = ("REGRESSED", "LEAK", "INVALID", "ERROR", "INCOMPARABLE")
SKIPPING = ("INCONCLUSIVE", "NO_BASELINE")

_OPTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("--ctx", "ctx_tokens", "N", "context to test up to, tokens: 131072 or 128K (default 8192)"),
    ("--depths", "depths", "N,N", "rungs to measure (default 2K, 8K, 32K, 128K … up to --ctx)"),
    ("--profile", "profile", "NAME", "a configuration of harness.toml, [profiles.NAME]"),
    ("--server-url", "server_url", "URL", "measure a server that already runs"),
    ("--server-bin", "server_bin", "PATH", "llama-server binary to start (or $LLAMA_SERVER)"),
    ("--server-args", "server_args", "ARGS", "more flags for it: --server-args='-t 8', with the ="),
    ("--model", "model", "GGUF", "model for the server that is started"),
    ("--expect-device", "expect_device", "NAME", "refuse a server that computes elsewhere"),
    ("--expect-build", "expect_build", "TEXT", "refuse a server of another build"),
    ("--background", "background", "KIND", "document: plain (default) or hard (decoys, noise)"),
    ("--haystack-seed", "seed", "N", "seed of document, needles and questions (default 0)"),
    ("--repeats", "repeats", "N", "generation repeats at every rung (default 6)"),
    ("--generate-tokens", "generate_tokens", "N", "tokens per generation repeat (default 128)"),
    ("--answer-tokens", "answer_tokens", "N", "token budget of an answer (default 256)"),
    ("--band", "band", "SHARE", "noise band for every metric, e.g. 0.10 (default) for ±10 %%"),
    ("--baselines", "baselines", "DIR", "folder of accepted baselines (default baselines)"),
    ("--results", "results", "DIR", "folder for run records and logs (default results)"),
    ("--machine-class", "machine_class", "NAME", "name of the class of machines baselines are for"),
    ("--label", "label", "NAME", "keeps baselines of otherwise equal configurations apart"),
    ("--idle-timeout", "idle_timeout_s", "S", "silence from the server that ends a run (900)"),
    ("--ready-timeout", "ready_timeout_s", "S", "time a started server has to load (600)"),
    ("--budget", "budget_s", "S", "seconds the whole run may take; one that cannot is refused"),
    ("--remeasure", "remeasure_s", "S", "seconds for measuring again what is undecided (120)"),
    ("--distractors", "distractors", "N", "records a rung that look like needles (default 0)"),
    ("--heatmap", "heatmap", "LxD", "also run the heatmap, lengths x depths, e.g. 8x16"),
    (
        "--fuzz-examples",
        "fuzz_examples",
        "N",
        "also fuzz the questions, N examples, and placement, N/4",
    ),
    ("--fuzz-ctx", "fuzz_ctx", "N", "context of a fuzzed document, tokens (default 2048)"),
    ("--wait-quiet", "wait_quiet_s", "S", "wait for a quiet machine; refuse if it stays busy (0)"),
    ("--wait-lock", "wait_lock_s", "S", "wait this long for another run on this machine (0)"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """One group in `--help` for everything."""
    group = parser.getgroup("long-context", "long-context regression harness (llama-server)")
    for name, dest, metavar, text in _OPTIONS:
        group.addoption(name, dest=f"harness_{dest}", metavar=metavar, default=None, help=text)
    group.addoption(
        "--strict-verdicts",
        dest="harness_strict",
        action="store_const",
        const=True,
        default=None,
        help="INCONCLUSIVE and NO_BASELINE fail instead of skipping (default when CI=true)",
    )
    group.addoption(
        "--resume",
        dest="harness_resume",
        action="store_const",
        const=True,
        default=None,
        help="go on with the last run of this plan, if it was cut short and nothing has changed",
    )
    group.addoption(
        "--save-slots",
        dest="harness_save_slots",
        action="store_const",
        const=True,
        default=None,
        help="keep each rung's KV cache in the results until the run is complete (as --resume)",
    )
    group.addoption(
        "--report",
        dest="harness_report",
        metavar="PATH",
        default=None,
        help="write the run's report, one page that opens offline, to PATH",
    )
    group.addoption(
        "--no-strict-verdicts",
        dest="harness_strict",
        action="store_const",
        const=False,
        help="INCONCLUSIVE and NO_BASELINE skip, also when CI=true",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Markers, and the settings parsed once."""
    config.addinivalue_line("markers", "long: measures a server at depth; minutes to hours")
    config.addinivalue_line("markers", "smoke: a few seconds on a small context")
    given = {
        dest: value
        for dest in (*(o[1] for o in _OPTIONS), "strict", "resume", "save_slots")
        if (value := config.getoption(f"harness_{dest}")) is not None
    }
    try:
        config.stash[SETTINGS] = load(given, project_root(config.invocation_params.dir))
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A `depth` argument of a long test runs over the ladder."""
    if "depth" in metafunc.fixturenames and metafunc.definition.get_closest_marker("long"):
        metafunc.parametrize("depth", metafunc.config.stash[SETTINGS].rung_depths, ids=str)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests last: answers while climbing, then what needs the closed climb, by depth."""
    items.sort(key=_place)
    settings = config.stash[SETTINGS]
    if config.getoption("timeout", None) is not None:
        return
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            closing = bool({"closed_ladder", *_PROBES} & set(_fixtures(item)))
            depth = max(settings.rung_depths) if closing else _depth(item)
            item.add_marker(pytest.mark.timeout(patience_s(depth)))


def patience_s(depth: int) -> int:
    """How long a test that climbs to `depth` may take before it is stopped, seconds.

    Five times a slow machine's prefill (100 tok/s on short prompts, attention as costly as seed
    reports of an EVO-X2 show), and ten minutes for loading and answers. Our own limits (silence,
    death) fire long before; this is the last resort.
    """
    from harness.core.cost import guess

    slow = guess(100.0, 1.0 / 32768)
    return int(600 + 5 * slow.predict_ms(0, depth).ms / 1e3)


def _place(item: pytest.Item) -> tuple[int, int]:
    if not item.get_closest_marker("long"):
        return 0, 0
    if set(_fixtures(item)) & set(_PROBES):  # they put other documents into the server's slot
        return 3, 0
    return (2 if "closed_ladder" in _fixtures(item) else 1), _depth(item)


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ()))


def _depth(item: pytest.Item) -> int:
    callspec = getattr(item, "callspec", None)
    return int(callspec.params.get("depth", 0)) if callspec is not None else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Open server and record before the first test, so that a wrong setting is one sentence."""
    config = session.config
    if config.option.collectonly or session.testsfailed or _is_worker(config):
        return
    wanted = {name for item in session.items for name in _fixtures(item)}
    ladder = bool(wanted & {"ladder", "closed_ladder"})
    settings = config.stash[SETTINGS]
    probes = any(_asked_for(settings, name) for name in wanted & set(_PROBES))
    if not ladder and not probes and "server" not in wanted:
        return
    depths = [_depth(i) for i in session.items if set(_fixtures(i)) & {"ladder", "closed_ladder"}]
    deepest = (max(depths) or max(settings.rung_depths)) if ladder else None
    from harness.campaign import Campaign
    from harness.progress import TerminalReporter

    campaign = Campaign(settings, TerminalReporter(config), deepest=deepest, probes=probes)
    try:
        campaign.start()
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[CAMPAIGN] = campaign
    _end_by_sigterm_as_by_ctrl_c()


def _end_by_sigterm_as_by_ctrl_c() -> None:
    """Job schedulers end a job with SIGTERM: the summary and the record's end are due then too."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt("SIGTERM")

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, interrupt)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _campaign(config: pytest.Config) -> Campaign:
    if _is_worker(config):
        pytest.fail(
            "pytest-xdist would measure one server from several processes at once; run long and "
            "smoke tests without -n",
            pytrace=False,
        )
    return config.stash[CAMPAIGN]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Nothing outlives the session; a run whose tests are through gets its second control."""
    if campaign := session.config.stash.get(CAMPAIGN, None):
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            campaign.finish()
        campaign.close()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The same, should the session not have finished."""
    if campaign := config.stash.get(CAMPAIGN, None):
        campaign.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """What a test judged, as properties of its report (and of JUnit's)."""
    ladder = next(
        (v for v in getattr(item, "funcargs", {}).values() if isinstance(v, Ladder)), None
    )
    if call.when != "call" or ladder is None:
        return
    from harness.report.junit import properties

    for cell in ladder.judged:
        item.user_properties += properties(cell)
    ladder.judged.clear()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The table of measured, baseline, change and outcome."""
    campaign = config.stash.get(CAMPAIGN, None)
    record, verdict = (campaign.record(), campaign.verdict()) if campaign else (None, None)
    if record is None or verdict is None or campaign is None:
        return
    from harness.report.terminal import summary

    writer = terminalreporter._tw
    terminalreporter.section("long-context summary")
    text = summary(
        record,
        verdict,
        width=writer.fullwidth,
        color=writer.hasmarkup,
        encoding=getattr(writer._file, "encoding", None),
    )
    terminalreporter.write(text)
    terminalreporter.write_line(f"record: {campaign.record_path}")
    from harness.publish import publish

    report = config.getoption("harness_report")
    path = None if report is None else config.invocation_params.dir / report
    for line in publish(record, config.stash[SETTINGS], path):
        terminalreporter.write_line(line)


class Ladder:
    """What the suite's tests talk to."""

    def __init__(self, campaign: Campaign, *, strict: bool) -> None:
        self.campaign = campaign
        self._strict = strict
        self.judged: list[CellVerdict] = []

    def check(self, metric: str, depth: int) -> CellVerdict:
        """Measure as far as needed, judge one cell, and pass, fail or skip the test accordingly."""
        self.campaign.rung(depth)
        cell = self.campaign.cell(depth, metric)
        self.judged.append(cell)
        _conclude(cell, strict=self._strict)
        return cell


class Probe:
    """What the tests of heatmap and fuzz talk to."""

    def __init__(self, campaign: Campaign, *, strict: bool) -> None:
        self._campaign = campaign
        self._strict = strict

    def check(self, kind: ProbeKind) -> ProbeVerdict:
        """Run one probe, and pass, fail or skip the test by its verdict."""
        try:
            verdict = self._campaign.probe(kind)
        except HarnessError as error:
            pytest.fail(str(error), pytrace=False)
        _conclude(verdict, strict=self._strict)
        return verdict


def _conclude(verdict: CellVerdict | ProbeVerdict, *, strict: bool) -> None:
    from harness.report.text import inert

    text = f"{verdict.outcome}: {inert(verdict.message)}" + (
        f"\nnext: {verdict.next_step}" if verdict.next_step else ""
    )
    if verdict.outcome in FAILING or (strict and verdict.outcome in SKIPPING):
        pytest.fail(text, pytrace=False)
    if verdict.outcome in SKIPPING:
        pytest.skip(text.replace("\n", "; "))


def _asked_for(settings: Settings, probe: str) -> bool:
    return (settings.heatmap if probe == "heatmap" else settings.fuzz_examples) is not None


def _probe(config: pytest.Config, name: str) -> Probe:
    settings = config.stash[SETTINGS]
    if not _asked_for(settings, name):
        pytest.skip(f"not asked for; {_PROBES[name]} does")
    return Probe(_campaign(config), strict=settings.strict)


@pytest.fixture(scope="session")
def ladder(request: pytest.FixtureRequest) -> Ladder:
    """The climb, driven just as far as a test needs."""
    settings = request.config.stash[SETTINGS]
    return Ladder(_campaign(request.config), strict=settings.strict)


@pytest.fixture
def closed_ladder(ladder: Ladder) -> Ladder:
    """The climb, finished and closed by its second control, as verdicts on speed need it."""
    ladder.campaign.close_climb()
    return ladder


@pytest.fixture
def heatmap(request: pytest.FixtureRequest) -> Probe:
    """The heatmap, where `--heatmap` asks for it."""
    return _probe(request.config, "heatmap")


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Probe:
    """The fuzz, where `--fuzz-examples` asks for it."""
    return _probe(request.config, "fuzz")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Session:
    """The open server, for short measurements at depth 0."""
    return _campaign(request.config).session

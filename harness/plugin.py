"""The pytest plugin: options, markers, fixtures, and outcomes of cells as outcomes of tests.

It is loaded into every pytest run where the package is installed, so whatever measures or judges
(openai, scipy: more than a second) is imported only once a selected test needs it.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.junitxml import xml_key

from harness.errors import HarnessError
from harness.machine import sigterm
from harness.measuring.items import (
    PROBES,
    STATUS,
    arm_of,
    asked_for,
    deepest_of,
    depth_of,
    fixtures_of,
    is_named,
    measures,
    patience_s,
    place,
)
from harness.options import OPTIONS, add_options, asks_to_measure
from harness.settings import Settings, load, project_root

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from harness.measuring.campaign import Campaign
    from harness.measuring.ladder import Ladder, Probe
    from harness.measuring.matrix import Arms
    from harness.serving.session import Session
    from harness.verdicts.cell import CellVerdict
    from harness.verdicts.probes import ProbeVerdict

SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
ARM_SETTINGS: pytest.StashKey[tuple[Settings, ...]] = pytest.StashKey()
"""One for each arm of the matrix; without a matrix there is one arm, without a name."""
ARMS: pytest.StashKey[Arms] = pytest.StashKey()
JUDGED: pytest.StashKey[list[CellVerdict]] = pytest.StashKey()
"""Cells that the running test has judged so far."""
LAST_LINE: pytest.StashKey[str] = pytest.StashKey()

ONE_PROCESS = "pytest-xdist would measure one server from several processes; run these without -n"


def pytest_addoption(parser: pytest.Parser) -> None:
    """One group in `--help` for everything."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Markers, and the settings parsed once."""
    config.addinivalue_line("markers", "long: measures a server at depth; minutes to hours")
    config.addinivalue_line("markers", "smoke: a few seconds on a small context")
    _refuse_several_workers(config)
    given = {
        dest: value
        for dest in OPTIONS
        if (value := config.getoption(f"harness_{dest}")) is not None
    }
    try:
        root = project_root(config.invocation_params.dir)
        config.stash[SETTINGS] = settings = load(given, root)
        config.stash[ARM_SETTINGS] = (settings,)
        if settings.matrix is not None or settings.reference is not None:
            from harness.measuring.matrix import load_arms

            config.stash[ARM_SETTINGS] = load_arms(given, root)
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error


def _refuse_several_workers(config: pytest.Config) -> None:
    """Where only measured tests are selected, say once what each of them would say by itself."""
    workers = config.getoption("numprocesses", None) or config.getoption("tx", None)
    only_measured = re.fullmatch(
        r"\s*(long|smoke)(\s+(and|or)\s+(long|smoke))*\s*", config.getoption("markexpr", "") or ""
    )
    if workers and only_measured and not _is_worker(config):
        raise pytest.UsageError(ONE_PROCESS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A `depth` argument of a long test runs over the ladder; a matrix over its arms."""
    settings = metafunc.config.stash[SETTINGS]
    arms = [a for a in metafunc.config.stash[ARM_SETTINGS] if a.arm is not None]
    needles = [a for a in arms if a.family is None]
    names = metafunc.fixturenames
    is_rung = "depth" in names and metafunc.definition.get_closest_marker("long")
    if arms and is_rung and "ladder" in names:
        rungs = [(str(a.arm), depth) for a in needles for depth in a.rung_depths]
        ids = [f"{arm}-{depth}" for arm, depth in rungs]
        metafunc.parametrize(("ladder", "depth"), rungs, indirect=["ladder"], ids=ids)
    elif is_rung:
        metafunc.parametrize("depth", settings.rung_depths, ids=str)
    for fixture in ("server", *asked_for(settings)):
        if arms and fixture in names:
            of = {"server": arms, "family": [a for a in arms if a.family]}.get(fixture, needles)
            metafunc.parametrize(fixture, [str(a.arm) for a in of], indirect=True)


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_collection_of_measured(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Measured tests run when asked for, and then also where there are none; never with `-n`."""
    measured = [item for item in items if measures(item)]
    if asks_to_measure(config):
        if not measured and config.args_source is not pytest.Config.ArgsSource.ARGS:
            items += _own_suite(session)
    elif unasked := [item for item in measured if not is_named(item, config)]:
        items[:] = [item for item in items if item not in unasked]
        config.hook.pytest_deselected(items=unasked)
    for item in items if _is_worker(config) else ():
        if measures(item):
            item.add_marker(pytest.mark.skip(reason=ONE_PROCESS))


def _own_suite(session: pytest.Session) -> Iterator[pytest.Item]:
    """The suite that comes with the package, for a folder that has no such tests of its own."""
    suite = importlib.import_module("harness.suite")
    path = Path(str(suite.__file__))
    module = pytest.Module.from_parent(session, path=path, nodeid="harness.suite")
    module.obj = suite
    yield from (item for item in session.genitems(module) if isinstance(item, pytest.Item))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests last: answers while climbing, then what needs the closed climb, by depth.

    What runs only when asked for is left out, unless it is all that was selected.
    """
    unasked = set(PROBES).difference(asked_for(config.stash[SETTINGS]))
    arms = config.stash[ARM_SETTINGS]
    if config.stash[SETTINGS].reference:  # whether answers are right, not how fast they come
        needles = any(a.family is None for a in arms)
        unasked |= {"closed_ladder"} if needles else {"closed_ladder", "ladder"}
    others = [item for item in items if not unasked & set(fixtures_of(item))]
    if 0 < len(others) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in others])
        items[:] = others
    order = [a.arm for a in arms]
    items.sort(key=lambda item: (order.index(arm) if (arm := arm_of(item)) else -1, *place(item)))
    deepest = max(max(a.rung_depths) for a in arms)
    if config.getoption("timeout", None) is not None:
        return
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            closing = bool({"closed_ladder", *PROBES} & set(fixtures_of(item)))
            depth = deepest if closing else depth_of(item)
            item.add_marker(pytest.mark.timeout(patience_s(depth)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Open server and record before the first test, so that a wrong setting is one sentence."""
    config = session.config
    if config.option.collectonly or session.testsfailed or _is_worker(config):
        return
    measuring = {"ladder", "closed_ladder", "server", *asked_for(config.stash[SETTINGS])}
    if not any(measuring & set(fixtures_of(item)) for item in session.items):
        return
    from harness.measuring.campaign import Campaign
    from harness.measuring.matrix import Arms
    from harness.report.progress import TerminalReporter

    reporter = TerminalReporter(config)
    campaigns = []
    for settings in config.stash[ARM_SETTINGS]:
        items = [i for i in session.items if arm_of(i) == settings.arm]
        probes = any(measuring & set(fixtures_of(i)) & set(PROBES) for i in items)
        deepest = deepest_of(items, settings)
        speeds = any("closed_ladder" in fixtures_of(i) for i in items)
        campaigns.append(
            Campaign(settings, reporter, deepest=deepest, probes=probes, speeds=speeds)
        )
    arms = Arms(campaigns, reporter)
    try:
        arms.start()
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[ARMS] = arms
    sigterm.as_ctrl_c()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _campaign(request: pytest.FixtureRequest) -> Campaign:
    """The campaign a fixture is asked of: that of its arm."""
    try:
        return request.config.stash[ARMS].campaign(getattr(request, "param", None))
    except HarnessError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Nothing outlives the session; a run whose tests are through gets its second control."""
    if arms := session.config.stash.get(ARMS, None):
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            with contextlib.suppress(KeyboardInterrupt):  # its record then ends without a control
                arms.finish()
        sigterm.pass_over()
        arms.close()
        _into_junit(session.config, arms)


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_sessionfinish")
def pytest_last_line(session: pytest.Session) -> Iterator[None]:
    """The answer once more, below all that pytest itself says."""
    result = yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and (line := session.config.stash.get(LAST_LINE, None)):
        terminal.write_line(line)
    return result


@pytest.hookimpl(wrapper=True, trylast=True, specname="pytest_sessionfinish")
def pytest_unwritten_file(session: pytest.Session) -> Iterator[None]:
    """A file that pytest itself cannot write (JUnit's, on a full disk) hides no verdict."""
    try:
        return (yield)
    except OSError as error:
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None or not asks_to_measure(session.config):
            raise
        where = f": {error.filename}" if error.filename else ""
        terminal.write_line(f"not written: {error.strerror or error}{where}")
        return None


def _into_junit(config: pytest.Config, arms: Arms) -> None:
    """The answer of each run as a property of the whole suite in JUnit's file."""
    if (xml := config.stash.get(xml_key, None)) is None:
        return
    from harness.report.answer import answer

    for run in arms.results().values():
        if not isinstance(run, str):
            xml.add_global_property("longctx.answer", answer(run).line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The same, should the session not have finished."""
    if arms := config.stash.get(ARMS, None):
        arms.close()
        sigterm.as_usual()


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """What was measured and cannot be judged is no test left out: it has its letter and count."""
    outcome = dict(report.user_properties).get("longctx.outcome") if report.skipped else None
    return STATUS.get(str(outcome))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """What a test judged, as properties of its report (and of JUnit's)."""
    judged = item.config.stash.get(JUDGED, [])
    if call.when != "call" or not judged:
        return
    from harness.report.junit import properties

    for cell in judged:
        item.user_properties += properties(cell)
    judged.clear()


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_makereport")
def pytest_place_of_a_skip(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What skipped is the test, not the line of this file that said so."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[0] == __file__:
        path, line, _ = item.reportinfo()
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The table of measured, baseline, change and outcome; of a matrix, that of its arms."""
    arms, settings = config.stash.get(ARMS, None), config.stash[SETTINGS]
    matrix = f"matrix {settings.matrix}" if settings.matrix else settings.reference and "reference"
    if arms is None or not (results := arms.results()):
        return
    from harness.report.answer import answer
    from harness.report.matrix import matrix_summary
    from harness.report.publish import publish
    from harness.report.terminal import summary
    from harness.report.text import encodable, inert

    writer, runs = terminalreporter._tw, [r for r in results.values() if not isinstance(r, str)]
    encoding, width = getattr(writer._file, "encoding", None), writer.fullwidth
    shown: dict[str, Any] = {"width": width, "color": writer.hasmarkup, "encoding": encoding}
    terminalreporter.write_sep("=", f"long-context {matrix or 'summary'}")
    if matrix:
        terminalreporter.write(matrix_summary(results, **shown))
    for run in () if matrix else runs:
        terminalreporter.write(summary(run, every=config.option.verbose > 0, **shown))
        terminalreporter.write_line(f"record: {run.path}")
    report = config.getoption("harness_report")
    path = None if report is None else config.invocation_params.dir / report
    for line in publish(runs, config.stash[SETTINGS], path):
        terminalreporter.write_line(line)
    if runs and not matrix:
        config.stash[LAST_LINE] = encodable(inert(answer(runs[0]).line), encoding)


def conclude(config: pytest.Config, verdict: CellVerdict | ProbeVerdict | HarnessError) -> None:
    """Pass, fail or skip the test that asked for this verdict."""
    from harness.records.outcomes import OUTCOMES
    from harness.report.text import inert
    from harness.verdicts.cell import CellVerdict

    if isinstance(verdict, HarnessError):
        pytest.fail(str(verdict), pytrace=False)
    if isinstance(verdict, CellVerdict):
        config.stash.setdefault(JUDGED, []).append(verdict)
    strict = config.stash[SETTINGS].strict
    text = f"{verdict.outcome}: {inert(verdict.message)}" + (
        f"\nnext: {verdict.next_step}" if verdict.next_step else ""
    )
    worth = OUTCOMES[verdict.outcome]
    if isinstance(verdict, CellVerdict) and verdict.code == "answers":
        pytest.skip(f"{verdict.outcome}: not judged, see the answers at {verdict.depth}")
    if worth.bad or (strict and worth.open):
        pytest.fail(text, pytrace=False)
    if worth.open:
        pytest.skip(text.replace("\n", "; "))


def _probe(request: pytest.FixtureRequest, name: str) -> Probe:
    if name not in asked_for(request.config.stash[SETTINGS]):
        pytest.skip(f"not asked for; {PROBES[name]} does")
    from harness.measuring.ladder import Probe

    return Probe(_campaign(request), partial(conclude, request.config))


@pytest.fixture(scope="session")
def ladder(request: pytest.FixtureRequest) -> Ladder:
    """The climb, driven just as far as a test needs."""
    from harness.measuring.ladder import Ladder

    return Ladder(_campaign(request), partial(conclude, request.config))


@pytest.fixture
def closed_ladder(ladder: Ladder) -> Ladder:
    """The climb, finished and closed by its second control, as verdicts on speed need it."""
    ladder.close()
    return ladder


@pytest.fixture
def heatmap(request: pytest.FixtureRequest) -> Probe:
    """The heatmap, where `--heatmap` asks for it."""
    return _probe(request, "heatmap")


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Probe:
    """The fuzz, where `--fuzz-examples` asks for it."""
    return _probe(request, "fuzz")


@pytest.fixture
def harder(request: pytest.FixtureRequest) -> Probe:
    """The harder tests, where `--harder` asks for them."""
    return _probe(request, "harder")


@pytest.fixture
def family(request: pytest.FixtureRequest) -> Probe:
    """A member of the family, where `--reference` asks for one."""
    return _probe(request, "family")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Session:
    """The open server, for short measurements at depth 0."""
    return _campaign(request).session

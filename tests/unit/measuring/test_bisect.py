"""A bisection's pairs: kept as they are measured, gone on with, and stepped over where dead."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import LockedError
from harness.measuring import bisect as measuring
from harness.measuring.bisect import BOOKS, Bisection
from harness.measuring.compare import ArmError
from harness.records.bisect import Books, Focus
from harness.records.metrics import METRICS
from harness.report.bisect import answer, bisect_issue, bisect_text
from harness.settings import BuildSettings, Settings
from harness.verdicts.bisect import Ended
from harness.verdicts.cell import CellVerdict
from harness.verdicts.compare import Compared, Side

BUILDS = tuple(f"b{number}" for number in range(11000, 11032))
REPOSITORY = "ggml-org/llama.cpp"


class Killed(BaseException):
    """What `kill -9` is to a process."""


class Machine:
    """Compares made-up builds: `speeds` by name; what it was asked, in order."""

    def __init__(self, speeds: dict[str, float], dead: Sequence[str] = ()) -> None:
        self.speeds, self.dead = speeds, dead
        self.compared: list[tuple[str, str]] = []
        self.metrics: list[tuple[str, ...]] = []
        self.depths: list[tuple[int, ...]] = []
        self.killed_at: int | None = None

    def comparison(self, arms: dict[Side, Settings], *_: Any, metrics: Any, **__: Any) -> Any:
        a, b = str(arms["A"].server_bin), str(arms["B"].server_bin)
        machine = self

        class Made:
            def differences(self) -> tuple[()]:
                for side in ("A", "B"):
                    if (name := arms[side].server_bin) in machine.dead:
                        raise ArmError(side, f"release {name} has no archive\nmore")
                return ()

            def measure(self, blocks: int, most_blocks: int) -> Compared:
                if machine.killed_at == len(machine.compared):
                    raise Killed
                machine.compared.append((a, b))
                machine.metrics.append(tuple(metrics))
                machine.depths.append(arms["A"].rung_depths)
                cells = [
                    machine.cell(name, depth, a, b) for name in metrics for depth in (1024, 2048)
                ]
                return Compared(tuple(cells), {"A": 6, "B": 6}, {})

        return Made()

    def cell(self, metric: str, depth: int, a: str, b: str) -> CellVerdict:
        ratio = self.speeds[b] / self.speeds[a] if metric == "generation" else 1.0
        ratio = 1.0 if depth == 1024 and ratio > 0.5 else ratio
        return CellVerdict(
            *(depth, METRICS[metric], "REGRESSED" if ratio < 0.9 else "PASS", None, "said"),
            measured=100 * ratio,
            baseline=100.0,
            change=ratio - 1,
            low=ratio - 1.02,
            high=ratio - 0.98,
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine({name: 100.0 if name < "b11019" else 80.0 for name in BUILDS})
    monkeypatch.setattr(measuring, "Comparison", made.comparison)
    return made


class Quiet:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, *_: object) -> None:
        """Nothing."""


def bisection(folder: Path, reporter: Quiet | None = None, *, spot: bool = False) -> Bisection:
    books = Books(question=("q",), started_at="2026-01-01T00:00:00+00:00", builds=BUILDS)
    path = folder / BOOKS
    if path.is_file():
        books = Books.model_validate_json(path.read_bytes())
    return Bisection(
        *(books, folder, lambda name: Settings(server_bin=name, depths=(1024, 2048), spot=spot)),
        reporter or Quiet(),
        metrics=tuple(METRICS),
        blocks=3,
        short_tokens=16384,
    )


def test_the_first_comparison_says_what_is_looked_for(machine: Machine, tmp_path: Path) -> None:
    reporter = Quiet()
    made = bisection(tmp_path, reporter)
    ended = made.run()
    assert (BUILDS[ended.last_good], BUILDS[ended.first_bad]) == ("b11018", "b11019")
    assert made.books.focus == Focus(metric="generation", depth=2048)
    assert machine.metrics[0] == tuple(METRICS)
    assert set(machine.metrics[1:]) == {("generation",)}
    assert machine.depths[0] == (1024, 2048)
    assert set(machine.depths[1:]) == {(2048,)}
    assert machine.compared[-1] == ("b11018", "b11019")
    assert "looked for: the loss of generation at 2048" in reporter.lines
    assert "comparison 1 (about 7 left): b11031 against b11000" in reporter.lines[0]


def test_a_spot_bisection_keeps_the_ladder_whose_documents_are_kept(
    machine: Machine, tmp_path: Path
) -> None:
    made = bisection(tmp_path, spot=True)
    ended = made.run()
    assert (BUILDS[ended.last_good], BUILDS[ended.first_bad]) == ("b11018", "b11019")
    assert set(machine.depths) == {(1024, 2048)}
    assert {cell.depth for pair in made.books.pairs[1:] for cell in pair.cells} == {2048}


@pytest.mark.parametrize("killed_at", range(7))
def test_no_comparison_is_made_twice_after_a_kill(
    machine: Machine, tmp_path: Path, killed_at: int
) -> None:
    whole = bisection(tmp_path / "whole").run()
    expected, machine.compared = machine.compared, []
    machine.killed_at = killed_at
    with pytest.raises(Killed):
        bisection(tmp_path).run()
    machine.killed_at = None
    assert bisection(tmp_path).run() == whole
    assert machine.compared == expected


def test_builds_that_cannot_be_had_are_stepped_over_and_named(
    machine: Machine, tmp_path: Path
) -> None:
    machine.dead = ("b11016", "b11018")
    made = bisection(tmp_path)
    ended = made.run()
    text = bisect_text(made.books, ended, REPOSITORY)
    assert not {b for _, b in machine.compared} & {*machine.dead}
    assert answer(made.books, ended).startswith(
        "first bad build that can be measured (b11018 before it cannot): b11019, last good: b11017"
    )
    assert "stepped over b11018: release b11018 has no archive\n" in text


def test_the_end_names_the_change_on_both_sides_and_the_range(
    machine: Machine, tmp_path: Path
) -> None:
    made = bisection(tmp_path)
    ended = made.run()
    text = bisect_text(made.books, ended, REPOSITORY)
    lines = text.splitlines()
    assert lines[0] == lines[-1]
    assert lines[0] == (
        "first bad build: b11019, last good: b11018: generation at 2K −20 % (−22 to −18 %)"
    )
    assert "  b11018 against b11000: generation at 2K 0.0 % (−2.0 to +2.0 %)" in lines
    assert "  b11019 against b11000: generation at 2K −20 % (−22 to −18 %)" in lines
    assert "https://github.com/ggml-org/llama.cpp/compare/b11018...b11019" in text
    issue = bisect_issue([(made.books, ended)], REPOSITORY, "a <CPU>")
    assert issue.startswith("Generation at 2K: −20 % since b11019\n")
    assert "harness compare b11018 b11019 --metric generation --depths 2048" in issue
    assert "a &lt;CPU&gt;" in issue


def test_an_arm_that_fails_is_the_builds_fault_only_if_it_is_the_new_one(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(error: Exception) -> None:
        class Made:
            def differences(self) -> None:
                """Nothing."""

            def measure(self, *_: object) -> None:
                raise error

        monkeypatch.setattr(measuring, "Comparison", lambda *_, **__: Made())

    failing(ArmError("B", "the server died while loading"))
    ended = bisection(tmp_path / "b").run()
    assert ended.reason == "the last build cannot be measured"
    for error in (ArmError("A", "no memory"), LockedError("held")):
        failing(error)
        with pytest.raises(type(error), match=str(error)):
            bisection(tmp_path / "a").run()


def test_which_of_two_builds_cannot_be_had_is_told_apart(tmp_path: Path) -> None:
    builds = BuildSettings(cache=tmp_path / "none")

    def arm(name: str) -> Settings:
        if name == "embedded":
            return Settings(embedded=True)
        return Settings(server_bin=name, offline=True, builds=builds)

    def run(*names: str) -> Ended:
        books = Books(question=names, started_at="2026-01-01T00:00:00+00:00", builds=names)
        more = {"metrics": ("generation",), "blocks": 1, "short_tokens": 16384}
        return Bisection(books, tmp_path, arm, Quiet(), **more).run()

    assert run("embedded", "b11000").reason == "the last build cannot be measured"
    with pytest.raises(ArmError, match="b11000 is not among the builds that are here"):
        run("b11000", "embedded")


def test_no_loss_is_not_reproducible(machine: Machine, tmp_path: Path) -> None:
    machine.speeds = dict.fromkeys(BUILDS, 1.0)
    made = bisection(tmp_path)
    said = answer(made.books, made.run())
    assert said == "b11031 is no worse than b11000 here: there is nothing to look for"
    assert len(machine.compared) == 1
    assert "compare/" not in bisect_text(made.books, made.run(), REPOSITORY)


def test_a_gradual_loss_is_undecided(machine: Machine, tmp_path: Path) -> None:
    machine.speeds = {name: 100 * 0.98**n for n, name in enumerate(BUILDS)}
    made = bisection(tmp_path)
    said = answer(made.books, made.run())
    assert said.startswith("undecided between b11005 and b11006: ")
    assert "more than one build may have a part in it" in said
    assert "to ask anew: without --resume" in bisect_text(made.books, made.run(), REPOSITORY)

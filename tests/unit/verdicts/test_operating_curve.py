"""The operating curve in small: the promises that a change of the statistics must not break."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.verdicts import tables
from bench.verdicts.noise import recorded_residuals
from bench.verdicts.simulate import Tally, judged_runs
from bench.verdicts.tables import BEGIN, END, SCENES, UNTOLD, Job, write_between
from bench.verdicts.world import World

CALM = World(noise=0.03)


@pytest.mark.parametrize(("what", "world"), SCENES, ids=[what for what, _ in SCENES])
def test_an_unchanged_run_has_no_regression(what: str, world: World) -> None:
    tally = judged_runs(world, 0.0, runs=8, seed=1)
    assert tally.alarms == 0, what


def test_a_calm_machine_passes_and_a_loss_of_20_percent_is_seen() -> None:
    assert judged_runs(CALM, 0.0, runs=10, seed=2).share("PASS") > 0.9
    assert judged_runs(CALM, -0.2, runs=8, seed=2).share("REGRESSED") > 0.95


def test_a_loss_of_15_percent_is_hardly_ever_passed() -> None:
    assert judged_runs(World(noise=0.05), -0.15, runs=10, seed=3).share("PASS") == 0.0


def test_a_loss_at_the_edge_of_the_band_stays_undecided() -> None:
    assert judged_runs(CALM, -0.1, runs=6, seed=4).share("INCONCLUSIVE") > 0.7


def test_answers_that_are_lost_are_seen_and_those_of_a_weak_model_are_no_loss() -> None:
    same = judged_runs(World(right=0.8, clustered=True), 0.0, runs=10, seed=5, kinds=("score",))
    assert same.alarms == 0
    lost = judged_runs(World(), 0.0, runs=4, seed=5, kinds=("score",), right_now=0.2)
    assert lost.share("REGRESSED") == 1.0


def test_what_nothing_on_record_shows_is_counted_beside_the_targets() -> None:
    assert all(not world.told for _, world in UNTOLD)


@pytest.mark.parametrize(("later", "alarms", "misses"), [(0, "2 of 750", 0), (20, "22 of 750", 4)])
def test_what_seems_to_miss_a_target_is_counted_longer_and_all_of_it_decides(
    monkeypatch: pytest.MonkeyPatch, later: int, alarms: str, misses: int
) -> None:
    def counted(jobs: Sequence[Job], processes: int) -> list[Tally]:
        return [
            Tally(
                outcomes=Counter(PASS=0 if job.effect else 6, INCONCLUSIVE=6 if job.effect else 0),
                runs=job.runs,
                alarms=0 if job.effect else 2 if job.runs == 150 else later,
            )
            for job in jobs
        ]

    monkeypatch.setattr(tables, "run_all", counted)
    table, missed = tables.scene("another", CALM, tables.FULL, 1)
    assert alarms in table
    assert len(missed) == misses, missed


def test_recorded_noise_has_spread_1_and_its_own_shape() -> None:
    for name in ("amd-epyc-2c-vm", "h200"):
        traces = recorded_residuals(name)
        squares = [float(v) ** 2 for trace in traces for v in trace]
        assert sum(squares) / len(squares) == pytest.approx(1.0)


def test_a_tally_says_how_rare_alarms_are_at_most() -> None:
    tally = Tally(runs=300)
    assert 0.009 < tally.at_most < 0.011


def test_tables_replace_what_is_between_their_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_between(page, "new")
    text = page.read_text(encoding="utf-8")
    assert text == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"

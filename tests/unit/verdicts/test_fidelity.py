"""Numbers at depth: bounds of the divergence, what is compared, and what is called worse."""

import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.baseline_files import read_baseline, write_baseline
from harness.records.fidelity import TOP, Numbers, Step
from harness.records.lines import Failure, RunRecord
from harness.records.metrics import FIDELITY
from harness.records.outcomes import Outcome
from harness.verdicts.acceptance import update
from harness.verdicts.cell import CellVerdict
from harness.verdicts.compare import NO_SLOWER, Compared, Visit, judge_arms
from harness.verdicts.fidelity import MATTERS_NATS, apart, divergence, onset
from harness.verdicts.verdict import judge
from tests.made import BANDS, record, rung


def distribution(rng: random.Random, width: float = 3.0) -> list[float]:
    weights = [math.exp(rng.gauss(0, width)) for _ in range(40)]
    return [w / sum(weights) for w in weights]


def shifted(p: list[float], rng: random.Random, by: float) -> list[float]:
    weights = [x * math.exp(rng.gauss(0, by)) for x in p]
    return [w / sum(weights) for w in weights]


def step(p: list[float]) -> Step:
    best = sorted(range(len(p)), key=lambda t: -p[t])[:TOP]
    return tuple((token, math.log(p[token])) for token in best)


def numbers(by: float, seed: int = 1, *, turned: float = 0.0) -> Numbers:
    """A trajectory of 16 tokens and 16 continuations, their log-probabilities `by` nats off."""
    rng, noise = random.Random(0), random.Random(seed)
    steps = []
    for _ in range(32):
        p = distribution(rng)
        q = shifted(p, noise, by)
        steps.append(step(q[::-1] if noise.random() < turned else q))
    return Numbers(steps=(tuple(steps[:16]), *((s,) for s in steps[16:])))


def run(*looks: Numbers, build: str = "b1", **changes: object) -> RunRecord:
    made = record(rung().model_copy(update={"numbers": looks, **changes}))
    header = made.header
    server = header.server.model_copy(update={"build": build})
    return made.model_copy(update={"header": header.model_copy(update={"server": server})})


def baseline(*looks: Numbers) -> Baseline:
    runs = tuple(accepted(run(look), "2026-01-02", None) for look in looks)
    return Baseline(key=key_of(run().header), runs=runs)


def cell(mine: RunRecord, base: Baseline | None):
    return judge(mine, base, BANDS).cell(2048, "fidelity")


@given(st.integers(0, 10**6), st.floats(0.0, 3.0))
def test_the_divergence_is_never_more_than_that_of_the_whole_vocabulary(
    seed: int, by: float
) -> None:
    rng = random.Random(seed)
    p = distribution(rng)
    q = shifted(p, rng, by)
    whole = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    found = divergence(step(p), step(q))
    assert 0.0 <= found <= whole + 1e-4


def test_equal_lists_do_not_diverge_and_other_tokens_diverge_much() -> None:
    p = step(distribution(random.Random(0)))
    assert divergence(p, p) == 0.0
    assert divergence(p, tuple((token + 100, x) for token, x in p)) > 1.0


def test_a_known_divergence() -> None:
    p, q = ((1, math.log(0.5)), (2, math.log(0.25))), ((1, math.log(0.25)), (2, math.log(0.25)))
    expected = 0.5 * math.log(0.5 / 0.25) + 0.25 * math.log(0.25 / 0.5)
    assert divergence(p, q) == pytest.approx(expected)


def test_steps_behind_another_token_are_not_compared() -> None:
    one, other = ((1, -0.1), (2, -3.0)), ((2, -0.1), (1, -3.0))
    a = Numbers(steps=((one, one, one, one), (one,)))
    b = Numbers(steps=((one, one, other, other), (other,)))
    found = apart(a, b)
    assert found is not None
    assert len(found.nats) == 4
    assert (found.agreeing, found.parted_at, found.followed) == (2, 2, 4)
    assert found.shift == pytest.approx(2.9)


def test_the_same_numbers_pass_and_say_their_floor() -> None:
    found = cell(run(numbers(0.0)), baseline(numbers(0.0), numbers(0.0)))
    assert (found.outcome, found.code, found.measured) == ("PASS", None, 0.0)
    assert "floor 0, limit 0.00500" in found.message
    assert (found.n_current, found.n_baseline) == (32, 2)


def test_numbers_that_move_too_little_to_matter_pass_and_are_said() -> None:
    found = cell(run(numbers(0.01)), baseline(numbers(0.0), numbers(0.0)))
    assert (found.outcome, found.code) == ("PASS", "moved")
    assert found.message.startswith("numbers moved, answers did not")
    assert found.measured < MATTERS_NATS


def test_numbers_that_matter_are_regressed_and_their_cause_is_named() -> None:
    found = cell(run(numbers(1.0), build="b2"), baseline(numbers(0.0), numbers(0.0)))
    assert (found.outcome, found.code) == ("REGRESSED", "numbers")
    assert "differs: server build b1 → b2" in found.message
    assert "cache type" in (found.next_step or "")


def test_a_cache_type_that_the_nearest_baseline_has_not_is_named() -> None:
    mine, base = run(numbers(1.0)), baseline(numbers(0.0))
    other = base.key.model_copy(update={"config": {**base.key.config, "cache_type_k": "q4_0"}})
    found = cell(mine, base.model_copy(update={"key": other}))
    assert "differs: cache_type_k q4_0 → not given" in found.message


def test_other_tokens_are_regressed() -> None:
    found = cell(run(numbers(0.0, turned=1.0)), baseline(numbers(0.0), numbers(0.0)))
    assert found.outcome == "REGRESSED"
    assert "likeliest token the same in 0 of 17" in found.message
    assert "parts after 0 of 16" in found.message


def test_what_the_accepted_runs_do_among_themselves_is_no_regression() -> None:
    noisy = baseline(numbers(0.3, 2), numbers(0.3, 3))
    assert cell(run(numbers(0.3, 4)), noisy).outcome == "PASS"
    assert cell(run(numbers(0.3, 4)), baseline(numbers(0.0), numbers(0.0))).outcome == "REGRESSED"


def test_another_reading_of_the_same_document_is_part_of_the_floor() -> None:
    twice = run(numbers(0.3, 4), numbers(0.3, 5))
    assert cell(twice, baseline(numbers(0.0))).outcome == "PASS"


def test_a_change_at_a_few_tokens_alone_is_not_decided() -> None:
    found = cell(run(numbers(0.0, seed=9, turned=0.05)), baseline(numbers(0.0)))
    assert (found.outcome, found.code) == ("INCONCLUSIVE", "noise")


def test_a_server_without_numbers_has_no_cell_and_a_failed_rung_an_error() -> None:
    assert cell(run(Numbers(missing="no log-probabilities")), baseline(numbers(0.0))) is None
    assert cell(run(), baseline(numbers(0.0))) is None
    failed = run(failure=Failure(cause="SERVER_DIED", message="gone"))
    assert cell(failed, baseline(numbers(0.0))).outcome == "ERROR"


def test_without_accepted_numbers_there_is_no_baseline() -> None:
    assert cell(run(numbers(0.0)), None).outcome == "NO_BASELINE"
    without = Baseline(key=key_of(run().header), runs=(accepted(run(), "2026-01-02", None),))
    assert cell(run(numbers(0.0)), without).outcome == "NO_BASELINE"


def arms(*sides: tuple[str, Numbers]) -> Compared:
    visits = [Visit(side, n // 2, run(look)) for n, (side, look) in enumerate(sides)]
    return judge_arms(visits, BANDS, ["fidelity"])


def test_arms_are_compared_by_their_numbers_and_their_own_scatter_is_the_floor() -> None:
    same, other = numbers(0.0), numbers(1.0)
    (worse,) = arms(("A", same), ("B", other), ("B", other), ("A", same)).cells
    assert worse.outcome == "REGRESSED"
    assert "from A, floor 0" in worse.message
    assert arms(("A", same), ("B", same)).exit_code == NO_SLOWER
    noisy = [("A", numbers(0.5, 2)), ("B", numbers(0.5, 3)), ("A", numbers(0.5, 4))]
    assert arms(*noisy).exit_code == NO_SLOWER


def judged_at(**outcomes: Outcome) -> list[CellVerdict]:
    return [
        CellVerdict(int(name[1:]), FIDELITY, outcome, None, "")
        for name, outcome in outcomes.items()
    ]


def test_rungs_are_put_between_the_last_right_and_the_first_wrong_one() -> None:
    found = onset(judged_at(k2048="PASS", k4096="PASS", k65536="REGRESSED", k131072="REGRESSED"))
    assert found == (8192, 16384, 32768)
    # no cliff is assumed: a rung that is right beyond the first wrong one does not count
    assert max(onset(judged_at(k2048="PASS", k4096="REGRESSED", k8192="PASS"))) < 4096


def test_without_a_right_and_a_wrong_rung_there_is_no_onset() -> None:
    assert onset(judged_at(k2048="PASS", k8192="INCONCLUSIVE")) == ()
    assert onset(judged_at(k2048="REGRESSED", k8192="PASS")) == ()
    assert onset(judged_at(k2048="PASS", k2304="REGRESSED")) == ()


def test_arms_without_numbers_leave_nothing_open() -> None:
    none = Numbers(missing="no log-probabilities")
    assert arms(("A", none), ("B", numbers(0.0))).cells == ()


def test_a_baseline_keeps_the_numbers_of_its_two_newest_runs_and_no_long_trajectory() -> None:
    long = Numbers(steps=(numbers(0.0).steps[0] * 4, *numbers(0.0).steps[1:]))
    records = [
        made.model_copy(
            update={
                "header": made.header.model_copy(update={"run_id": f"2026010{n}-000000-aaaaaa"})
            }
        )
        for n in range(1, 5)
        for made in [run(long)]
    ]
    new = update(records, None, BANDS, accepted_at="2026-01-05", force=True).baseline
    looks = [one.cells[2048].numbers for one in new.runs]
    assert [look is not None for look in looks] == [False, False, True, True]
    assert [len(steps) for steps in looks[-1].steps] == [32] + [1] * 16


def test_numbers_come_back_from_the_file_as_they_were(tmp_path: Path) -> None:
    base = baseline(numbers(0.0), numbers(0.1))
    path = write_baseline(tmp_path, base)
    again = read_baseline(path)
    assert [r.cells[2048].numbers for r in again.runs] == [r.cells[2048].numbers for r in base.runs]


def test_numbers_behind_another_document_are_not_compared() -> None:
    other = numbers(0.0).model_copy(update={"prompt": "other"})
    found = cell(run(other), baseline(numbers(0.0)))
    assert found.outcome == "NO_BASELINE"
    assert "another document" in found.message
    assert apart(other, numbers(0.0)) is None

"""A/B verdicts: pairing in blocks, signs, drift that cancels, and what cannot be told."""

import math
import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.measuring import compare as comparison
from harness.measuring.compare import Comparison
from harness.records.lines import Rung, RunRecord
from harness.records.metrics import METRICS
from harness.verdicts.compare import (
    BLOCK,
    CANNOT_TELL,
    SANDWICH,
    Side,
    Visit,
    block_estimate,
    judge_arms,
    undecided,
)
from harness.verdicts.stats import Estimate, Unjudgeable
from tests.made import ask, generation, header, pace, prefill, server_log

BANDS = {name: metric.band for name, metric in METRICS.items()}
Block = tuple[list[list[float]], list[list[float]]]


def visit(
    side: Side,
    block: int,
    rates: Sequence[float],
    *,
    depth: int = 2048,
    control_right: bool = True,
    contention: str | None = None,
) -> Visit:
    made = [generation(rate).model_copy(update={"contention": contention}) for rate in rates]
    measured = Rung(
        depth=depth,
        document_tokens=depth,
        asks=(ask(control=control_right),) * 3,
        generations=tuple(made),
        elapsed_s=1.0,
    )
    return Visit(side, block, RunRecord(header=header(), rungs=(measured,)))


def blocks_of(
    ratio: float, n: int, *, drift: float = 0.0, noise: float = 0.01, seed: int = 0
) -> list[Block]:
    rng = random.Random(seed)
    result: list[Block] = []
    step = 0
    for _ in range(n):
        sides: dict[str, list[list[float]]] = {"A": [], "B": []}
        for side in BLOCK:
            level = 100.0 * (ratio if side == "B" else 1.0) * math.exp(drift * step)
            sides[side].append([level * math.exp(rng.gauss(0, noise)) for _ in range(3)])
            step += 1
        result.append((sides["A"], sides["B"]))
    return result


def estimate(blocks: Sequence[Block]) -> Estimate:
    found = block_estimate(blocks)
    assert isinstance(found, Estimate)
    return found


@given(st.floats(0.3, 3.0), st.integers(0, 10_000))
def test_the_interval_holds_the_ratio_and_its_sign(ratio: float, seed: int) -> None:
    found = estimate(blocks_of(ratio, 3, seed=seed))
    assert found.low <= found.ratio <= found.high
    assert found.ratio == pytest.approx(ratio, rel=0.05)


@given(st.floats(-0.2, 0.2), st.integers(0, 10_000))
def test_a_steady_drift_cancels_within_a_block(drift: float, seed: int) -> None:
    still = estimate(blocks_of(1.0, 3, seed=seed))
    moving = estimate(blocks_of(1.0, 3, drift=drift, seed=seed))
    assert moving.ratio == pytest.approx(still.ratio, rel=1e-6)
    assert moving.high == pytest.approx(still.high, rel=1e-6)


@given(st.floats(0.5, 2.0), st.integers(0, 1000))
def test_swapping_the_arms_inverts_the_ratio(ratio: float, seed: int) -> None:
    blocks = blocks_of(ratio, 3, seed=seed)
    there, back = estimate(blocks), estimate([(b, a) for a, b in blocks])
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)


def test_alike_arms_are_rarely_told_apart() -> None:
    named = 0
    for seed in range(400):
        found = estimate(blocks_of(1.0, 3, noise=0.03, seed=seed))
        named += not found.low <= 1.0 <= found.high
    assert named <= 28  # 5 % expected; 7 % is 2 sigma beyond


def test_blocks_that_disagree_widen_the_interval() -> None:
    calm = estimate(blocks_of(1.2, 3))
    a, b = blocks_of(1.2, 3)[0]
    restless = [(a, [[x * f for x in v] for v in b]) for f in (0.8, 1.0, 1.25)]
    assert estimate(restless).high / estimate(restless).low > calm.high / calm.low


def test_one_sandwich_is_judged_by_its_two_outer_visits() -> None:
    calm = estimate([([[100, 101, 99], [100, 99, 101]], [[120, 121, 119]])])
    assert calm.low > 1.1
    moved = estimate([([[100, 101, 99], [130, 131, 129]], [[120, 121, 119]])])
    assert moved.low < 1.0 < moved.high


def test_disturbed_samples_count_by_their_own_spread_alone() -> None:
    rng = random.Random(2)
    named = 0
    for _ in range(300):
        blocks: list[Block] = [
            tuple(  # type: ignore[misc]
                [[100 * math.exp(rng.gauss(0, 0.5))] * 3 for _ in range(2)] for _ in range(2)
            )
            for _ in range(3)
        ]
        found = block_estimate(blocks, disturbed=True)
        assert isinstance(found, Estimate)
        named += not found.low <= 1.0 <= found.high
    assert named <= 45  # 10 % expected; without this rule a third of them were named
    sandwich: Block = ([[100.0, 101.0]] * 2, [[300.0, 301.0]])
    assert isinstance(block_estimate([sandwich], disturbed=True), Unjudgeable)


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [([[1.0, 2.0]], [])],
        [([[1.0, 2.0]], [[1.0, 2.0]])],
        [([[], []], [[1.0], [1.0]]), ([[], []], [[1.0], [1.0]])],
        [([[0.0, 1.0]] * 2, [[1.0, 1.0]] * 2)] * 2,
    ],
)
def test_too_little_is_said_and_not_guessed(blocks: list[Block]) -> None:
    assert isinstance(block_estimate(blocks), Unjudgeable)


def abba(rate_a: float, rate_b: float, *, b_control: bool = True) -> list[Visit]:
    rng = random.Random(1)
    visits = []
    for block in range(3):
        for side in BLOCK:
            rate = rate_a if side == "A" else rate_b
            rates = [rate * rng.uniform(0.99, 1.01) for _ in range(4)]
            visits.append(visit(side, block, rates, control_right=side == "A" or b_control))
    return visits


@pytest.mark.parametrize(
    ("rate_b", "outcome", "code"),
    [
        (60.0, "REGRESSED", 1),
        (100.0, "PASS", 0),
        (150.0, "IMPROVED", 0),
        (90.5, "INCONCLUSIVE", 125),
        (109.5, "PASS", 0),  # whether it is better is open, that it is no worse is not
    ],
)
def test_outcomes_are_exit_codes_of_git_bisect(rate_b: float, outcome: str, code: int) -> None:
    compared = judge_arms(abba(100.0, rate_b), BANDS, ["generation"])
    (cell,) = compared.cells
    assert cell.outcome == outcome
    assert compared.exit_code == code
    assert undecided(compared) == (outcome == "INCONCLUSIVE")
    assert (cell.baseline, cell.measured) == (
        pytest.approx(100, rel=0.02),
        pytest.approx(rate_b, rel=0.02),
    )
    assert compared.visits == {"A": 6, "B": 6}


def test_nothing_measured_cannot_be_told() -> None:
    assert judge_arms([], BANDS).exit_code == CANNOT_TELL
    assert judge_arms([visit("A", 0, [1.0, 1.0])], BANDS).exit_code == CANNOT_TELL


def test_a_faster_arm_that_computes_wrongly_is_not_better() -> None:
    compared = judge_arms(abba(100, 200, b_control=False), BANDS, ["generation"])
    (cell,) = compared.cells
    assert (cell.outcome, cell.code) == ("INVALID", "answers")
    assert compared.exit_code == CANNOT_TELL


def test_disturbed_visits_do_not_count() -> None:
    busy = "a compiler used 80 % of the CPU"
    visits = abba(100, 100)
    for side in BLOCK:
        rates = [10.0 if side == "B" else 100.0] * 4
        visits.append(visit(side, 9, rates, contention=busy))
    (cell,) = judge_arms(visits, BANDS, ["generation"]).cells
    assert cell.outcome == "PASS"
    only = [visit(side, 0, [10.0] * 4, contention=busy) for side in BLOCK]
    (cell,) = judge_arms(only, BANDS, ["generation"]).cells
    assert (cell.outcome, cell.message) == ("INCONCLUSIVE", busy)
    slow = [
        visit(side, block, [50.0 if side == "B" else 100.0] * 4, contention=busy)
        for block in range(3)
        for side in BLOCK
    ]
    (cell,) = judge_arms(slow, BANDS, ["generation"], contended=True).cells
    assert cell.outcome == "REGRESSED"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_block_in_which_the_machine_changed_does_not_count(on_gpu: bool) -> None:
    visits = []
    for block in range(4):
        for place, side in enumerate(BLOCK):
            moved = block == 3 and place > 1
            made = visit(side, block, [(150.0 if moved else 100.0) + x for x in (0, 1, 2)])
            events = (pace([20.0 if moved else 10.0] * 3), server_log(on_gpu=on_gpu))
            visits.append(replace(made, record=made.record.model_copy(update={"events": events})))
    compared = judge_arms(visits, BANDS, ["generation"])
    assert set(compared.moved) == (set() if on_gpu else {3})
    assert compared.cells[0].n_baseline == (24 if on_gpu else 18)
    only = judge_arms(visits[-4:], BANDS, ["generation"])
    assert undecided(only)
    assert (only.cells[0].code == "pace") == (not on_gpu)


def test_load_that_every_visit_brings_is_no_change_of_the_machine() -> None:
    """Cool before, warm after, in both arms alike."""
    paces = (pace([10.0, 10.1, 9.9]), pace([8.0, 8.1, 7.9], "after"), server_log(on_gpu=False))
    visits = [
        replace(v, record=v.record.model_copy(update={"events": paces})) for v in abba(100.0, 100.0)
    ]
    assert not judge_arms(visits, BANDS, ["generation"]).moved
    warmer = (pace([8.7, 8.8, 8.6]), *paces[1:])
    visits[1] = replace(visits[1], record=visits[1].record.model_copy(update={"events": warmer}))
    assert set(judge_arms(visits, BANDS, ["generation"]).moved) == {0}


class Arms(Comparison):
    """A comparison whose visits are made up; in the blocks of `restless` the machine moves."""

    def __init__(self, restless: set[int]) -> None:
        self._bands, self._metrics, self._contended = BANDS, ["generation"], False
        self._reporter, self._restless = Said(), restless
        self._depths = self._short = [2048]
        self._allow_differences = True
        self._arms, self._took_s, self._budget_s, self._began_s = {}, {}, None, 0.0
        self.visits = []

    def _visit(self, side: Side, deepest: int) -> RunRecord:
        place = len(self.visits) - 2  # a warm-up of each arm came first
        moved = place // 4 in self._restless and place % 4 > 1 and place >= 0
        made = visit(side, 0, [100.0 + x for x in (0.0, 1.0, 2.0)]).record
        events = (pace([20.0 if moved else 10.0] * 3), server_log(on_gpu=False))
        return made.model_copy(update={"events": events})


class Said:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, depth: int, done: int, total: int, eta_s: float | None) -> None:
        """Nothing."""

    def doing(self, depth: int, what: str) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("restless", "visits", "code"), [(set(), 12, 0), ({1}, 16, 0), (set(range(6)), 24, 125)]
)
def test_another_block_is_made_for_one_that_does_not_count(
    restless: set[int], visits: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "hold_machine", lambda settings: nullcontext())
    arms = Arms(restless)
    arms._arms = {"A": None, "B": None}  # type: ignore[dict-item]
    assert arms.measure(3, 6).exit_code == code
    assert [v.warm_up for v in arms.visits] == [True] * 2 + [False] * visits
    said = arms._reporter.lines  # type: ignore[attr-defined]
    assert sum("its speeds don't count" in line for line in said) == len(restless)
    assert said[:2] == [f"warm-up, arm {side}: shown, not judged" for side in "AB"]
    assert said[2].startswith("forecast: 12 visits to 2048 of ")
    assert said[4] == "block 1, visit 2 of 4: arm B"


def test_a_moving_machine_spoils_no_block_where_speeds_are_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "hold_machine", lambda settings: nullcontext())
    arms = Arms(set(range(6)))
    arms._arms, arms._metrics = {"A": None, "B": None}, ["retrieval"]  # type: ignore[dict-item]
    assert arms.measure(1, 2).exit_code == 0
    assert len(arms.visits) == 2 + 4


def test_depths_that_one_arm_did_not_reach_are_left_out() -> None:
    visits = [visit(side, 0, [100.0] * 4) for side in SANDWICH]
    visits += [visit("A", 1, [100.0] * 4, depth=8192)]
    assert {c.depth for c in judge_arms(visits, BANDS, ["generation"]).cells} == {2048}


def test_a_warm_up_is_not_judged() -> None:
    calm = [visit(side, block, [100.0, 101.0, 102.0]) for block in range(3) for side in BLOCK]
    cold = [replace(visit(side, -1, [20.0] * 3), warm_up=True) for side in ("B", "A")]
    assert judge_arms([*cold, *calm], BANDS, ["generation"]) == judge_arms(
        calm, BANDS, ["generation"]
    )


class Deep(Arms):
    """Arms of one short and one long rung; B reads at `ratio` of A's speed."""

    def __init__(self, ratio: float, noise: float = 0.004, budget_s: float | None = None) -> None:
        super().__init__(set())
        self._metrics, self._depths, self._ratio = ["prefill"], [2048, 131072], ratio
        self._short, self._budget_s = [2048], budget_s
        self._rng, self.to = random.Random(7), list[int]()
        self._noise = noise

    def _visit(self, side: Side, deepest: int) -> RunRecord:
        self.to.append(deepest)
        made = visit(side, 0, [100.0]).record
        state = math.exp(self._rng.gauss(0, self._noise))
        speed = 1000.0 * state * (self._ratio if side == "B" else 1.0)
        rungs = tuple(
            made.rungs[0].model_copy(
                update={"depth": depth, "prefills": (prefill(start, depth, speed),)}
            )
            for start, depth in ((0, 2048), (2048, 131072))
            if depth <= deepest
        )
        return made.model_copy(update={"rungs": rungs})


@pytest.mark.parametrize(("ratio", "code"), [(1.0, 0), (0.75, 1)])
def test_long_rungs_end_in_a_verdict_with_an_interval(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "hold_machine", lambda settings: nullcontext())
    arms = Deep(ratio)
    arms._arms = {"A": None, "B": None}  # type: ignore[dict-item]
    compared = arms.measure(3, 6)
    assert compared.exit_code == code
    (deep,) = [c for c in compared.cells if c.depth == 131072]
    assert deep.outcome == ("PASS" if code == 0 else "REGRESSED")
    assert deep.low is not None
    assert arms.to == [2048] * 14 + [131072] * 4
    (told,) = [line for line in arms._reporter.lines if line.startswith("forecast: ")]  # type: ignore[attr-defined]
    assert "12 visits to 2048 of " in told
    assert " and 4 visits to 131072 of " in told


def test_a_budget_ends_a_comparison_but_each_arm_is_visited_at_depth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "hold_machine", lambda settings: nullcontext())
    arms = Deep(1.0, noise=0.2, budget_s=1e-9)
    arms._arms = {"A": None, "B": None}  # type: ignore[dict-item]
    arms.measure(3, 6)
    assert arms.to == [2048] * 6 + [131072] * 4


# -- a long rung, visited once or twice a side ------------------------------------------------


def long_visit(side: Side, tok_s: float, *, seed: int, stall: float = 1.0) -> Visit:
    """One climb of 44 batches from 8192 to 32768 tokens, as on a GPU with -b 512."""
    rng = random.Random(seed)
    read = prefill(7262, 7262 + 44 * 512, tok_s, chunk=512)
    ms = [c.ms * math.exp(rng.gauss(0, 0.02)) for c in read.chunks]
    ms[20] *= stall
    chunks = tuple(c.model_copy(update={"ms": m}) for c, m in zip(read.chunks, ms, strict=True))
    read = read.model_copy(
        update={"chunks": chunks, "server_ms": sum(ms), "wall_ms": sum(ms) + 2.0}
    )
    rung = Rung(
        depth=32768, document_tokens=29380, prefills=(read,), asks=(ask(),) * 3, elapsed_s=1.0
    )
    return Visit(side, 9, RunRecord(header=header((32768,)), rungs=(rung,)))


@pytest.mark.parametrize("order", ["ABA", "AB"])
@pytest.mark.parametrize(
    ("change", "stall", "outcome"),
    [
        (0.0, 1.0, "PASS"),
        (-0.3, 1.0, "REGRESSED"),
        (0.4, 1.0, "IMPROVED"),
        (0.0, 20.0, "INCONCLUSIVE"),
    ],
)
def test_a_long_prefill_is_judged_by_its_batches(
    order: str, change: float, stall: float, outcome: str
) -> None:
    """One reading a visit is one value, and B had one: "one sample has no spread"."""
    sides: dict[str, Side] = {"A": "A", "B": "B"}
    visits = [
        long_visit(
            sides[s],
            90_000.0 * (1 + change if s == "B" else 1),
            seed=i,
            stall=stall if s == "B" else 1.0,
        )
        for i, s in enumerate(order)
    ]
    found = judge_arms(visits, BANDS, ["prefill"]).cells[0]
    assert found.outcome == outcome, found.message
    assert found.low is not None

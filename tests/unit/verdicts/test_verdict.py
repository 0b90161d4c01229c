"""From a record and a baseline to one outcome and one reason per cell."""

from collections.abc import Sequence

import pytest

from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import RESUMED, Event, Failure, Footer, MemorySample, Rung, RunRecord
from harness.records.metrics import GENERATION, METRICS, PREFILL
from harness.records.outcomes import Outcome
from harness.verdicts.acceptance import update
from harness.verdicts.cell import CellVerdict
from harness.verdicts.rung import undecided
from harness.verdicts.verdict import hold_run_level, judge
from tests.made import GIB, ask, control, pace, prefill, record, rung, server_log

BANDS = {name: metric.band for name, metric in METRICS.items()}


def baseline_of(*runs: RunRecord) -> Baseline:
    taken = tuple(accepted(r, "2026-01-02", None) for r in runs)
    return Baseline(key=key_of(runs[0].header), runs=taken)


def two(*rungs: Rung) -> Baseline:
    return baseline_of(record(*rungs), record(*rungs))


def cell(now: RunRecord, then: Baseline | None, metric: str, depth: int = 2048) -> CellVerdict:
    found = judge(now, then, BANDS).cell(depth, metric)
    assert found is not None
    return found


def test_the_same_numbers_pass_everywhere() -> None:
    verdict = judge(record(rung()), two(rung()), BANDS)
    assert {c.outcome for c in verdict.cells} == {"PASS"}
    assert verdict.exit_code == 0


def test_without_a_baseline_nothing_passes() -> None:
    verdict = judge(record(rung()), None, BANDS)
    assert {c.outcome for c in verdict.cells} == {"NO_BASELINE"}
    assert verdict.exit_code == 2
    assert all("harness baseline update" in (c.next_step or "") for c in verdict.cells)


def test_a_depth_the_baseline_lacks_is_named() -> None:
    found = cell(record(rung(), rung(8192, start=1843)), two(rung()), "prefill", 8192)
    assert found.outcome == "NO_BASELINE"
    assert "no accepted run at this depth" in found.message


@pytest.mark.parametrize("share", [0.6, 0.75])
def test_prefill_and_generation_are_judged_apart(share: float) -> None:
    """A report of gfx1151 lost 39 % of prefill and 0.5 % of generation between two builds."""
    slower = record(rung(prefill_tok_s=1000 * share, generation_tok_s=(99.4, 99.6, 99.5)))
    assert cell(slower, two(rung()), "prefill").outcome == "REGRESSED"
    assert cell(slower, two(rung()), "generation").outcome == "PASS"
    assert judge(slower, two(rung()), BANDS).exit_code == 1


def test_only_the_depth_that_lost_speed_regresses() -> None:
    """Seen on Vulkan: +2.3 %, -2.9 % and -22.2 % at 0, 16K and 48K."""
    depths = (2048, 16384, 49152)
    then = two(*(rung(d) for d in depths))
    shares = (1.023, 0.971, 0.778)
    now = record(
        *(
            rung(d, generation_tok_s=[v * s for v in (100.0, 101.0, 99.0, 100.5, 99.5, 100.0)])
            for d, s in zip(depths, shares, strict=True)
        )
    )
    found = [cell(now, then, "generation", d).outcome for d in depths]
    assert found == ["PASS", "PASS", "REGRESSED"]


def test_faster_is_improved() -> None:
    now = record(rung(generation_tok_s=(150.0, 151.0, 149.0)))
    assert cell(now, two(rung()), "generation").outcome == "IMPROVED"


def test_lower_is_better_for_latency_and_memory() -> None:
    now = record(rung(ttft_ms=(90.0, 91.0, 89.0), memory_gib=8.0))
    assert cell(now, two(rung()), "ttft").outcome == "REGRESSED"
    assert cell(now, two(rung()), "memory").outcome == "REGRESSED"


def test_a_change_too_small_to_matter_is_none() -> None:
    """2 ms to 3 ms is +50 %, and nobody can feel it."""
    then = two(rung(ttft_ms=(2.0, 2.1, 1.9)))
    assert cell(record(rung(ttft_ms=(3.0, 3.1, 2.9))), then, "ttft").outcome == "PASS"


@pytest.mark.parametrize("samples", [(66.0, 40.0), (140.0, 60.0, 100.0)])
def test_samples_that_disagree_decide_nothing(samples: Sequence[float]) -> None:
    then = two(rung(generation_tok_s=(66.0, 65.0, 67.0)))
    now = rung(generation_tok_s=samples)
    found = cell(record(now), then, "generation")
    assert found.outcome == "INCONCLUSIVE"
    assert GENERATION in undecided(now, then, BANDS)


def test_one_sample_is_never_a_verdict() -> None:
    found = cell(record(rung(generation_tok_s=(50.0,))), two(rung()), "generation")
    assert found.outcome == "INCONCLUSIVE"
    assert found.code == "too_few"


def test_one_baseline_run_is_not_enough() -> None:
    found = cell(record(rung()), baseline_of(record(rung())), "generation")
    assert found.outcome == "INCONCLUSIVE"


def test_a_failed_local_control_makes_the_rung_invalid() -> None:
    now = record(rung(prefill_tok_s=500.0, asks=[ask(), ask(control=False), ask()]))
    verdict = judge(now, two(rung()), BANDS)
    retrieval = verdict.cell(2048, "retrieval")
    assert retrieval is not None
    assert (retrieval.outcome, retrieval.code) == ("INVALID", "control")
    for metric in ("prefill", "generation", "ttft"):
        found = verdict.cell(2048, metric)
        assert found is not None
        assert (found.outcome, found.code) == ("INVALID", "answers")
        assert found.measured is not None
    assert verdict.exit_code == 3


def test_an_answer_cut_by_its_budget_is_invalid() -> None:
    cut = ask(2, finish_reason="length", failure_class="budget", invalid=("budget",))
    found = cell(record(rung(asks=[cut] * 3)), two(rung()), "retrieval")
    assert (found.outcome, found.code) == ("INVALID", "budget")


def test_lost_answers_regress() -> None:
    found = cell(record(rung(asks=[ask(0)] * 3)), two(rung()), "retrieval")
    assert found.outcome == "REGRESSED"
    assert "0 of 15" in found.message


def test_a_weak_model_that_stays_as_weak_passes() -> None:
    weak = [ask(2), ask(1), ask(2)]
    assert cell(record(rung(asks=weak)), two(rung(asks=weak)), "retrieval").outcome == "PASS"


def test_drift_of_the_controls_withholds_speed_verdicts() -> None:
    moved = [control("before", (100.0, 101.0, 99.0)), control("after", (80.0, 81.0, 79.0))]
    now = record(rung(generation_tok_s=(70.0, 71.0, 69.0)), controls=moved)
    verdict = judge(now, two(rung()), BANDS)
    found = verdict.cell(2048, "generation")
    assert found is not None
    assert (found.outcome, found.code) == ("INCONCLUSIVE", "drift")
    assert "would be REGRESSED" in found.message
    memory = verdict.cell(2048, "memory")
    assert memory is not None
    assert memory.outcome == "PASS"


STEADY = pace((10.0, 10.1, 9.9, 10.0))


@pytest.mark.parametrize(
    ("on_gpu", "now", "outcome", "code"),
    [
        (False, (10.0, 9.9, 10.1, 10.0), "REGRESSED", "regressed"),
        (False, (6.5, 6.6, 6.4, 6.5), "INCONCLUSIVE", "pace"),
        (False, (9.8, 9.9, 9.7, 9.8), "REGRESSED", "regressed"),
        (True, (6.5, 6.6, 6.4, 6.5), "REGRESSED", "regressed"),
        (None, (6.5, 6.6, 6.4, 6.5), "REGRESSED", "regressed"),
    ],
)
def test_a_slower_machine_is_not_a_slower_server(
    on_gpu: bool | None, now: tuple[float, ...], outcome: str, code: str
) -> None:
    """A shared host moved by a third within minutes, with no load or steal to be seen."""
    then = record(rung(), events=[STEADY])
    slow = record(rung(prefill_tok_s=600.0), events=[pace(now), server_log(on_gpu=on_gpu)])
    verdict = judge(slow, baseline_of(then, then), BANDS)
    found = verdict.cell(2048, "prefill")
    assert found is not None
    assert (found.outcome, found.code) == (outcome, code)
    memory = verdict.cell(2048, "memory")
    assert memory is not None
    assert memory.outcome == "PASS"


def test_a_faster_machine_is_no_improvement() -> None:
    then = record(rung(), events=[STEADY])
    quick = record(
        rung(generation_tok_s=(150.0, 151.0, 149.0)),
        events=[pace((15.0, 15.1, 14.9)), server_log(on_gpu=False)],
    )
    found = cell(quick, baseline_of(then, then), "generation")
    assert (found.outcome, found.code) == ("INCONCLUSIVE", "pace")
    assert "would be IMPROVED" in found.message


def test_a_machine_that_changed_in_mid_run_is_off_its_pace() -> None:
    """Half of the samples, pooled with the others, would only have widened the interval."""
    then = record(rung(), events=[STEADY])
    events = [pace((10.0, 10.1, 9.9)), pace((20.0, 20.1, 19.9)), server_log(on_gpu=False)]
    found = cell(record(rung(), events=events), baseline_of(then, then), "generation")
    assert (found.outcome, found.code) == ("INCONCLUSIVE", "pace")


def test_the_pace_of_another_sitting_withholds_nothing() -> None:
    """A finished run that was only opened again brings new paces and measures nothing."""
    then = record(rung(), events=[STEADY])
    events = [STEADY, Event(code=RESUMED, message="resumed"), pace((20.0, 20.1, 19.9))]
    rates = (200.0, 201.0, 199.0)
    now = record(
        rung(),
        events=[*events, server_log(on_gpu=False)],
        controls=[control("before", rates), control("after", rates)],
    )
    found = cell(now, baseline_of(then, then), "generation")
    assert found.outcome == "PASS", found.message


def test_a_change_is_taken_back_where_half_of_an_unclear_drift_explains_it() -> None:
    controls = [control("before", (100.0, 112.0, 88.0)), control("after", (93.0, 102.0, 80.0))]
    slower = record(rung(generation_tok_s=(86.0, 87.0, 86.5)), controls=controls)
    small = record(rung(), controls=controls)
    (drift,) = {d for d in judge(small, two(rung()), BANDS).drift if abs(d.share) > d.limit}
    assert drift.state == "unclear"
    found = cell(slower, two(rung()), "generation")
    assert (found.outcome, found.code) == ("INCONCLUSIVE", "drift")
    assert "half of that would explain it" in found.message
    much = cell(
        record(rung(generation_tok_s=(70.0, 70.5, 69.5)), controls=controls),
        two(rung()),
        "generation",
    )
    assert much.outcome == "REGRESSED"
    late = rung().model_copy(update={"asks": tuple(ask(ttft_ms=57.0 + i / 10) for i in range(3))})
    tiny = cell(record(late, controls=controls), two(rung()), "ttft")
    assert tiny.low is not None
    assert tiny.low > 0.10  # beyond the band, but by less than anybody waits for
    assert tiny.outcome == "PASS", tiny.message
    assert "against a band of ±10 ms" in tiny.message


@pytest.mark.parametrize(("repeats", "more"), [(3, True), (6, False)])
def test_a_change_is_confirmed_from_six_samples(repeats: int, more: bool) -> None:
    rates = tuple(60.0 + 0.1 * i for i in range(repeats))
    slow = rung(generation_tok_s=rates, prefill_tok_s=600.0)
    assert cell(record(slow), two(rung()), "generation").outcome == "REGRESSED"
    assert (GENERATION in undecided(slow, two(rung()), BANDS)) == more


def test_few_batches_are_no_few_repeats() -> None:
    """Reading a document again would not make more of them."""
    slow = rung().model_copy(update={"prefills": (prefill(0, 1843, 600.0, chunk=400),)})
    then = rung().model_copy(update={"prefills": (prefill(0, 1843, 1000.0, chunk=400),)})
    assert cell(record(slow), two(then), "prefill").outcome == "REGRESSED"
    assert PREFILL not in undecided(slow, two(then), BANDS)


def test_speeds_of_a_run_in_which_the_machine_changed_are_not_accepted() -> None:
    steady = [pace((10.0, 10.1, 9.9)), pace((10.1, 10.0, 9.8), "after"), server_log(on_gpu=False)]
    moved = [steady[0], pace((20.0, 20.1, 19.9), "after"), steady[2]]
    good, bad = record(rung(), events=steady), record(rung(), events=moved)
    bad = bad.model_copy(update={"header": bad.header.model_copy(update={"run_id": "another"})})
    found = update([good, bad], None, BANDS, accepted_at="now")
    (said,) = [s for s in found.left_out if "pace" in s and s.startswith("generation")]
    assert "changed by a factor of 2.0" in said
    assert not any(run.cells[2048].generation_tok_s for run in found.baseline.runs)
    assert all(run.cells[2048].memory_gib for run in found.baseline.runs)


def test_depth_zero_slower_than_at_depth_is_impossible() -> None:
    """Seed 1 saw it when another server had started in the middle of a run."""
    controls = [control("before", (60.0, 61.0, 59.0)), control("after", (60.0, 61.0, 59.0))]
    found = cell(record(rung(), controls=controls), two(rung()), "generation")
    assert (found.outcome, found.code) == ("INVALID", "impossible")


def test_a_failed_rung_is_an_error_with_its_cause() -> None:
    failed = Rung(
        depth=2048,
        document_tokens=1800,
        failure=Failure(cause="SERVER_DIED", message="the server died"),
        elapsed_s=1.0,
    )
    verdict = judge(record(failed), two(rung()), BANDS)
    assert {c.outcome for c in verdict.cells} == {"ERROR"}
    assert all("SERVER_DIED" in c.message for c in verdict.cells)
    assert verdict.exit_code == 3


def test_what_else_differs_is_named() -> None:
    then = two(rung())
    now = record(rung())
    server = now.header.server.model_copy(update={"build": "b2", "noted": {"-t": "1"}})
    changed = now.model_copy(update={"header": now.header.model_copy(update={"server": server})})
    said = " / ".join(judge(changed, then, BANDS).differences)
    assert "server build b1 → b2" in said
    assert "-t not given → 1" in said


def test_what_the_machine_is_set_to_differs_only_where_both_runs_tell() -> None:
    def told(run: RunRecord, **conditions: str) -> RunRecord:
        machine = run.header.machine.model_copy(update={"conditions": conditions})
        return run.model_copy(update={"header": run.header.model_copy(update={"machine": machine})})

    def differences(before: dict[str, str], today: dict[str, str]) -> tuple[str, ...]:
        then = baseline_of(told(record(rung()), **before))
        return judge(told(record(rung()), **today), then, BANDS).differences

    firmware = {"firmware": "linux-firmware 20251111-1"}
    assert differences(firmware, {"firmware": "linux-firmware 20251125-2"}) == (
        "firmware linux-firmware 20251111-1 → linux-firmware 20251125-2",
    )
    assert differences({}, firmware) == ()  # an older baseline does not tell


def test_a_wider_band_forgives() -> None:
    slower = record(rung(generation_tok_s=(82.0, 83.0, 81.0)))
    assert cell(slower, two(rung()), "generation").outcome != "PASS"
    wide = judge(slower, two(rung()), {**BANDS, "generation": 0.4}).cell(2048, "generation")
    assert wide is not None
    assert wide.outcome == "PASS"


def test_one_weak_change_among_many_cells_is_not_yet_beyond_chance() -> None:
    def at(depth: int, p: float, outcome: Outcome) -> CellVerdict:
        return CellVerdict(depth, METRICS["prefill"], outcome, None, "", p_no_change=p)

    calm = [at(depth, 0.5, "PASS") for depth in range(30)]
    weak, strong = at(100, 0.02, "REGRESSED"), at(101, 1e-6, "REGRESSED")
    assert hold_run_level([weak])[0].outcome == "INCONCLUSIVE"
    held = hold_run_level([*calm, weak, strong])
    assert [c.outcome for c in held[-2:]] == ["INCONCLUSIVE", "REGRESSED"]
    assert held[-2].code == "together"


def test_a_question_that_read_the_document_again_is_no_warm_ttft() -> None:
    cold = ask(ttft_ms=5000.0, new_tokens=1900)
    now = record(rung(asks=[cold, ask(ttft_ms=50.0), ask(ttft_ms=51.0), ask(ttft_ms=49.0)]))
    found = cell(now, two(rung()), "ttft")
    assert found.outcome == "PASS"
    assert found.measured == pytest.approx(50.0, rel=1e-3)


def test_a_killed_run_is_no_pass_and_its_missing_rungs_are_errors() -> None:
    then = two(rung(), rung(8192, start=1843))
    whole = record(rung(), rung(8192, start=1843), controls=[control("before", (110.0, 111.0))])
    killed = whole.model_copy(update={"rungs": whole.rungs[:1]})
    verdict = judge(killed, then, BANDS)
    missing = verdict.cell(8192, "retrieval")
    assert missing is not None
    assert missing.outcome == "ERROR"
    assert "the run ended before this rung" in missing.message
    speed = verdict.cell(2048, "generation")
    assert speed is not None
    assert speed.outcome == "INCONCLUSIVE"
    assert "it was killed" in speed.message
    assert verdict.exit_code == 3


def test_a_run_that_ended_by_itself_may_have_left_deeper_rungs_out() -> None:
    whole = record(rung(), rung(8192, start=1843), controls=[control("before", (110.0, 111.0))])
    footer = Footer(ended_at="now", complete=True, prefilled_tokens=1, elapsed_s=1.0)
    chosen = whole.model_copy(update={"rungs": whole.rungs[:1], "footer": footer})
    verdict = judge(chosen, two(rung()), BANDS)
    assert verdict.cell(8192, "retrieval") is None
    assert verdict.exit_code == 0


def growing(bytes_per_token: int, *, flat_after: int = 10) -> Rung:
    """A rung with ten memory samples, 128 generated tokens apart."""
    samples = tuple(
        MemorySample(
            rss_bytes=4 * GIB,
            rss_anon_bytes=GIB + min(i, flat_after) * 128 * bytes_per_token,
            generated_tokens=i * 128,
        )
        for i in range(10)
    )
    return rung().model_copy(update={"memory": samples})


def test_memory_that_grows_with_every_token_is_a_leak_whatever_its_level() -> None:
    verdict = judge(record(growing(3_300_000)), two(rung()), BANDS)
    memory = verdict.cell(2048, "memory")
    assert memory is not None
    assert memory.outcome == "LEAK"
    assert "3.1 MiB per generated token" in memory.message
    assert memory.change == pytest.approx(0.0)
    assert memory.next_step
    assert verdict.outcome == "LEAK"
    assert verdict.exit_code == 1


@pytest.mark.parametrize(("bytes_per_token", "flat_after"), [(3_300_000, 3), (1_000, 10)])
def test_a_step_that_ends_and_a_trickle_are_no_leak(bytes_per_token: int, flat_after: int) -> None:
    now = record(growing(bytes_per_token, flat_after=flat_after))
    assert cell(now, two(rung()), "memory").outcome == "PASS"


def test_a_growth_that_is_the_cache_s_own_is_no_leak() -> None:
    log = Event(code="server_log", message="", data={"kv": {"bytes_per_token": 3_300_000}})
    now = record(growing(3_300_000)).model_copy(update={"events": (log,)})
    assert cell(now, two(rung()), "memory").outcome == "PASS"


def changed(made: Rung, **samples: object) -> Rung:
    return made.model_copy(update=samples)


def test_a_first_token_after_the_end_of_its_request_is_impossible() -> None:
    late = tuple(a.model_copy(update={"ttft_ms": a.wall_ms + 1.0}) for a in rung().asks)
    found = cell(record(changed(rung(), asks=late)), two(rung()), "ttft")
    assert (found.outcome, found.code) == ("INVALID", "impossible")
    spoken = tuple(g.model_copy(update={"ttft_ms": g.wall_ms + 1.0}) for g in rung().generations)
    found = cell(record(changed(rung(), generations=spoken)), two(rung()), "generation")
    assert (found.outcome, found.code) == ("INVALID", "impossible")


def test_batches_that_overlap_are_impossible() -> None:
    (read,) = rung().prefills
    twice = read.model_copy(update={"chunks": (*read.chunks, read.chunks[-1])})
    found = cell(record(changed(rung(), prefills=(twice,))), two(rung()), "prefill")
    assert (found.outcome, found.code) == ("INVALID", "impossible")
    assert "batch" in found.message


@pytest.mark.parametrize(
    ("weights_gib", "on_gpu", "impossible"),
    [(2.0, False, True), (0.05, False, False), (2.0, True, False), (0.5, False, False)],
)
def test_generation_faster_than_memory_can_be_read_is_impossible(
    weights_gib: float, on_gpu: bool, impossible: bool
) -> None:
    """100 tok/s of 2 GiB are 215 GB/s; a copy of 40 GB/s reads and writes 80."""
    log = server_log(on_gpu=on_gpu)
    log.data["weight_bytes_per_token"] = round(weights_gib * GIB)
    speed = Event(code="pace", message="", data={"position": "before", "copy": [40.0, 39.0]})
    found = cell(record(rung(), events=[log, speed]), two(rung()), "generation")
    assert (found.code == "impossible") == impossible, found.message


@pytest.mark.parametrize(
    ("weights_mib", "now", "withheld"),
    [(6, 230.0, False), (2000, 230.0, True), (6, 620.0, True), (6, 145.0, True)],
)
def test_a_slower_memory_withholds_what_reads_memory_and_other_cores_all(
    weights_mib: int, now: float, withheld: bool
) -> None:
    def measured(copies: list[float]) -> RunRecord:
        log = server_log(on_gpu=False)
        log.data["weight_bytes_per_token"] = weights_mib * 2**20
        log.data["kv"] = {"theory_bytes": 8 * 2**20, "bytes_per_token": 1024}
        data = {"position": "before", "copy": copies}
        return record(rung(), events=[Event(code="pace", message="", data=data), log])

    steady, other = measured([300.0, 301.0, 299.0] * 2), measured([now, now + 1, now - 1] * 2)
    found = cell(other, baseline_of(steady, steady), "generation")
    assert (found.code == "pace") == withheld, found.message


# -- numbers that must agree with a second account of them -------------------------------------


def changed_generations(one: Rung, **changes: object) -> Rung:
    made = tuple(g.model_copy(update=changes) for g in one.generations)
    return one.model_copy(update={"generations": made})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"server_ms": 128.0}, "128.0 ms by the server's clock and 1,281.0 ms by ours"),
        ({"predicted_tokens": 20}, "20 of the 128 tokens asked for"),
        ({"server_ms": None, "itl_ms": (0.012,), "predicted_tokens": 2}, "a rate needs at least"),
        ({"server_ms": None, "itl_ms": (0.002,) * 127}, "128 tokens in 0.3 ms"),
    ],
)
def test_a_generation_that_two_accounts_disagree_on_is_invalid(
    changes: dict[str, object], says: str
) -> None:
    """Cases 54, 70 and 56: a short clock, an early end, two tokens, a stream that was collected."""
    now = changed_generations(rung(generation_tok_s=[100.0] * 3), **changes)
    found = cell(record(now), two(rung()), "generation")
    assert (found.outcome, found.code) == ("INVALID", "impossible")
    assert says in found.message


def test_a_prefill_whose_batches_take_longer_than_the_whole_is_invalid() -> None:
    """Case 51: we stood still for 8 s while it was read, and timed its batches by arrival."""
    one = rung()
    read = one.prefills[0]
    late = read.chunks[-1].model_copy(update={"ms": read.chunks[-1].ms + 8000.0})
    read = read.model_copy(update={"chunks": (*read.chunks[:-1], late)})
    now = one.model_copy(update={"prefills": (read,)})
    found = cell(record(now), two(rung()), "prefill")
    assert (found.outcome, found.code) == ("INVALID", "impossible")
    assert "its batches took" in found.message


def test_a_rung_slower_than_a_deeper_one_was_slowed() -> None:
    """Case 73: a cache that is fuller never makes it faster; speculation may."""
    slow = rung(2048, generation_tok_s=[80.0, 80.5, 79.5, 80.2, 79.8, 80.1])
    deeper = rung(8192, generation_tok_s=[100.0, 100.5, 99.5, 100.2, 99.8, 100.1])
    found = cell(record(slow, deeper), None, "generation")
    assert (found.outcome, found.code) == ("INVALID", "impossible")
    assert "something slowed the measurement at 2,048" in found.message
    assert cell(record(slow, deeper), None, "generation", 8192).outcome == "NO_BASELINE"
    drafted = changed_generations(slow, draft_tokens=10)
    assert cell(record(drafted, deeper), None, "generation").outcome == "NO_BASELINE"

"""Harder tests: facts and counts as planned, scoring of counts, what is named when a task falls."""

import random
import re

import pytest

from harness.errors import SetupError
from harness.questions.harder import QUESTIONS, TASKS, HarderPlan, Task, plan_harder
from harness.questions.haystack import Segment, grow
from harness.questions.needles import Ask, CodeSource, Needle, Question
from harness.questions.scoring import score
from harness.records.lines import Event
from harness.records.metrics import METRICS
from harness.records.probes import ProbeScore
from harness.report.plots.harder import harder
from harness.settings import load
from harness.verdicts.harder import as_data, cells, cells_of, judge_harder, score_name, table
from harness.verdicts.judged import Judged
from harness.verdicts.verdict import judge
from tests import made as made_up

BUDGETS = ((2048, 1500), (8192, 7000), (16384, 14500))


def made(
    seed: int, tasks: tuple[Task, ...] = TASKS
) -> tuple[HarderPlan, CodeSource, list[Segment]]:
    codes = CodeSource(random.Random(seed))
    plan = plan_harder(BUDGETS, tasks, codes, random.Random(seed))
    segments = grow(
        BUDGETS,
        plan.planned,
        lambda texts: [max(1, len(t) // 3) for t in texts],
        seed=seed,
        background="plain",
    )
    return plan, codes, segments


@pytest.mark.parametrize("seed", range(6))
def test_every_question_has_its_one_answer_in_the_document_of_its_rung(seed: int) -> None:
    plan, _, segments = made(seed)
    text = ""
    for segment in segments:
        text += segment.text
        for pair in plan.asked[segment.depth, "kv"]:
            key = re.fullmatch(r"What is the value of key (\w{8})\?", pair.wording)
            assert key is not None
            assert re.findall(rf"The value of key {key[1]} is (\S+)\.\n", text) == [pair.code]
        for chain in plan.asked[segment.depth, "hops"]:
            crate = re.search(r"crate (\S+) carries", chain.wording)
            assert crate is not None
            (seal,) = re.findall(rf"Crate {crate[1]} carries seal (\S+)\.\n", text)
            assert re.findall(rf"The code of seal {seal} is (\S+)\.\n", text) == [chain.code]
        counts = {}
        for kind in plan.asked[segment.depth, "count"]:
            name = kind.label.rsplit(" ", 1)[-1]
            counts[name] = text.count(f": one barrel of {name}.\n")
            assert kind.code == f"COUNT-{counts[name]}"
        assert len(set(counts.values())) == len(counts) == QUESTIONS


def test_facts_are_spread_over_the_whole_document_of_each_rung() -> None:
    plan, _, segments = made(1)
    totals = {segment.depth: segment.total_tokens for segment in segments}
    at = {p.needle: p.at_tokens for segment in segments for p in segment.needles}
    for depth, total in totals.items():
        for task in ("kv", "hops"):
            eighths = {int(8 * at[fact] / total) for fact in plan.asked[depth, task]}
            assert len(eighths) >= 6, (depth, task)


def test_a_plan_is_a_function_of_its_seed_and_knows_only_its_tasks() -> None:
    one, again, other = made(3)[2], made(3)[2], made(4)[2]
    assert one == again
    assert one != other
    plan, codes, segments = made(3, ("hops",))
    text = "".join(segment.text for segment in segments)
    assert "The value of key" not in text
    assert "barrel of" not in text
    asks = plan.asks(8192, "hops", codes, random.Random(0))
    assert [len(ask.questions) for ask in asks] == [5, 5]
    asked = [q.needle for ask in asks for q in ask.questions if not q.is_control]
    assert sorted(n.code for n in asked) == sorted(f.code for f in plan.asked[8192, "hops"])
    assert len({ask.control.code for ask in asks}) == 2


# -- scoring of counts ----------------------------------------------------------------------


def counting(*numbers: int) -> Ask:
    control = Needle("LOCAL CONTROL", "CTL-123456")
    needles = [Needle(f"barrels of K{n}", f"COUNT-{n}") for n in numbers]
    questions = [Question(i, n) for i, n in enumerate(needles, 1)]
    return Ask("forward", control, (*questions, Question(len(needles) + 1, control, True)))


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Q1=COUNT-7\nQ2=CTL-123456", True),
        ("Q1=7\nQ2=CTL-123456", True),
        ("- **Q1: 7**\n- Q2: CTL-123456", True),
        ("Q1 = 7 barrels.\nQ2=CTL-123456", True),
        ("Q1=COUNT-17\nQ2=CTL-123456", False),
        ("Q1=17\nQ2=CTL-123456", False),
        ("Q1=77\nQ2=CTL-123456", False),
        ("Q1=7 or 8\nQ2=CTL-123456", False),
        ("Q1=7.5\nQ2=CTL-123456", False),
        ("Q1=4+3\nQ2=CTL-123456", False),
        ("Q1=COUNT-70\nQ2=CTL-123456", False),
        ("Q1=\nQ2=CTL-123456\n7", False),
        ("Q2=7\nQ1=CTL-123456", False),
    ],
)
def test_a_count_is_right_as_a_whole_with_or_without_its_prefix(answer: str, right: bool) -> None:
    assert (score(counting(7), answer).right_numbers == (1,)) is right


def test_a_bare_number_is_no_answer_to_any_other_question() -> None:
    control = Needle("LOCAL CONTROL", "CTL-123456")
    ask = Ask("forward", control, (Question(1, Needle("key A", "VAL-7")), Question(2, control)))
    assert score(ask, "Q1=7").right_numbers == ()


# -- judging --------------------------------------------------------------------------------


def scores(**rights: tuple[int, ...]) -> list[ProbeScore]:
    depths = [depth for depth, _ in BUDGETS]
    return [
        ProbeScore(name=f"harder {task} {depth}", right=right, asked=QUESTIONS)
        for task, each in rights.items()
        for depth, right in zip(depths, each, strict=False)
    ]


@pytest.mark.parametrize(
    ("now", "outcome", "said"),
    [
        ({"kv": (8, 8, 8), "hops": (8, 7, 5)}, "PASS", "no drop shown"),
        ({"kv": (8, 8, 8), "hops": (8, 6, 5)}, "PASS", "no drop shown"),
        ({"kv": (8, 8, 8), "hops": (8, 0, 1)}, "REGRESSED", "at hops from 8192 tokens on: 0/8"),
        ({"kv": (8, 8, 8), "hops": (8, 0, 5)}, "REGRESSED", "at hops at 8192 tokens: 0/8"),
        ({"kv": (0, 8, 8), "hops": (8, 7, 5)}, "REGRESSED", "at kv at 2048 tokens: 0/8"),
        ({"kv": (8, 6, 5), "hops": (8, 7, 5)}, "PASS", "no drop shown"),
        ({"kv": (8, 5, 5), "hops": (8, 7, 5)}, "REGRESSED", "at kv from 8192 tokens on: 5/8"),
        ({"kv": (8, 8, 8), "hops": (8, 8, 8)}, "PASS", "no drop shown"),
        ({"kv": (8, 8, 8), "count": (0, 1, 0)}, "NO_BASELINE", "count at 2048, count at 8192"),
        ({"kv": (2, 8, 8), "count": (0, 1, 0)}, "REGRESSED", "at kv at 2048 tokens: 2/8"),
    ],
)
def test_a_drop_beyond_chance_is_named_with_task_and_depth(
    now: dict[str, tuple[int, ...]], outcome: str, said: str
) -> None:
    base = scores(kv=(8, 8, 8), hops=(8, 7, 5)) * 2
    found = judge_harder(cells(scores(**now), base))
    assert found.outcome == outcome, found.message
    assert said in found.message
    assert found.next_step or outcome == "PASS"


def test_what_was_never_right_passes_and_getting_it_right_is_an_improvement() -> None:
    never = scores(kv=(0, 0, 0), hops=(0, 0, 0))
    assert judge_harder(cells(never, never * 2)).outcome == "PASS"
    better = judge_harder(cells(scores(kv=(8, 8, 8), hops=(0, 0, 0)), never * 2))
    assert better.outcome == "IMPROVED"
    assert "better than the baseline: kv" in better.message
    assert judge_harder(cells(never), "; so and so").message == "kv 0/24; hops 0/24; so and so" + (
        "; no accepted run has these tests"
    )


def test_only_scores_of_the_same_task_and_depth_are_compared() -> None:
    other = [ProbeScore(name=score_name("kv", 4096), right=8, asked=8)]
    (share,) = cells(scores(kv=(0,)), other)["kv"].values()
    assert share.base_asked is None
    assert cells([ProbeScore(name="heatmap 8x16", right=1, asked=2)]) == {}


def test_the_record_gives_the_table_and_the_plot_back() -> None:
    found = cells(scores(kv=(8, 8, 8), hops=(8, 0, 1)), scores(kv=(8, 8, 8)) * 2)
    event = Event(code="harder", message="harder tests REGRESSED: so", data=as_data(found))
    plain = made_up.record(made_up.rung())
    record = plain.model_copy(update={"events": (event,)})
    assert cells_of(record) == found
    assert [line.split()[0] for line in table(found)] == ["harder", "kv", "hops"]
    assert "8/8 (baseline 16/16)" in table(found)[1]
    verdict = judge(record, None, dict.fromkeys(METRICS, 0.1))
    figure = harder(Judged(record, verdict, None), 0)
    assert figure is not None
    assert figure.note == "harder tests REGRESSED: so"
    assert ("chains of two hops", "8K", "0/8", "–") in figure.table.rows
    assert [trace["y"] for trace in figure.traces if "baseline" not in trace["name"]] == [
        [100.0, 100.0, 100.0],
        [100.0, 0.0, 12.5],
    ]
    assert harder(Judged(plain, verdict, None), 0) is None
    assert cells_of(plain) == {}
    assert table({}) == []


# -- settings -------------------------------------------------------------------------------


def test_tasks_are_read_in_any_order_and_nonsense_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("settings")
    assert load({"harder": "count, KV"}, root, {}).harder == ("kv", "count")
    assert load({"harder": ["hops"]}, root, {}).harder == ("hops",)
    assert load({}, root, {}).harder is None
    for value in ("", "kv,chains"):
        with pytest.raises(SetupError, match="expected one or more of kv,hops,count"):
            load({"harder": value}, root, {})
    with pytest.raises(SetupError, match="rungs of 2048 tokens or more"):
        load({"harder": "kv", "depths": "1024,4096"}, root, {})

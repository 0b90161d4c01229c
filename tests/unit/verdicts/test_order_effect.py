"""Order effect: scored apart, compared by an interval, never from one answer."""

from typing import Any

import pytest

from harness.questions.needles import Order
from harness.records.lines import AskRecord
from harness.verdicts.order_effect import OrderScore, order_effect, scores_by_order
from harness.verdicts.proportions import ProportionEstimate
from harness.verdicts.stats import Unjudgeable


def ask(order: Order, right: int, *, control: bool = True, **other: Any) -> AskRecord:
    values: dict[str, Any] = {
        "order": order,
        "expected": {},
        "given": {},
        "control_number": 6,
        "answer": "",
        "reasoning": "",
        "finish_reason": "stop",
        "needles_right": right,
        "needles_asked": 5,
        "codes_present": right,
        "control_right": control,
        "prompt_tokens": None,
        "new_tokens": None,
        "cached_tokens": None,
        "planned_new_tokens": 50,
        "predicted_tokens": None,
        "predicted_ms": None,
        "ttft_ms": None,
        "wall_ms": 1.0,
    }
    return AskRecord.model_validate(values | other)


def test_orders_are_scored_apart_and_invalid_asks_left_out() -> None:
    scores = scores_by_order(
        [
            ask("forward", 5),
            ask("reversed", 4),
            ask("reversed", 3),
            ask("forward", 0, control=False),
        ]
    )
    assert scores == (
        OrderScore("forward", 5, 5, left_out=1),
        OrderScore("reversed", 7, 10),
        OrderScore("shuffled", 0, 0),
    )
    assert scores[1].share == 0.7
    assert scores[2].share is None


def test_four_of_five_against_five_of_five_shows_no_effect() -> None:
    effect = order_effect([OrderScore("forward", 5, 5), OrderScore("reversed", 4, 5)])

    (difference,) = effect.differences
    assert isinstance(difference.estimate, ProportionEstimate)
    assert difference.estimate.difference == pytest.approx(-0.2)
    assert difference.estimate.low < 0 < difference.estimate.high
    assert not difference.matters
    assert effect.sentence == "forward 5 of 5, reversed 4 of 5: no order effect shown"


def test_many_such_show_it_with_its_sign() -> None:
    effect = order_effect(
        [
            OrderScore("shuffled", 190, 200),
            OrderScore("reversed", 155, 200, left_out=1),
            OrderScore("forward", 195, 200),
        ]
    )

    reversed_, shuffled = effect.differences
    assert (reversed_.order, shuffled.order) == ("reversed", "shuffled")
    assert isinstance(reversed_.estimate, ProportionEstimate)
    assert reversed_.estimate.high < 0
    assert reversed_.matters
    assert not shuffled.matters
    assert effect.sentence.startswith(
        "forward 195 of 200, reversed 155 of 200, shuffled 190 of 200: "
    )
    assert "reversed -20 points against forward" in effect.sentence
    assert effect.sentence.endswith("; 1 ask(s) left out, control wrong")


def test_an_improvement_is_an_effect_too() -> None:
    effect = order_effect([OrderScore("forward", 20, 40), OrderScore("shuffled", 39, 40)])
    assert effect.differences[0].matters
    assert "+48 points" in effect.sentence


def test_without_forward_nothing_is_compared() -> None:
    (difference,) = order_effect([OrderScore("reversed", 4, 5)]).differences
    assert isinstance(difference.estimate, Unjudgeable)
    assert not difference.matters
    assert difference.estimate.reason in difference.text


def test_nothing_scored() -> None:
    assert order_effect(scores_by_order([])).sentence == "no ask scored: no order effect shown"


def test_an_order_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="one score an order"):
        order_effect([OrderScore("forward", 1, 5), OrderScore("forward", 5, 5)])

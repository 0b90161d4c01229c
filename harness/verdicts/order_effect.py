"""The effect of the questions' order: forward, reversed and shuffled scored apart and compared.

A model or an engine that reads well in one order and worse in another shows a fault that one score
for all orders would hide.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.questions.needles import ORDERS, Order
from harness.records.lines import AskRecord
from harness.verdicts.proportions import ProportionEstimate, proportion_estimate
from harness.verdicts.stats import Unjudgeable


@dataclass(frozen=True, slots=True)
class OrderScore:
    """Right answers of all asks in one order.

    `left_out` counts asks that were not scored because their control was wrong.
    """

    order: Order
    right: int
    asked: int
    left_out: int = 0

    @property
    def share(self) -> float | None:
        """Share of right answers; `None` when nothing was scored."""
        return self.right / self.asked if self.asked else None


@dataclass(frozen=True, slots=True)
class OrderDifference:
    """One order against forward: the share right in `order` minus that in forward order.

    `estimate` holds the difference and its interval (Newcombe's, for two independent shares; asks
    that share needles are alike, so it is wider than need be), or why there is none.
    """

    order: Order
    estimate: ProportionEstimate | Unjudgeable

    @property
    def matters(self) -> bool:
        """Whether the interval excludes "no difference"."""
        return isinstance(self.estimate, ProportionEstimate) and not (
            self.estimate.low <= 0.0 <= self.estimate.high
        )

    @property
    def text(self) -> str:
        """The difference in points of a hundred with its interval, or why there is none."""
        if isinstance(self.estimate, Unjudgeable):
            return f"{self.order} against forward: {self.estimate.reason}"
        difference, low, high = (
            100 * x for x in (self.estimate.difference, self.estimate.low, self.estimate.high)
        )
        return f"{self.order} {difference:+.0f} points against forward ({low:+.0f} to {high:+.0f})"


@dataclass(frozen=True, slots=True)
class OrderEffect:
    """Each order's score, and each order against forward, in the order of `needles.ORDERS`."""

    scores: tuple[OrderScore, ...]
    differences: tuple[OrderDifference, ...]

    @property
    def sentence(self) -> str:
        """The effect in one sentence, for reports."""
        counts = ", ".join(f"{s.order} {s.right} of {s.asked}" for s in self.scores if s.asked)
        left_out = sum(s.left_out for s in self.scores)
        apart = f"; {left_out} ask(s) left out, control wrong" if left_out else ""
        found = [d.text for d in self.differences if d.matters]
        verdict = "; ".join(found) if found else "no order effect shown"
        return f"{counts or 'no ask scored'}: {verdict}{apart}"


def scores_by_order(asks: Iterable[AskRecord]) -> tuple[OrderScore, ...]:
    """Needle answers by the order they were asked in; asks whose control is wrong are left out."""
    right: dict[Order, int] = dict.fromkeys(ORDERS, 0)
    asked: dict[Order, int] = dict.fromkeys(ORDERS, 0)
    left_out: dict[Order, int] = dict.fromkeys(ORDERS, 0)
    for ask in (ask for ask in asks if not ask.superseded):
        if ask.control_right:
            right[ask.order] += ask.needles_right
            asked[ask.order] += ask.needles_asked
        else:
            left_out[ask.order] += 1
    return tuple(OrderScore(o, right[o], asked[o], left_out[o]) for o in ORDERS)


def order_effect(scores: Iterable[OrderScore]) -> OrderEffect:
    """Compare every order that was asked with forward.

    Raises:
        ValueError: an order appears twice.
    """
    given = tuple(scores)
    by_order = {score.order: score for score in given}
    if len(by_order) != len(given):
        raise ValueError(f"one score an order expected, got {[s.order for s in given]}")
    forward = by_order.get("forward", OrderScore("forward", 0, 0))
    differences = tuple(
        OrderDifference(
            order,
            proportion_estimate(
                by_order[order].right, by_order[order].asked, forward.right, forward.asked
            ),
        )
        for order in ORDERS
        if order != "forward" and order in by_order and by_order[order].asked
    )
    return OrderEffect(tuple(by_order[o] for o in ORDERS if o in by_order), differences)

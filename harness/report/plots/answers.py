"""Answers by length and place of the needle: right or not, of which class, and what was said."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from harness.quantities import depth_label
from harness.questions.haystack import PLACEMENT
from harness.records.lines import AskRecord, Rung
from harness.report.plots.figure import Figure, Table, Trace, safe, wrapped
from harness.verdicts.judged import Judged

State = Literal["right", "partly", "wrong", "invalid"]
LABELS: dict[State, str] = {
    "right": "right in every order of asking",
    "partly": "wrong in some order of asking",
    "wrong": "wrong in every order of asking",
    "invalid": "not valid: says nothing of distance",
}
_SYMBOLS: dict[State, str] = {
    "right": "square",
    "partly": "square-cross",
    "wrong": "square-x",
    "invalid": "square-open",
}
CONTROL = "control"
ANSWER_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Place:
    """What one needle's question got at one rung, over all orders of asking."""

    depth: int
    place: str
    state: State
    right: int
    asked: int
    said: str


def retrieval(run: Judged, number: int, answer_chars: int) -> Figure | None:
    """One square a needle and rung of one run, with the failure's class and the answer on hover."""
    places = [p for rung in _rungs(run) for p in places_of(rung)]
    if not places:
        return None
    traces: list[Trace] = []
    for state, label in LABELS.items():
        some = [p for p in places if p.state == state]
        if not some:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": label,
                "meta": f"state-{state}",
                "marker": {"symbol": _SYMBOLS[state], "size": 30},
                "x": [depth_label(p.depth) for p in some],
                "y": [p.place for p in some],
                "text": [f"{p.right}/{p.asked}" for p in some],
                "textposition": "middle right",
                "customdata": [p.said for p in some],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    depths = [depth_label(rung.depth) for rung in _rungs(run)]
    order = [CONTROL, *(_share(s) for s in reversed(PLACEMENT))]
    seen = {p.place for p in places}
    layout: dict[str, Any] = {
        "xaxis": {
            "title": {"text": "context, tokens"},
            "type": "category",
            "categoryorder": "array",
            "categoryarray": depths,
            "range": [-0.6, len(depths) - 0.4],
        },
        "yaxis": {
            "title": {"text": "place in the document"},
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [o for o in order if o in seen],
        },
    }
    return Figure(
        f"retrieval-{number}",
        "Answers by length and place",
        "Share of the document before the needle; the control stands right before the questions. "
        "The number is how often it was right, out of the orders of asking.",
        traces,
        layout,
        Table(
            ("context", "order", "right", "control", "class", "reason", "answer"),
            tuple(_row(rung, ask, answer_chars) for rung in _rungs(run) for ask in rung.asks),
        ),
        height=360,
        subject=run.name,
        folded=all(p.state == "right" for p in places),
    )


def places_of(rung: Rung) -> Iterator[Place]:
    """Needles by their place in the document, which the forward order of asking tells."""
    forward = next((a for a in rung.counted_asks if a.order == "forward"), None)
    if forward is None:
        return
    codes = [c for n, c in forward.expected.items() if n != forward.control_number]
    if len(codes) != len(PLACEMENT):
        return
    for share, code in zip(PLACEMENT, codes, strict=True):
        asks = [(a, n) for a in rung.counted_asks for n, c in a.expected.items() if c == code]
        yield _place(rung, _share(share), asks)
    controls = [(a, a.control_number) for a in rung.counted_asks if a.control_number is not None]
    if controls:
        yield _place(rung, CONTROL, controls)


def _place(rung: Rung, place: str, asks: list[tuple[AskRecord, int]]) -> Place:
    right = sum(a.given.get(n) == a.expected[n] for a, n in asks)
    state: State = "right" if right == len(asks) else "partly" if right else "wrong"
    if state != "right" and all(a.invalid for a, n in asks if a.given.get(n) != a.expected[n]):
        state = "invalid"
    lines = [f"<b>{depth_label(rung.depth)}, needle at {safe(place)}</b>"]
    for ask, number in asks:
        given = ask.given.get(number)
        if given == ask.expected[number]:
            lines.append(f"{ask.order}: right")
            continue
        lines.append(
            f"{ask.order}: {safe(ask.failure_class)}, expected {safe(ask.expected[number])}, "
            f"got {safe(given) if given is not None else 'no code'}"
        )
        lines.append("answer: " + (wrapped(ask.answer) if ask.answer.strip() else "(empty)"))
    return Place(rung.depth, place, state, right, len(asks), "<br>".join(lines))


def _row(rung: Rung, ask: AskRecord, answer_chars: int) -> tuple[str, ...]:
    answer = ask.answer or "(empty)"
    if len(answer) > answer_chars:
        answer = f"{answer[:answer_chars]} … ({len(ask.answer):,} characters, cut here)"
    return (
        depth_label(rung.depth),
        ask.order,
        f"{ask.needles_right}/{ask.needles_asked}",
        "right" if ask.control_right else "wrong",
        ask.failure_class,
        "; ".join(x for x in (ask.failure_reason, *ask.invalid) if x) or "–",
        answer,
    )


def _rungs(run: Judged) -> list[Rung]:
    depths = sorted({r.depth for r in run.record.rungs if r.asks})
    return [rung for d in depths if (rung := run.record.rung(d)) is not None and rung.asks]


def _share(share: float) -> str:
    return f"{share:.0%}"

"""The warm-up before the first judged request, and the control's looks."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.measuring import controls as module
from harness.measuring.controls import CONTROL_REPEATS, WARM_UP_GROUPS, Controls
from harness.measuring.sitting import Sitting
from harness.records.lines import Event
from harness.serving.wire import Exchange
from harness.settings import Settings


@dataclass
class Server:
    """A script whose requests run at given speeds, tok/s; the last one stays."""

    speeds: list[float]
    asked: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    at_ns: int = 0

    def filler(self, name: str, tokens: int) -> str:
        return name

    def chat(self, text: str, *, max_tokens: int, **_: object) -> Exchange:
        speed = self.speeds.pop(0) if len(self.speeds) > 1 else self.speeds[0]
        took_ms = 1e3 * max_tokens / speed
        begun_ns, self.at_ns = self.at_ns, self.at_ns + round(took_ms * 2e6)
        self.asked.append(text)
        return Exchange(
            content="",
            reasoning="",
            finish_reason="length",
            prompt_tokens=max_tokens,
            predicted_tokens=max_tokens,
            cached_tokens=0,
            token_event_ms=(),
            progress=(),
            timings={
                "prompt_n": max_tokens,
                "cache_n": 0,
                "prompt_ms": took_ms,
                "predicted_ms": took_ms,
                "predicted_n": max_tokens,
            },
            first_token_ms=took_ms,
            wall_ms=took_ms * 2,
            started_ns=begun_ns,
            ended_ns=self.at_ns,
        )

    def controls(self) -> Controls:
        watcher = SimpleNamespace(rest_s=0.0, mark=lambda: None, gpu_at=lambda start, end: None)
        nothing: Any = None
        return Controls(
            Sitting(
                nothing,
                cast(Any, self),
                Settings(generate_tokens=64),
                cast(Any, self.events.append),
                nothing,
                cast(Any, watcher),
                nothing,
                origin_ns=0,
            )
        )


def test_a_cold_server_is_warmed_until_two_groups_agree() -> None:
    server = Server([300.0, 700.0, 1300.0, 1700.0, 2000.0, 2040.0, 2030.0, 2050.0])
    controls = server.controls()
    controls.warm_up()
    (event,) = server.events
    assert event.code == "warm_up"
    assert event.data["steady"] is True
    assert event.data["generation_tok_s"] == [500.0, 1500.0, 2020.0, 2040.0]
    assert event.data["tokens"] == 8 * 64
    assert controls.new_tokens == 0  # none of it is the climb's
    control = controls.taken("before")
    assert {round(g.predicted_tokens / (g.server_ms or 1) * 1e3) for g in control.generations} == {
        2050
    }


def test_a_warm_up_ends_where_nothing_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([100.0 * 1.5**n for n in range(40)])
    server.controls().warm_up()
    assert len(server.asked) == 2 * WARM_UP_GROUPS
    assert server.events[0].data["steady"] is False
    assert server.events[0].message.startswith("warm-up ended before it agreed")
    clock: Iterator[float] = iter(range(0, 10**6, 20))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(clock)))
    slow = Server([100.0])
    slow.controls().warm_up()
    assert len(slow.asked) == 1  # each takes longer than a warm-up may: the first must do


def test_the_control_looks_at_different_times_and_is_made_whole_at_the_end() -> None:
    server = Server([1000.0])
    controls = server.controls()
    controls.look()
    server.at_ns += 10**10  # other work
    controls.look()
    control = controls.taken("after")
    assert control.position == "after"
    begun = [p.start_s or 0.0 for p in control.prefills]
    assert len(begun) == CONTROL_REPEATS == len(control.generations)
    assert begun[1] - begun[0] > 10
    for _ in range(5):
        controls.look()
    assert len(controls.taken("after").prefills) == CONTROL_REPEATS


@pytest.mark.parametrize(("on_gpu", "depths"), [(False, [8192, 8192]), (True, []), (None, [])])
def test_the_pace_is_taken_at_a_rung_where_the_server_computes_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, on_gpu: bool | None, depths: list[int]
) -> None:
    """A GPU would fall to its idle clock meanwhile, and the cores' pace is not its own."""
    monkeypatch.setattr(module, "findings_of", lambda running: SimpleNamespace(on_gpu=on_gpu))
    events: list[Event] = []
    fake: Any = SimpleNamespace(
        session=SimpleNamespace(running=object()),
        settings=Settings(),
        watcher=SimpleNamespace(pace=lambda bursts: {"compute": (1.0,) * bursts}),
        append=events.append,
    )
    controls = Controls(fake)
    controls.pace_at(8192)
    controls.pace_at(8192)
    assert [event.data["depth"] for event in events] == depths
    assert all(event.data["position"] == "rung" for event in events)

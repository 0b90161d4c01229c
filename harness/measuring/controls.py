"""The controls of a sitting: a warm-up, the machine's pace, and one small request at depth 0."""

import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

from harness.machine.pace import BURSTS, BURSTS_AT_RUNG
from harness.measuring.recorded import generation_record
from harness.measuring.sitting import Sitting
from harness.records.lines import Control, Event, Generation, Prefill
from harness.serving.log import findings_of
from harness.serving.wire import Exchange

CONTROL_TOKENS = 160
CONTROL_REPEATS = 3
CONTROL_S = 0.2
"""A control shorter than this is mostly noise: a fast server generates up to 4 times as much."""
WARM_UP = "warm_up"
WARM_UP_TOKENS = 600
WARM_UP_GROUP = 2
WARM_UP_GROUPS = 8
WARM_UP_S = 10.0
WARM_UP_AGREE = 0.05
"""Two groups whose mean speeds differ by no more than this share agree."""


class Controls:
    """What is measured before and after a climb; `new_tokens` is what the server read for it."""

    def __init__(self, sitting: Sitting) -> None:
        self._sitting = sitting
        self._generate_tokens = self._control_tokens = sitting.settings.generate_tokens
        self._looks: list[tuple[Prefill, Generation]] = []
        self._on_cpu: bool | None = None
        self.new_tokens = 0

    def pace(self, position: str) -> Event:
        """The machine's own pace, the server being idle."""
        return _pace_event(position, self._sitting.watcher.pace(BURSTS))

    def pace_at(self, depth: int) -> None:
        """The pace at a rung, shortly: only where a server on the CPU shares the machine's."""
        if self._on_cpu is None:
            running = self._sitting.session.running
            self._on_cpu = running is not None and findings_of(running).on_gpu is False
        if self._on_cpu:
            taken = self._sitting.watcher.pace(BURSTS_AT_RUNG)
            self._sitting.append(_pace_event("rung", taken, depth=depth))

    def warm_up(self) -> Exchange:
        """Short requests until two groups of them agree, `WARM_UP_S` or `WARM_UP_GROUPS` long.

        Shaders that are compiled, pages that are read, caches that are first touched and a clock
        that rises are then behind the server. The last one's speed tells how long the controls
        must be. Nothing of it is a sample, nor counted in `new_tokens`.
        """
        text = self._sitting.script.filler("warm-up", WARM_UP_TOKENS)
        began_s, groups, steady = time.perf_counter(), list[tuple[float, ...]](), False
        while not steady and len(groups) < WARM_UP_GROUPS:
            group: list[Exchange] = []
            while len(group) < WARM_UP_GROUP and not self._over(began_s, group or groups):
                group.append(self._chat(text, self._generate_tokens, 0.0))
            if not group:
                break
            warm = group[-1]
            rates = [_rates(x) for x in group]
            groups.append(tuple(fmean(values) for values in zip(*rates, strict=True)))
            steady = len(groups) > 1 and all(
                abs(new - old) <= WARM_UP_AGREE * old for old, new in zip(*groups[-2:], strict=True)
            )
        elapsed_s = time.perf_counter() - began_s
        said = "warm: two groups of requests agree" if steady else "warm-up ended before it agreed"
        self._sitting.event(
            WARM_UP,
            f"{said} after {elapsed_s:.1f} s",
            steady=steady,
            elapsed_s=round(elapsed_s, 3),
            tokens=self.new_tokens,
            prefill_tok_s=[round(prefill, 1) for prefill, _ in groups],
            generation_tok_s=[round(generation, 1) for _, generation in groups],
        )
        self.new_tokens = 0
        took_s = (warm.timings.get("predicted_ms") or warm.wall_ms) / 1e3
        times = next((times for times in (1, 2) if times * took_s >= CONTROL_S), 4)
        self._control_tokens = self._generate_tokens * times
        return warm

    @staticmethod
    def _over(began_s: float, done: Sequence[object]) -> bool:
        return bool(done) and time.perf_counter() - began_s > WARM_UP_S

    def look(self) -> None:
        """One control request, `CONTROL_REPEATS` at most, with other work between where it can be.

        Requests back to back are one look at one state of the machine.
        """
        if len(self._looks) == CONTROL_REPEATS:
            return
        pause_s = self._sitting.watcher.rest_s
        exchange = self._chat(
            self._sitting.script.filler("control", CONTROL_TOKENS),
            self._control_tokens,
            pause_s if self._control_tokens > self._generate_tokens else 0.0,
        )
        self._sitting.watcher.mark()
        gpu = self._sitting.watcher.gpu_at(exchange.started_ns, time.perf_counter_ns())
        generation = generation_record(exchange, origin_ns=self._sitting.origin_ns)
        self._looks.append(
            (
                self._sitting.reading(exchange, "cold_repeat").model_copy(update={"gpu": gpu}),
                generation.model_copy(update={"new_tokens": None, "gpu": gpu}),
            )
        )

    def taken(self, position: Literal["before", "after"]) -> Control:
        """The looks at this end of the climb, those still missing taken now."""
        while len(self._looks) < CONTROL_REPEATS:
            self.look()
        prefills, generations = zip(*self._looks, strict=True)
        self._looks = []
        return Control(
            sitting=self._sitting.number,
            position=position,
            prefills=prefills,
            generations=generations,
        )

    def _chat(self, text: str, max_tokens: int, pause_s: float) -> Exchange:
        exchange = self._sitting.script.chat(
            text, max_tokens=max_tokens, reuse=False, ignore_eos=True, pause_s=pause_s
        )
        self.new_tokens += exchange.new_tokens or 0
        return exchange


def _pace_event(position: str, taken: Mapping[str, object], **where: int) -> Event:
    data = {"position": position, **where, **taken}
    return Event(code="pace", message="the machine's own pace", data=data)


def _rates(exchange: Exchange) -> tuple[float, float]:
    """Tokens a second read and generated, by the server's clock where it tells."""
    first_ms = exchange.first_token_ms or exchange.wall_ms
    read = exchange.new_tokens or exchange.prompt_tokens or 0
    read_ms = exchange.timings.get("prompt_ms") or first_ms
    generated = exchange.timings.get("predicted_n") or exchange.predicted_tokens or 0
    took_ms = exchange.timings.get("predicted_ms") or exchange.wall_ms - first_ms
    return read / max(read_ms, 1e-3) * 1e3, generated / max(took_ms, 1e-3) * 1e3

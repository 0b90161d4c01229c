"""The controls of a sitting: the machine's pace, a warm-up, and one small request at depth 0."""

import time

from harness.measuring.recorded import generation_record
from harness.measuring.sitting import Sitting
from harness.records.lines import Control, Event
from harness.serving.client import Exchange

CONTROL_TOKENS = 160
CONTROL_REPEATS = 3
CONTROL_S = 0.2
"""A control shorter than this is mostly noise: a fast server generates up to 4 times as much."""
WARM_UP_TOKENS = 600


class Controls:
    """What is measured before and after a climb; `new_tokens` is what the server read for it."""

    def __init__(self, sitting: Sitting) -> None:
        self._sitting = sitting
        self._generate_tokens = self._control_tokens = sitting.settings.generate_tokens
        self.new_tokens = 0

    def pace(self, position: str) -> Event:
        """The machine's own pace, the server being idle."""
        data: dict[str, object] = {"position": position, **self._sitting.watcher.pace()}
        return Event(code="pace", message="the machine's own pace", data=data)

    def warm_up(self) -> Exchange:
        """One short request whose speed tells how long the controls must be."""
        text = self._sitting.script.filler("warm-up", WARM_UP_TOKENS)
        warm = self._chat(text, self._generate_tokens, 0.0)
        took_s = (warm.timings.get("predicted_ms") or warm.wall_ms) / 1e3
        times = next((times for times in (1, 2) if times * took_s >= CONTROL_S), 4)
        self._control_tokens = self._generate_tokens * times
        return warm

    def measure(self, position: str) -> Control:
        """The control request, `CONTROL_REPEATS` times."""
        text = self._sitting.script.filler("control", CONTROL_TOKENS)
        pause_s = (
            self._sitting.watcher.rest_s if self._control_tokens > self._generate_tokens else 0.0
        )
        exchanges = [
            self._chat(text, self._control_tokens, pause_s) for _ in range(CONTROL_REPEATS)
        ]
        self._sitting.watcher.mark()
        gpu = {"gpu": self._sitting.watcher.gpu_at(exchanges[0].started_ns, time.perf_counter_ns())}
        return Control.model_validate(
            {
                "position": position,
                "sitting": self._sitting.number,
                "prefills": [
                    self._sitting.reading(x, "cold_repeat").model_copy(update=gpu)
                    for x in exchanges
                ],
                "generations": [
                    generation_record(x, origin_ns=self._sitting.origin_ns).model_copy(
                        update={"new_tokens": None, **gpu}
                    )
                    for x in exchanges
                ],
            }
        )

    def _chat(self, text: str, max_tokens: int, pause_s: float) -> Exchange:
        exchange = self._sitting.script.chat(
            text, max_tokens=max_tokens, reuse=False, ignore_eos=True, pause_s=pause_s
        )
        self.new_tokens += exchange.new_tokens or 0
        return exchange

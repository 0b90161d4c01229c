"""The controls of a sitting: the machine's pace, a warm-up, and one small request at depth 0."""

import time

from harness.measuring.recorded import generation_record, prefill_record
from harness.measuring.reporter import Watcher
from harness.measuring.script import Script
from harness.records.lines import Control, Event
from harness.serving.client import Exchange

CONTROL_TOKENS = 160
CONTROL_REPEATS = 3
REST_S = 0.01
"""A fast generation is read with a rest of `REST_S`: reading each token at once takes a CPU
server's cores from it (3.6 % spread between runs and a sixth of the speed, 2 cores)."""
CONTROL_S = 0.2
"""A control shorter than this is mostly noise: a fast server generates up to 4 times as much."""
WARM_UP_TOKENS = 600


class Controls:
    """What is measured before and after a climb; `new_tokens` is what the server read for it."""

    def __init__(
        self,
        script: Script,
        watcher: Watcher,
        *,
        generate_tokens: int,
        origin_ns: int,
        sitting: int = 1,
    ) -> None:
        self._script = script
        self._watcher = watcher
        self._generate_tokens = self._control_tokens = generate_tokens
        self._origin_ns = origin_ns
        self._sitting = sitting
        self.new_tokens = 0

    def pace(self, position: str) -> Event:
        """The machine's own pace, the server being idle."""
        data: dict[str, object] = {"position": position, **self._watcher.pace()}
        return Event(code="pace", message="the machine's own pace", data=data)

    def warm_up(self) -> Exchange:
        """One short request whose speed tells how long the controls must be."""
        text = self._script.filler("warm-up", WARM_UP_TOKENS)
        warm = self._chat(text, self._generate_tokens, 0.0)
        took_s = (warm.timings.get("predicted_ms") or warm.wall_ms) / 1e3
        times = next((times for times in (1, 2) if times * took_s >= CONTROL_S), 4)
        self._control_tokens = self._generate_tokens * times
        return warm

    def measure(self, position: str) -> Control:
        """The control request, `CONTROL_REPEATS` times."""
        text = self._script.filler("control", CONTROL_TOKENS)
        pause_s = REST_S if self._control_tokens > self._generate_tokens else 0.0
        exchanges = [
            self._chat(text, self._control_tokens, pause_s) for _ in range(CONTROL_REPEATS)
        ]
        origin_ns = self._origin_ns
        self._watcher.mark()
        gpu = {"gpu": self._watcher.gpu_at(exchanges[0].started_ns, time.perf_counter_ns())}
        return Control.model_validate(
            {
                "position": position,
                "sitting": self._sitting,
                "prefills": [
                    prefill_record(
                        x, "cold_repeat", planned_cached_tokens=0, origin_ns=origin_ns
                    ).model_copy(update=gpu)
                    for x in exchanges
                ],
                "generations": [
                    generation_record(x, origin_ns=origin_ns).model_copy(
                        update={"new_tokens": None, **gpu}
                    )
                    for x in exchanges
                ],
            }
        )

    def _chat(self, text: str, max_tokens: int, pause_s: float) -> Exchange:
        exchange = self._script.chat(
            text, max_tokens=max_tokens, reuse=False, ignore_eos=True, pause_s=pause_s
        )
        self.new_tokens += exchange.new_tokens or 0
        return exchange

"""What measuring needs from outside, as protocols: other ones can be passed in."""

from typing import Protocol

from harness.records.lines import GpuAt, MemorySample


class Reporter(Protocol):
    """What the runner tells a person while it works."""

    def say(self, text: str) -> None:
        """One line about the run."""

    def progress(
        self, depth: int, done_tokens: int, total_tokens: int, eta_s: float | None
    ) -> None:
        """`done_tokens` of the rung's prompt have been read, `eta_s` seconds are left."""

    def doing(self, depth: int, what: str) -> None:
        """What is done at the rung now; nothing any more where it is empty."""


class MemoryReader(Protocol):
    """Reads the memory of the server's process tree."""

    def sample(self) -> MemorySample:
        """Memory now."""


class Watcher(Protocol):
    """Watches the machine's other load."""

    rest_s: float
    """How long to rest between tokens of a fast generation, for the server's sake."""

    def start(self) -> None:
        """Begin to watch."""

    def stop(self) -> None:
        """Watch no more."""

    def mark(self) -> None:
        """Take a reading now."""

    def settle(self) -> None:
        """Wait until readings cover everything up to now."""

    def contention(self, start_ns: int, end_ns: int) -> str | None:
        """What disturbed a window of `time.perf_counter_ns`, as one sentence."""

    def gpu_at(self, start_ns: int, end_ns: int) -> GpuAt | None:
        """What the server's GPU ran at in a window; `None` where nothing tells."""

    def pace(self, bursts: int) -> dict[str, tuple[float, ...]]:
        """So many samples of the machine's own pace by name, the server being idle."""

    def account(self) -> dict[str, object]:
        """What was and was not watched, and the whole run in numbers."""

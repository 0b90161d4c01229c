"""The sampler as a run uses it: what disturbed a measurement, and an account for the record."""

from collections.abc import Callable
from dataclasses import asdict

from harness.core.contention import find, summarise
from harness.machine.contention import Sampler
from harness.machine.pace import measure_pace


class MachineWatcher:
    """Watches all processes but this one and the server's tree."""

    def __init__(self, server_pid: int | None, sampler: Sampler | None = None) -> None:
        exclude = () if server_pid is None else (server_pid,)
        self._sampler = sampler or Sampler(exclude)
        self.start: Callable[[], None] = self._sampler.start
        self.stop: Callable[[], None] = self._sampler.stop
        self.mark: Callable[[], None] = self._sampler.mark

    def contention(self, start_ns: int, end_ns: int) -> str | None:
        """What disturbed a window of `time.perf_counter_ns`, as one sentence."""
        found = find(self._sampler.readings(), start_ns, end_ns)
        return None if found is None else found.message()

    def pace(self) -> dict[str, tuple[float, ...]]:
        """The machine's own pace now; to be asked while the server is idle."""
        return measure_pace()

    def account(self) -> dict[str, object]:
        """What was and was not watched, and the run's load and conditions in numbers."""
        whole = summarise(self._sampler.readings())
        numbers = {k: v for k, v in asdict(whole).items() if k != "worst"}
        return {
            "summary": whole.message(),
            "watched": list(self._sampler.watched()),
            "not_watched": list(self._sampler.not_watched()),
            "sampler_cpu_s": self._sampler.cost_s,
            **numbers,
        }

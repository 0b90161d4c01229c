"""What the log of a server of ours says, as a record keeps it: sizes, devices, warnings, causes."""

import itertools
from typing import Any, get_args

from harness.errors import ServerError
from harness.llamacpp.flags import cache_settings
from harness.llamacpp.kv import kv_theory
from harness.llamacpp.layers import active_parameters
from harness.llamacpp.log import LogFindings, scan, telling
from harness.records.lines import Event, Failure
from harness.serving.launch import RunningServer
from harness.serving.session import Session


def findings_of(running: RunningServer) -> LogFindings:
    """The log as far as it is written."""
    return scan(running.log_lines())


_LOOK_BACK_LINES = 400
_SHOWN_LINES = 6


class LogCounts:
    """How often each pattern of the log watch was met since it was last asked."""

    def __init__(self, running: RunningServer | None) -> None:
        self._running = running
        self._read_lines = 0
        self.since()

    def since(self) -> dict[str, int]:
        """Counts by code of the lines that are new."""
        if self._running is None:
            return {}
        lines = list(itertools.islice(self._running.log_lines(), self._read_lines, None))
        self._read_lines += len(lines)
        return {f.code: f.count for f in scan(lines).findings}


def newest_lines(running: RunningServer | None) -> tuple[str, ...]:
    """The log's newest warnings and failures, else simply its last lines; empty without a log."""
    if running is None:
        return ()
    tail = running.log_tail(_LOOK_BACK_LINES)
    return telling(tail)[-_SHOWN_LINES:] or tail[-_SHOWN_LINES // 2 :]


_CAUSES = frozenset(get_args(Failure.model_fields["cause"].annotation))


def explain(error: ServerError, running: RunningServer | None) -> Failure:
    """Why a request failed, by what the server's process and log say of it."""
    if error.cause == "SERVER_DIED" and running is not None and running.dies_at_once():
        error = running.death("answering a request")
    tail = error.log_tail or (running.log_tail() if running is not None else ())
    cause = error.cause if error.cause in _CAUSES else "SERVER_ERROR"
    told = findings_of(running).reasons if running is not None else ()
    if cause in ("SERVER_DIED", "SERVER_ERROR", "STALLED") and told:
        cause = told[0]
    return Failure.model_validate({"cause": cause, "message": str(error), "log_tail": tail})


def log_event(session: Session) -> Event | None:
    """The log's account for the record, with the KV cache's theory beside its measured size.

    `None` for a server we did not start: its log is not ours to read.
    """
    if session.running is None:
        return None
    found = findings_of(session.running)
    data: dict[str, Any] = {
        "devices": [d.name for d in found.devices],
        "on_gpu": found.on_gpu,
        "unknown_buffers": list(found.unknown_buffers),
        "offloaded_layers": found.offloaded,
        "flash_attention": found.flash_attention,
        "kv_types": found.kv_types,
        "settings": found.settings,
        "buffers": [
            {"device": b.device, "use": b.use, "bytes": b.total_bytes} for b in found.buffers
        ],
        "findings": [
            {"code": f.code, "reason": f.reason, "count": f.count, "example": f.example}
            for f in found.findings
        ],
        "warnings": [w.text for w in found.warnings],
        "weight_bytes_per_token": _weights_read(session),
        "kv": _kv(session, found),
    }
    return Event(code="server_log", message="what the server's log says", data=data)


def _weights_read(session: Session) -> int | None:
    """Bytes of weights that one token goes through: all, less the experts it doesn't visit."""
    gguf = session.gguf
    if gguf is None or not gguf.tensor_bytes or not gguf.parameters:
        return None
    active = active_parameters(gguf.metadata, gguf.parameters)
    return round(gguf.tensor_bytes * active / gguf.parameters)


def _kv(session: Session, found: LogFindings) -> dict[str, Any] | None:
    """KV cache in bytes: by theory, as the log states it, and per token."""
    n_ctx, gguf = session.identity.n_ctx, session.gguf
    if gguf is None or n_ctx is None:
        return None
    cache = cache_settings(session.identity.argv)
    slots = 1 if cache.kv_unified else cache.n_parallel
    theory = kv_theory(gguf.metadata, n_ctx * slots, cache)
    return {
        "theory_bytes": theory.total_bytes,
        "bytes_per_token": theory.bytes_per_token,
        "fixed_bytes": theory.fixed_bytes,
        "could_not_derive": list(theory.could_not_derive),
        "measured_bytes": found.total_bytes("KV"),
    }

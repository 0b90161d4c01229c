"""A run record made of llama-bench's rows: they stand at the rungs of a run they were made like.

Such a record says that it is imported, and its label keeps it apart: llama-bench works without a
server, so its numbers belong neither into a server's history nor under a server's baseline.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime

from harness import __version__
from harness.errors import StoreError
from harness.records.lines import (
    IMPORTED,
    Event,
    Footer,
    Generation,
    Header,
    Prefill,
    Rung,
    RunRecord,
)
from harness.report.exports.llama_bench import MEASURED_BY, Row, matched

LABEL = "llama-bench"


def record_of(rows: Sequence[Row], like: RunRecord, source: str, now: datetime) -> RunRecord:
    """Rows as a run of their own; `source` is the name of their file.

    Its id is made of the time of the first row and of the rows, so that a file that is imported
    twice gets the same one. Machine, model and configuration are `like`'s.

    Raises:
        StoreError: none of the rows measured what a rung of `like` did.
    """
    found, left_out = matched(rows, like)
    if not found:
        raise StoreError(f"nothing in {source} fits: {left_out[0]}")
    rungs = tuple(_rung(like, depth, some) for depth, some in found.items())
    started = _time(rows[0].test_time) or now
    digest = hashlib.sha256("".join(row.model_dump_json() for row in rows).encode())
    data = {"tool": "llama-bench", "source": source, "left_out": list(left_out)}
    return RunRecord(
        header=_header(
            rows[0],
            like,
            rungs,
            run_id=f"{started:%Y%m%d-%H%M%S}-{digest.hexdigest()[:6]}",
            started_at=started.isoformat(timespec="seconds"),
            generate_tokens=max(row.n_gen for some in found.values() for row in some),
        ),
        rungs=rungs,
        events=(Event(code=IMPORTED, message=f"imported from {source}", data=data),),
        footer=Footer(
            ended_at=now.isoformat(timespec="seconds"),
            complete=True,
            prefilled_tokens=None,
            elapsed_s=sum(rung.elapsed_s for rung in rungs),
        ),
    )


def _header(
    row: Row,
    like: RunRecord,
    rungs: Sequence[Rung],
    *,
    run_id: str,
    started_at: str,
    generate_tokens: int,
) -> Header:
    then = like.header
    machine = {
        "cpu": row.cpu_info or then.machine.cpu,
        "gpus": tuple(row.gpu_info.split(", ")) if row.gpu_info else then.machine.gpus,
    }
    kept_apart = then.label if like.imported else ", ".join(filter(None, (then.label, LABEL)))
    return then.model_copy(
        update={
            "run_id": run_id,
            "started_at": started_at,
            "harness_version": __version__,
            "label": kept_apart,
            "machine": then.machine.model_copy(update=machine),
            "plan": then.plan.model_copy(
                update={
                    "depths": tuple(rung.depth for rung in rungs),
                    "document_tokens": tuple(rung.document_tokens for rung in rungs),
                    "generate_tokens": generate_tokens,
                    "cold_repeats": {},
                }
            ),
            "server": then.server.model_copy(
                update={
                    "origin": "binary",
                    "build": row.build,
                    "argv": (),
                    "noted": {"measured_by": MEASURED_BY, "threads": row.n_threads or None},
                }
            ),
        }
    )


def _rung(like: RunRecord, depth: int, rows: Sequence[Row]) -> Rung:
    measured = like.rung(depth)
    assert measured is not None
    prefills = tuple(p for row in rows if row.n_prompt for p in _prefills(row))
    generations = tuple(g for row in rows if row.n_gen for g in _generations(row))
    return Rung(
        depth=depth,
        document_tokens=measured.document_tokens,
        prefills=prefills,
        generations=generations,
        elapsed_s=(sum(p.wall_ms for p in prefills) + sum(g.wall_ms for g in generations)) / 1e3,
    )


def _prefills(row: Row) -> Iterator[Prefill]:
    for rate in row.rates_tok_s:
        ms = row.n_prompt / rate * 1e3
        yield Prefill(
            kind="climb",
            new_tokens=row.n_prompt,
            cached_tokens=row.n_depth,
            planned_cached_tokens=row.n_depth,
            server_ms=ms,
            wall_ms=ms,
        )


def _generations(row: Row) -> Iterator[Generation]:
    for rate in row.rates_tok_s:
        ms = row.n_gen / rate * 1e3
        yield Generation(
            predicted_tokens=row.n_gen,
            server_ms=ms,
            wall_ms=ms,
            ttft_ms=None,
            new_tokens=None,
            cached_tokens=None,
        )


def _time(text: str) -> datetime | None:
    """When a row was measured; `None` where it does not say so in ISO 8601."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if when.tzinfo is not None else when.astimezone()

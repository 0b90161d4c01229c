"""llama-bench's JSON and JSONL, written from a run and read back.

A rung becomes two rows, named as llama-bench would: the prefill of its own new tokens
(`n_prompt` tokens at `n_depth`, where the rung below ended) and the generation at its depth.
llama-bench bypasses the server, so numbers of the two tools differ by nature: an imported row is
marked as such, and is compared only if somebody asks for it.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import fmean, stdev
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.errors import StoreError
from harness.records.baseline import AcceptedRun, Key
from harness.records.lines import Generation, Header, Prefill, Rung, RunRecord
from harness.records.samples import Samples, generation_rate, prefill_rate

MEASURED_BY = "llama-bench, without a server"
_BUILD = re.compile(r"b(?P<number>\d+)(?:-(?P<commit>[0-9a-f]{6,40})\b)?")

SPAN_TOLERANCE = 0.05
"""Depths of an imported row and of a run count as the same within this share."""


class Row(BaseModel):
    """One row; what we do not know is empty or 0, as llama-bench itself writes it.

    Unknown fields are kept out, so that rows of older and newer builds can be read. Written are
    those of both: `load_mode` has taken the place of `use_mmap`.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    build_commit: str = "unknown"
    build_number: int = 0
    cpu_info: str = ""
    gpu_info: str = ""
    backends: str = ""
    model_filename: str = ""
    model_type: str = ""
    model_size: int = 0
    model_n_params: int = 0
    n_batch: int = 0
    n_ubatch: int = 0
    n_threads: int = 0
    cpu_mask: str = "0x0"
    cpu_strict: bool = False
    poll: int = 50
    type_k: str = "f16"
    type_v: str = "f16"
    n_gpu_layers: int = 0
    n_cpu_moe: int = 0
    split_mode: str = "layer"
    main_gpu: int = 0
    no_kv_offload: bool = False
    flash_attn: bool | int | str = False
    devices: str = "auto"
    tensor_split: str = "0.00"
    tensor_buft_overrides: str = "none"
    load_mode: str = "auto"
    use_mmap: bool = True
    embeddings: bool = False
    no_op_offload: int = 0
    no_host: bool = False
    fit_target: int = 0
    fit_min_ctx: int = 0
    n_prompt: int
    n_gen: int
    n_depth: int = 0
    test_time: str = ""
    avg_ns: float = 0
    stddev_ns: float = 0
    avg_ts: float
    stddev_ts: float = 0
    samples_ns: tuple[float, ...] = ()
    samples_ts: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """As llama-bench names it: `pp512`, `tg128 @ d131072`."""
        test = f"pp{self.n_prompt}" if self.n_prompt else f"tg{self.n_gen}"
        if self.n_prompt and self.n_gen:
            test = f"pp{self.n_prompt}+tg{self.n_gen}"
        return f"{test} @ d{self.n_depth}" if self.n_depth else test

    @property
    def build(self) -> str:
        """As llama-server names it: `b11480-0a1b2c3d`; what is there, where not all is known."""
        if self.build_number == 0 or self.build_commit.startswith(f"b{self.build_number}"):
            return self.build_commit
        return f"b{self.build_number}-{self.build_commit}"

    @property
    def rates_tok_s(self) -> tuple[float, ...]:
        """Each sample's tokens per second; the mean alone in rows without samples."""
        return tuple(r for r in (self.samples_ts or (self.avg_ts,)) if math.isfinite(r) and r > 0)


_ROWS = TypeAdapter(list[Row])


class Imported(BaseModel):
    """Rows as samples of a run's rungs, and what was left out and why."""

    model_config = ConfigDict(frozen=True)

    cells: dict[int, Samples]
    left_out: tuple[str, ...] = Field(default=())


# -- writing --------------------------------------------------------------------------------

_SETTINGS = ("n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers", "flash_attn")


def unknown(rows: Iterable[Row]) -> list[str]:
    """Settings that some row does not know and that are written as llama-bench's own default."""
    return [name for name in _SETTINGS if any(name not in row.model_fields_set for row in rows)]


def rows_of(record: RunRecord) -> list[Row]:
    """A run's rows, by depth; undisturbed samples only, a rung without any is left out."""
    known = _known(record.header)
    rows: list[Row] = []
    for rung in record.rungs:
        clean = [p for p in rung.prefills if p.contention is None and p.kind != "cold_repeat"]
        if prefill := _prefill_row(known, clean):
            rows.append(prefill)
        generated = [g for g in rung.generations if g.contention is None]
        if generation := _generation_row(known, rung, generated):
            rows.append(generation)
    return rows


def as_json(rows: Iterable[Row]) -> str:
    """A JSON array, one row a line."""
    return "[\n" + ",\n".join(_dumped(row) for row in rows) + "\n]\n"


def as_jsonl(rows: Iterable[Row]) -> str:
    """One JSON object a line."""
    return "".join(_dumped(row) + "\n" for row in rows)


def _dumped(row: Row) -> str:
    return json.dumps(row.model_dump(), ensure_ascii=False, allow_nan=False)


def _known(header: Header) -> dict[str, Any]:
    key, noted = header.server.key, header.server.noted
    build = _BUILD.search(header.server.build)
    facts: dict[str, Any] = {
        "build_commit": (build and build["commit"]) or header.server.build or "unknown",
        "build_number": int(build["number"]) if build else 0,
        "cpu_info": header.machine.cpu,
        "gpu_info": ", ".join(header.machine.gpus),
        "backends": "server",
        "model_filename": header.model.name,
        "model_type": " ".join(
            x for x in (header.model.architecture or header.model.name, header.model.file_type) if x
        ),
        "model_n_params": header.model.parameters or 0,
        "test_time": header.started_at,
    }
    for field, name in (
        ("n_batch", "batch"),
        ("n_ubatch", "ubatch"),
        ("type_k", "cache_type_k"),
        ("type_v", "cache_type_v"),
        ("n_threads", "threads"),
        ("n_gpu_layers", "gpu_layers"),
    ):
        value = key.get(name, noted.get(name))
        if value is None:
            continue
        if field.startswith("n_"):
            if str(value).lstrip("-").isdigit():
                facts[field] = int(value)
        else:
            facts[field] = str(value)
    return facts


def _prefill_row(known: Mapping[str, Any], prefills: Sequence[Prefill]) -> Row | None:
    if not prefills:
        return None
    start = prefills[-1].planned_cached_tokens
    same = [
        (rate, p)
        for p in prefills
        if p.planned_cached_tokens == start and (rate := prefill_rate(p))
    ]
    if not same:
        return None
    return _row(
        known,
        [rate for rate, _ in same],
        [(p.server_ms or p.wall_ms) * 1e6 for _, p in same],
        n_prompt=same[-1][1].new_tokens,
        n_depth=start,
    )


def _generation_row(
    known: Mapping[str, Any], rung: Rung, generations: Sequence[Generation]
) -> Row | None:
    rated = [(rate, g) for g in generations if (rate := generation_rate(g))]
    if not rated:
        return None
    return _row(
        known,
        [rate for rate, _ in rated],
        [g.predicted_tokens / rate * 1e9 for rate, g in rated],
        n_gen=rated[-1][1].predicted_tokens,
        n_depth=rung.document_tokens,
    )


def _row(
    known: Mapping[str, Any],
    rates: Sequence[float],
    ns: Sequence[float],
    *,
    n_depth: int,
    n_prompt: int = 0,
    n_gen: int = 0,
) -> Row:
    return Row(
        **known,
        n_prompt=n_prompt,
        n_gen=n_gen,
        n_depth=n_depth,
        avg_ns=round(fmean(ns)),
        stddev_ns=round(stdev(ns)) if len(ns) > 1 else 0,
        avg_ts=fmean(rates),
        stddev_ts=stdev(rates) if len(rates) > 1 else 0.0,
        samples_ns=tuple(round(n) for n in ns),
        samples_ts=tuple(rates),
    )


# -- reading --------------------------------------------------------------------------------


def parse(text: str, name: str) -> list[Row]:
    """Rows of a JSON array or of JSON lines.

    Raises:
        StoreError: `name` holds neither, or a row lacks `n_prompt`, `n_gen` or `avg_ts`.
    """
    try:
        if text.lstrip().startswith("["):
            rows = _ROWS.validate_json(text)
        else:
            rows = [Row.model_validate_json(line) for line in text.splitlines() if line.strip()]
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(p) for p in fault["loc"])
        raise StoreError(
            f"{name} is not llama-bench output ({where + ': ' if where else ''}{fault['msg']}); "
            "make it with llama-bench -o json or -o jsonl"
        ) from error
    if not rows:
        raise StoreError(f"{name} holds no rows; make it with llama-bench -o json")
    return rows


def matched(rows: Iterable[Row], like: RunRecord) -> tuple[dict[int, list[Row]], tuple[str, ...]]:
    """Rows by the depth of the rung of a run that measured the same, and why the rest has none.

    Generation must stand at the rung's depth, a prefill must have read the rung's own stretch:
    `pp512` alone says nothing of a rung that reads from 2K to 8K.
    """
    rungs = {rung.depth: rung for rung in like.rungs}
    found: dict[int, list[Row]] = {}
    left: list[str] = []
    for row in rows:
        match = next((d for d, rung in rungs.items() if _fits(row, rung)), None)
        if match is None or not row.rates_tok_s:
            left.append(
                f"{row.name}: no rung of {like.header.run_id} measured the same "
                f"(rungs end at {', '.join(f'{r.document_tokens}' for r in rungs.values())} tokens)"
            )
            continue
        found.setdefault(match, []).append(row)
    return dict(sorted(found.items())), tuple(left)


def cells_for(rows: Iterable[Row], like: RunRecord) -> Imported:
    """Rows as samples of the rungs of a run, where they measured the same (see `matched`)."""
    found, left_out = matched(rows, like)
    cells: dict[int, Samples] = {}
    for depth, some in found.items():
        cells[depth] = Samples(
            prefill_tok_s=tuple(r for row in some if row.n_prompt for r in row.rates_tok_s),
            generation_tok_s=tuple(r for row in some if row.n_gen for r in row.rates_tok_s),
        )
    return Imported(cells=cells, left_out=left_out)


def accepted_rows(
    rows: Sequence[Row], like: RunRecord, source: str, now: datetime
) -> tuple[AcceptedRun, Imported]:
    """Rows as one accepted run of the baseline of `like`'s key.

    Raises:
        StoreError: none of the rows measured what a rung of `like` did.
    """
    imported = cells_for(rows, like)
    if not imported.cells:
        raise StoreError(f"nothing in {source} fits: {imported.left_out[0]}")
    first = rows[0]
    run = AcceptedRun(
        run_id=f"llama-bench:{source}",
        started_at=first.test_time or now.isoformat(timespec="seconds"),
        accepted_at=now.isoformat(timespec="seconds"),
        build=first.build,
        os=like.header.machine.os,
        driver=None,
        noted={"measured_by": MEASURED_BY},
        reason=f"imported from {source}",
        cells=imported.cells,
    )
    return run, imported


def disagreements(rows: Sequence[Row], key: Key) -> list[str]:
    """What the rows say of their configuration that a key says otherwise."""
    pairs = (
        ("cache_type_k", "type_k"),
        ("cache_type_v", "type_v"),
        ("ubatch", "n_ubatch"),
        ("batch", "n_batch"),
    )
    found: dict[str, None] = {}
    for row in rows:
        for name, field in pairs:
            ours, theirs = key.config.get(name), getattr(row, field)
            if ours is not None and theirs and str(ours) != str(theirs):
                found[f"{name} is {theirs} in the file and {ours} in the run"] = None
    return list(found)


def _fits(row: Row, rung: Rung) -> bool:
    if bool(row.n_prompt) == bool(row.n_gen):
        return False
    if row.n_gen:
        return _near(row.n_depth, rung.document_tokens)
    climbs = [p for p in rung.prefills if p.kind != "cold_repeat"]
    if not climbs:
        return False
    start = climbs[-1].planned_cached_tokens
    span = rung.document_tokens - start
    return (
        abs(row.n_depth - start) <= SPAN_TOLERANCE * span
        and abs(row.n_depth + row.n_prompt - rung.document_tokens) <= SPAN_TOLERANCE * span
    )


def _near(a: int, b: int) -> bool:
    return abs(a - b) <= SPAN_TOLERANCE * max(a, b, 1)

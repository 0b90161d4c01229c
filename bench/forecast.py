"""Forecasts against truth, from records: would today's code have told how long the run took?

    python -m bench.forecast                    # the runs kept in tests/data/records
    python -m bench.forecast results/*.jsonl

For each rung of each run: the time from the end of the first control and cold readings until the
rung was measured, the forecast that the record kept (as the code of its day made it), and what
today's code says of the same readings. Where the run was made without the probe that is read today,
the climb's own first batches, up to as deep as a probe goes, stand in for it (`*`).
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.recorded import H200, records
from harness.llamacpp.cost import Estimate, fit
from harness.llamacpp.forecast import REST_MS, Answering, forecast, rung_works
from harness.measuring.budget import PROBE_DEEPER, probe_tokens
from harness.records.lines import Chunk, Generation, Prefill, RunRecord

MAX_REPEATS = 18


@dataclass(frozen=True, slots=True)
class Row:
    """One rung: seconds it really took, the forecast on record and today's, milliseconds."""

    run: str
    depth: int
    real_s: float
    recorded: Estimate | None
    today: Estimate | None
    stand_in: bool

    @staticmethod
    def holds(estimate: Estimate | None, real_s: float) -> bool | None:
        """Whether the interval contains what came."""
        if estimate is None:
            return None
        return estimate.low_ms <= real_s * 1e3 <= estimate.high_ms


def rows_of(record: RunRecord, run: str) -> list[Row]:
    """The rungs of a run that ended by itself; empty where there is no control or climb."""
    climbs = {
        rung.depth: prefill
        for rung in record.rungs
        for prefill in rung.prefills
        if prefill.kind == "climb" and prefill.start_s is not None
    }
    if not climbs or not record.controls or record.sittings > 1:
        return []
    first_s = min(_start_s(prefill) for prefill in climbs.values())
    cold = [
        prefill
        for prefill in _distinct(record)
        if prefill.kind == "cold_repeat" and (prefill.end_s or 0.0) <= first_s
    ]
    begun_s = first_s  # the forecast is made as the climb begins
    took = _took(record, climbs, begun_s)
    depths = sorted(took)
    if not depths:
        return []
    known = {int(depth): Estimate(*ms) for depth, ms in _recorded(record).items()}
    today, stand_in = _today(record, depths, cold, climbs)
    return [
        Row(run, depth, took[depth], known.get(depth), today.get(depth), stand_in)
        for depth in depths
    ]


def _recorded(record: RunRecord) -> dict[str, tuple[float, float, float]]:
    return dict(record.event_data("forecast").get("rungs", {}))


def _took(record: RunRecord, climbs: dict[int, Prefill], begun_s: float) -> dict[int, float]:
    """Seconds until each rung was measured: the next one begins, or its last request ends."""
    order = sorted(climbs)
    ends = {a: _start_s(climbs[b]) for a, b in itertools.pairwise(order)}
    last = record.rung(order[-1])
    if last is not None and last.failure is None:
        samples = (*last.asks, *last.generations, *last.prefills)
        ends[order[-1]] = max(s.end_s or 0.0 for s in samples) + REST_MS / 1e3
    return {depth: end - begun_s for depth, end in ends.items()}


def _today(
    record: RunRecord, depths: list[int], cold: list[Prefill], climbs: dict[int, Prefill]
) -> tuple[dict[int, Estimate], bool]:
    plan = record.header.plan
    generations = [g for g in record.controls[0].generations if g.server_ms]
    token_ms = statistics.median(
        g.server_ms / g.predicted_tokens for g in generations if g.server_ms
    )
    chunks = [chunk for prefill in cold for chunk in prefill.chunks]
    seen = max((c.end_tokens for c in chunks), default=0)
    control = record.controls[0].prefills[0]
    tok_s = control.new_tokens / (control.server_ms or control.wall_ms) * 1e3
    wanted = probe_tokens(
        tok_s, plan.document_tokens[-1], limit_s=None, guess_s=plan.ctx_tokens / tok_s
    )
    answering, stand_in = Answering(token_ms), False
    if wanted >= PROBE_DEEPER * seen and wanted >= 1024:
        stand_in = True
        chunks += _climb_to(climbs, wanted)
        answering = _answering(record, token_ms, wanted)
    model = fit(chunks)
    if model is None:
        return {}, stand_in
    works = rung_works(
        plan.depths,
        plan.document_tokens,
        repeats=plan.repeats,
        max_repeats=MAX_REPEATS,
        generate_tokens=plan.generate_tokens,
        again=True,
    )
    ahead = forecast(model, [w for w in works if w.depth in depths], answering=answering)
    return {rung.depth: rung.until for rung in ahead}, stand_in


def _climb_to(climbs: dict[int, Prefill], tokens: int) -> list[Chunk]:
    every = (chunk for prefill in climbs.values() for chunk in prefill.chunks)
    return [chunk for chunk in every if chunk.end_tokens <= tokens]


def _answering(record: RunRecord, token_ms: float, tokens: int) -> Answering:
    """Generation behind a probe of `tokens`, between the rungs around it."""
    known = [(0.0, token_ms)]
    for rung in sorted(record.rungs, key=lambda rung: rung.depth):
        if rate := _token_ms(rung.generations):
            known.append((float(rung.document_tokens), rate))
    for (x0, y0), (x1, y1) in itertools.pairwise(known):
        if x0 <= tokens <= x1:
            return Answering(token_ms, tokens, y0 + (y1 - y0) * (tokens - x0) / (x1 - x0))
    return Answering(token_ms)


def _token_ms(generations: Sequence[Generation]) -> float | None:
    rates = [g.server_ms / g.predicted_tokens for g in generations if g.server_ms]
    return statistics.median(rates) if rates else None


def _distinct(record: RunRecord) -> list[Prefill]:
    found = {p.start_s: p for rung in record.rungs for p in rung.prefills if p.start_s is not None}
    return [found[start_s] for start_s in sorted(found)]


def _start_s(prefill: Prefill) -> float:
    return prefill.start_s or 0.0


def _cell(estimate: Estimate | None, real_s: float) -> str:
    if estimate is None:
        return f"{'-':>32}"
    word = "in" if Row.holds(estimate, real_s) else "OUT"
    span = f"{estimate.ms / 1e3:.1f} ({estimate.low_ms / 1e3:.1f}-{estimate.high_ms / 1e3:.1f})"
    return f"{span:>28} {word:<3}"


def _share(held: Sequence[bool | None]) -> str:
    known = [one for one in held if one is not None]
    return f"{sum(known)} of {len(known)}" if known else "none"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument(
        "records", type=Path, nargs="*", default=[H200], help=f"files, folders, archives ({H200})"
    )
    args = p.parse_args()
    rows = [row for name, record in records(args.records) for row in rows_of(record, name)]
    if not rows:
        sys.exit("no climb with a control in these records")
    print(f"{'run':<26} {'rung':>8} {'real s':>8} {'on record':>32} {'today':>32}")
    for row in rows:
        print(
            f"{row.run[:26]:<26} {row.depth:>8} {row.real_s:>8.1f} "
            f"{_cell(row.recorded, row.real_s)} {_cell(row.today, row.real_s)}"
            f"{'*' if row.stand_in else ''}"
        )
    recorded = _share([Row.holds(row.recorded, row.real_s) for row in rows])
    today = _share([Row.holds(row.today, row.real_s) for row in rows])
    print(f"inside the 90 % interval: on record {recorded}, today {today} rungs")


if __name__ == "__main__":
    main()

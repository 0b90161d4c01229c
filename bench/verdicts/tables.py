"""The operating curve as Markdown tables with its targets, and their place in the documentation."""

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from bench.verdicts.simulate import Tally, judged_runs
from bench.verdicts.world import World

EFFECTS = (0.0, 0.05, -0.05, -0.08, -0.12, -0.15, -0.20, -0.30)
NOISES = (0.01, 0.03, 0.05, 0.08)
RIGHT = (0.5, 0.6, 0.8, 0.9, 0.95, 1.0)
BEGIN, END = "<!-- begin: python -m bench.verdicts -->", "<!-- end: python -m bench.verdicts -->"

SCENES: tuple[tuple[str, World], ...] = (
    ("runs differ by 1.5 %", World()),
    ("runs differ by 3 %", World(run=0.03)),
    (
        "two states: half of the runs at ×0.85, the machine's pace on record",
        World(run=0.01, slow_runs=0.5),
    ),
    ("every 6th batch twice as slow, then and now", World(stall_every=6)),
    ("5 % of repeats and batches 20 to 50 % slow, then and now", World(outliers=0.05)),
    (
        "throttling to ×0.8 for a part of the run, the machine's pace on record",
        World(throttle=0.8),
    ),
    ("noise drawn from traces of a virtual machine's CPU", World(trace="amd-epyc-2c-vm")),
    ("noise drawn from traces of a GPU", World(trace="h200")),
)
UNTOLD: tuple[tuple[str, World], ...] = (
    ("two states that nothing on record shows", World(run=0.01, slow_runs=0.5, told=False)),
    ("throttling that nothing on record shows", World(throttle=0.8, told=False)),
)
"""What cannot be told from a change within one run: counted, and no target held against it."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many runs an entry is counted from: unchanged, changed, and changed with a target."""

    unchanged: int
    changed: int
    held: int

    def of(self, noise: float, effect: float, *, power: bool) -> int:
        """For one entry; a share of 1 % is not told from a few dozen runs."""
        if not effect:
            return self.unchanged
        held = effect == -0.15 and noise <= 0.05
        return self.held if held or (power and effect == -0.2 and noise <= 0.03) else self.changed


FULL = Size(unchanged=150, changed=30, held=200)
AGAIN = 4
Place = tuple[float, float]
"""Noise and change of an entry, shares."""
QUICK = Size(unchanged=12, changed=4, held=4)


@dataclass(frozen=True, slots=True)
class Job:
    """One entry: a world, a change, and how many runs."""

    world: World
    effect: float
    runs: int
    retrieval: bool = False
    right_now: float | None = None

    def run(self) -> Tally:
        """Judge its runs, seeded by what it is."""
        kinds = ("score",) if self.retrieval else ("speed", "latency")
        seed = zlib.crc32(repr(self).encode())
        return judged_runs(
            self.world, self.effect, runs=self.runs, seed=seed, kinds=kinds,
            right_now=self.right_now,
        )  # fmt: skip


def run_all(jobs: Sequence[Job], processes: int) -> list[Tally]:
    """Run the jobs, over several processes when asked; in order."""
    if processes <= 1:
        return [job.run() for job in jobs]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(Job.run, jobs))


def scene(
    what: str, world: World, size: Size, processes: int, *, held: bool = True
) -> tuple[str, list[str]]:
    """One scene's table, and the targets it misses, a sentence each.

    The first scene is counted at every change; the others at those that targets are about. An entry
    that seems to miss a target is counted `AGAIN` times as long besides, and all of it decides: one
    in a hundred is not told from one in two hundred by 150 runs.
    """
    first = what == SCENES[0][0]
    effects = EFFECTS if first else (0.0, -0.08, -0.15, -0.20)
    jobs = [
        Job(replace(world, noise=noise), effect, size.of(noise, effect, power=first))
        for noise in NOISES
        for effect in effects
    ]
    found = _counted(jobs, processes)
    seem = {place for place, _ in _missed(what, found, power=first)} if held else set()
    more = [replace(j, runs=AGAIN * j.runs) for j in jobs if (j.world.noise, j.effect) in seem]
    for place, tally in _counted(more, processes).items():
        found[place].add(tally)
    rows = [
        [_percent(noise, 0), _alarms(found[noise, 0.0]),
         *(_three(found[noise, effect]) for effect in effects)]
        for noise in NOISES
    ]  # fmt: skip
    missed = [said for _, said in _missed(what, found, power=first)] if held else []
    head = ["noise", "unchanged runs with any REGRESSED", *(_signed(e) for e in effects)]
    return f"### {what[0].upper()}{what[1:]}\n\n{_table(head, rows)}", missed


def retrieval(size: Size, processes: int) -> tuple[str, list[str]]:
    """Right answers: unchanged models of any quality, and one that lost half of what it had."""
    worlds = [World(right=p, clustered=clustered) for clustered in (False, True) for p in RIGHT]
    same = run_all([Job(w, 0.0, size.unchanged, True) for w in worlds], processes)
    lost = run_all([Job(w, 0.0, size.changed, True, w.right / 2.0) for w in worlds], processes)
    rows, missed = [], []
    for world, then, now in zip(worlds, same, lost, strict=True):
        orders = "alike" if world.clustered else "each by itself"
        rows.append([f"{world.right:.2f}", orders, _alarms(then), _three(then), _three(now)])
        if then.alarm_share > 0.01:
            missed.append(f"retrieval, p {world.right}, {orders}: {_alarms(then)} with REGRESSED")
    head = ["needles right", "orders answer", "unchanged runs with any REGRESSED", "0 %",
            "half of them lost"]  # fmt: skip
    return f"### Right answers, two rungs of five needles\n\n{_table(head, rows)}", missed


def _counted(jobs: Sequence[Job], processes: int) -> dict[Place, Tally]:
    places = [(job.world.noise, job.effect) for job in jobs]
    return dict(zip(places, run_all(jobs, processes), strict=True))


def _missed(what: str, found: dict[Place, Tally], *, power: bool) -> Iterator[tuple[Place, str]]:
    """The targets that a scene misses: false alarms and false PASS in all, power in the first."""
    for place, tally in found.items():
        noise, effect = place
        where = f"{what}, {noise:.0%} noise"
        if effect == 0.0 and tally.alarm_share > 0.01:
            yield place, f"{where}: {_alarms(tally)} unchanged runs with a REGRESSED (target 1 %)"
        if effect == -0.15 and noise <= 0.05 and tally.share("PASS") > 0.01:
            yield (
                place,
                f"{where}: −15 % is PASS in {tally.share('PASS'):.1%} of cells (target 1 %)",
            )
        if not power or noise > 0.03:
            continue
        if effect == -0.20 and tally.share("REGRESSED") < 0.99:
            yield place, f"{where}: −20 % REGRESSED in {tally.share('REGRESSED'):.1%} (target 99 %)"
        if effect == 0.0 and tally.share("INCONCLUSIVE") > 0.05:
            yield place, f"{where}: {tally.share('INCONCLUSIVE'):.1%} INCONCLUSIVE (target 5 %)"


def write_between(path: Path, text: str) -> None:
    """Put `text` between the markers of the document at `path`."""
    document = path.read_text(encoding="utf-8")
    before, rest = document.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8", newline="\n")


def _table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def _three(tally: Tally) -> str:
    shares = (tally.share(o) * 100.0 for o in ("REGRESSED", "PASS", "INCONCLUSIVE"))
    return " / ".join(f"{share:.1f}".removesuffix(".0") for share in shares)


def _alarms(tally: Tally) -> str:
    return f"{tally.alarms} of {tally.runs} (< {tally.at_most:.1%})"


def _percent(share: float, digits: int = 1) -> str:
    return f"{share * 100.0:.{digits}f} %"


def _signed(effect: float) -> str:
    return f"{effect * 100.0:+.0f} %".replace("-", "−") if effect else "0 %"

"""The operating curve as Markdown tables, and their place in the documentation."""

import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.verdicts.noise import Scenario
from bench.verdicts.simulate import (
    Design,
    Tally,
    best_possible_power,
    curve_cells,
    samples_cells,
    whole_runs,
)

EFFECTS = (0.0, -0.05, -0.08, -0.10, -0.12, -0.15, -0.20, -0.30)
NOISES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08)
BEGIN, END = "<!-- begin: python -m bench.verdicts -->", "<!-- end: python -m bench.verdicts -->"


@dataclass(frozen=True, slots=True)
class Size:
    """How many cells each entry is counted from: without a change, with one, whole runs."""

    unchanged: int
    changed: int
    promise: int
    runs: int


FULL = Size(unchanged=4000, changed=500, promise=20000, runs=1000)
QUICK = Size(unchanged=40, changed=20, promise=100, runs=20)


@dataclass(frozen=True, slots=True)
class Job:
    """One simulation: a function of this package and its arguments."""

    function: Callable[..., Tally]
    arguments: tuple[object, ...]
    options: tuple[tuple[str, object], ...]

    def run(self) -> Tally:
        """Run it, seeded by what it is."""
        key = f"{self.function.__name__} {self.arguments} {self.options}"
        seed = zlib.crc32(key.encode())
        return self.function(*self.arguments, **dict(self.options), seed=seed)


def job(function: Callable[..., Tally], *arguments: object, **options: object) -> Job:
    """A `Job` written like a call."""
    return Job(function, arguments, tuple(sorted(options.items())))


def run_all(jobs: Iterable[Job], processes: int) -> list[Tally]:
    """Run the jobs in order, over several processes when asked."""
    if processes <= 1:
        return [one.run() for one in jobs]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(Job.run, jobs))


def samples_table(scenario: Scenario, design: Design, size: Size, processes: int) -> str:
    """REGRESSED by noise and true change, measuring again while undecided."""
    jobs = [
        job(
            samples_cells,
            scenario,
            sd,
            effect,
            design,
            cells=size.changed if effect else size.unchanged,
        )
        for sd in NOISES
        for effect in EFFECTS
    ]
    found = run_all(jobs, processes)
    tallies = [found[i : i + len(EFFECTS)] for i in range(0, len(found), len(EFFECTS))]
    extra = ["drift named"] if scenario.drift else []
    at_15 = EFFECTS.index(-0.15)
    head = ["noise", "PASS at 0 %", *extra, "0 %", *(_minus(e) for e in EFFECTS[1:]), "repeats"]
    rows = [
        [
            _percent(sd, 0),
            _percent(row[0].share("PASS")),
            *([_percent(row[0].share("DRIFT"))] if scenario.drift else []),
            _count(row[0]),
            *(_percent(t.share("REGRESSED")) for t in row[1:]),
            f"{row[at_15].mean_repeats:.1f}",
        ]
        for sd, row in zip(NOISES, tallies, strict=True)
    ]
    return _table(head, rows)


def curve_table(
    scenario: Scenario, batches: int, from_share: float, size: Size, processes: int
) -> str:
    """REGRESSED of one prefill curve, slower from a share of its length on."""
    jobs = [
        job(
            curve_cells,
            scenario,
            sd,
            effect,
            batches=batches,
            from_share=from_share,
            cells=size.changed // 5 * 2 if effect else size.unchanged // 8,
        )
        for sd in NOISES
        for effect in EFFECTS
    ]
    found = run_all(jobs, processes)
    tallies = [found[i : i + len(EFFECTS)] for i in range(0, len(found), len(EFFECTS))]
    at_20 = EFFECTS.index(-0.20)
    head = ["noise", "PASS at 0 %", "0 %", *(_minus(e) for e in EFFECTS[1:]), "placed at −20 %"]
    rows = [
        [
            _percent(sd, 0),
            _percent(row[0].share("PASS")),
            _count(row[0]),
            *(_percent(t.share("REGRESSED")) for t in row[1:]),
            _percent(row[at_20].share("located")),
        ]
        for sd, row in zip(NOISES, tallies, strict=True)
    ]
    return _table(head, rows)


def promise_table(scenarios: dict[str, Scenario], size: Size, processes: int) -> str:
    """What is promised at 3 % noise and a baseline of 6 samples, and what was counted."""
    calm = (0.01, 0.02, 0.03)
    three = Design(repeats=3, repeats_max=3)
    rows: list[list[str]] = []

    def add(what: str, jobs: list[Job], say: Callable[[Tally], str]) -> None:
        rows.append([what, *(say(t) for t in run_all(jobs, processes))])

    for name in ("independent", "plain", "correlated", "outliers", "drift"):
        add(
            f"false REGRESSED at 0 %, {name}",
            [
                job(samples_cells, scenarios[name], sd, 0.0, Design(), cells=size.promise)
                for sd in calm
            ],
            lambda t: f"{_count(t)} (< {t.at_most('REGRESSED'):.2%})",
        )
    add(
        "steady machine taken for a drifting one, plain",
        [job(samples_cells, scenarios["plain"], sd, 0.0, three, cells=size.promise) for sd in calm],
        lambda t: _percent(t.share("DRIFT")),
    )
    few = size.promise // 5
    for name in ("independent", "plain"):
        add(
            f"REGRESSED at −20 %, 3 repeats, {name}",
            [job(samples_cells, scenarios[name], sd, -0.2, three, cells=few) for sd in calm],
            lambda t: _percent(t.seen),
        )
    for runs, repeats in ((2, 3), (4, 3), (6, 6)):
        for name in ("independent", "plain"):
            design = Design(baseline_runs=runs, baseline_repeats=repeats)
            add(
                f"REGRESSED at −15 %, up to 12 repeats, baseline {runs} runs × {repeats}, {name} "
                "(mean repeats)",
                [job(samples_cells, scenarios[name], sd, -0.15, design, cells=few) for sd in calm],
                lambda t: f"{_percent(t.seen)} ({t.mean_repeats:.1f})",
            )
    rows.append(
        [
            "the most any rule can reach at −15 %: spread known, 12 repeats against 6 samples",
            *(_percent(best_possible_power(sd, -0.15, 12, 6)) for sd in calm),
        ]
    )
    nothing = (0.0,) * 30
    one = (*(0.0,) * 29, -0.2)
    add(
        "runs of 30 unchanged cells with any REGRESSED, plain",
        [
            job(whole_runs, scenarios["plain"], sd, nothing, runs=size.runs, design=Design())
            for sd in calm
        ],
        _count,
    )
    add(
        "runs of 30 cells, one at −20 %, where 3 repeats name it, plain",
        [
            job(whole_runs, scenarios["plain"], sd, one, runs=size.runs, design=Design())
            for sd in calm
        ],
        lambda t: _percent(1.0 - t.share("missed")),
    )
    return _table(["", *(f"{_percent(sd, 0)} noise" for sd in calm)], rows)


def write_between(path: Path, text: str) -> None:
    """Put `text` between the markers of the document at `path`."""
    document = path.read_text(encoding="utf-8")
    before, rest = document.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8", newline="\n")


def _table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def _percent(share: float, digits: int = 1) -> str:
    return f"{share * 100.0:.{digits}f} %"


def _minus(effect: float) -> str:
    return f"−{-effect * 100.0:.0f} %"


def _count(tally: Tally) -> str:
    return f"{tally.decisions['REGRESSED']} of {tally.cells:,}"

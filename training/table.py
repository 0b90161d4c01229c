"""The model card's table, measured again: many servers side by side on a machine of many cores.

    python -m training.table --server xllamacpp=embedded b10434=LLAMA_SERVER --cores 24
    python -m training.table … --only 'plain-suite'      those jobs alone; --list names them all
    python -m training.evaluate --summary --results build/table

Every job is a `training.evaluate` or a `training.climb` of its own with its own server, results
file and log. A run that was cut off goes on where it was. Seeds differ from those of the defaults.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_FIRST_PORT = 21_000
_CLIMB_SEED, _DEEP_SEED, _SHORT_SEED = 61_000, 62_000, 91_000
_DEEP_TOKENS, _LONG_TOKENS = 131_072, 32_768


@dataclass(frozen=True, slots=True)
class Job:
    """One evaluation on one server: the program's own options, and how many threads it takes."""

    server: str
    module: str
    kv: str
    background: str
    what: str
    seed: int
    options: tuple[str, ...]
    threads: int = 2

    @property
    def name(self) -> str:
        """Also the name of its results file."""
        return f"{self.server}-{self.kv}-{self.background}-{self.what}-{self.seed}"

    def argv(self, program: str, port: int, results: Path, flags: Sequence[str]) -> list[str]:
        """The command line; `program` is `embedded` or a llama-server binary, `flags` its own."""
        return [
            *(sys.executable, "-m", f"training.{self.module}"),
            *("--server", program, "--name", self.server, "--port", str(port)),
            *("--kv", self.kv, "--background", self.background, "--seed", str(self.seed)),
            *("--threads", str(self.threads), "--results", str(results / f"{self.name}.jsonl")),
            *self.options,
            *(("--", *flags) if flags else ()),
        ]


@dataclass(frozen=True, slots=True)
class Cells:
    """What is measured of one background with one KV type.

    `short` is (style, TOKENS:COUNT, …); `long` and `deep` count documents of 32768 and 131072
    tokens, each asked four times a rung."""

    background: str
    kv: str
    short: tuple[tuple[str, ...], ...]
    long: int
    deep: int


_GAUGE = (
    ("suite", "1024:400", "2048:400"),
    ("suite", "4096:150", "8192:60"),
    ("grammar", "1024:200"),
    ("alike", "2048:60"),
    ("many", "4096:40"),
)
_REPORTED = (("suite", "2048:100", "8192:20"), ("grammar", "1024:60"))
TABLE: tuple[Cells, ...] = (
    Cells("plain", "q8_0", _GAUGE, long=10, deep=3),
    Cells("plain", "f16", _GAUGE, long=10, deep=3),
    Cells("hard", "f16", _REPORTED, long=2, deep=1),
    Cells("plain", "q4_0", _REPORTED, long=2, deep=1),
    Cells("hard", "q8_0", _REPORTED, long=2, deep=1),
    Cells("hard", "q4_0", _REPORTED, long=1, deep=0),
)


def jobs(servers: Sequence[str], table: Sequence[Cells] = TABLE) -> list[Job]:
    """All jobs, the longest first: they decide when the last one ends."""
    deep: list[Job] = []
    long: list[Job] = []
    short: list[Job] = []
    for cells in table:
        for server in servers:
            deep += _climbs(server, cells, cells.deep, _DEEP_SEED, (_LONG_TOKENS, _DEEP_TOKENS))
            long += _climbs(server, cells, cells.long, _CLIMB_SEED, (_LONG_TOKENS,))
            for style, *spec in cells.short:
                options = ("--style", style, "--spec", *spec)
                what = "-".join((style, *(item.split(":")[0] for item in spec)))
                short.append(_job(server, "evaluate", cells, what, _SHORT_SEED, options))
    return [*deep, *long, *short]


def _climbs(
    server: str, cells: Cells, documents: int, seed: int, rungs: Sequence[int]
) -> Iterator[Job]:
    options = ("--rungs", *map(str, rungs))
    # Attention over a quantised cache costs a CPU several times as much.
    threads = 5 if cells.kv != "f16" and rungs[-1] == _DEEP_TOKENS else 2
    for i in range(documents):
        yield _job(server, "climb", cells, f"climb-{rungs[-1]}", seed + i, options, threads)


def _job(
    server: str,
    module: str,
    cells: Cells,
    what: str,
    seed: int,
    options: tuple[str, ...],
    threads: int = 2,
) -> Job:
    return Job(server, module, cells.kv, cells.background, what, seed, options, threads)


def run(
    todo: Sequence[Job],
    programs: Mapping[str, str],
    cores: int,
    results: Path,
    *,
    flags: Sequence[str] = (),
    first_port: int = _FIRST_PORT,
) -> list[str]:
    """Run the jobs, as many at a time as have room on `cores`; the names of those that failed."""
    results.mkdir(parents=True, exist_ok=True)
    # Bound threads would share the first cores, and every client would tokenise on all of them.
    environment = {**os.environ, "OMP_PROC_BIND": "false", "TOKENIZERS_PARALLELISM": "false"}
    waiting = list(todo)
    running: list[tuple[Job, subprocess.Popen[bytes]]] = []
    failed: list[str] = []
    ports = iter(range(first_port, first_port + len(waiting)))
    while waiting or running:
        room = cores - sum(job.threads for job, _ in running)
        job = next((job for job in waiting if job.threads <= room), None)
        if job is None and not running:
            raise SystemExit(f"{waiting[0].name} needs {waiting[0].threads} cores, not {cores}")
        if job is not None:
            waiting.remove(job)
            argv = job.argv(programs[job.server], next(ports), results, flags)
            with (results / f"{job.name}.log").open("ab") as log:
                started = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
            running.append((job, started))
            continue
        time.sleep(0.2)
        for ended in [pair for pair in running if pair[1].poll() is not None]:
            running.remove(ended)
            good = ended[1].returncode == 0
            failed += [] if good else [ended[0].name]
            said = "done" if good else f"failed, see {ended[0].name}.log"
            print(f"{ended[0].name}: {said}; {len(waiting)} waiting", flush=True)
    return failed


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--server", nargs="+", default=["xllamacpp=embedded"], metavar="NAME=PROGRAM")
    p.add_argument("--cores", type=int, default=2, help="threads of all servers together")
    p.add_argument("--only", default="", metavar="REGEX", help="jobs whose name it is found in")
    p.add_argument("--list", action="store_true", help="only print the jobs' names")
    p.add_argument("--first-port", type=int, default=_FIRST_PORT)
    p.add_argument("--results", type=Path, default=Path("build/table"))
    p.add_argument("flags", nargs="*", help="more server flags, after --")
    args = p.parse_args()
    programs = dict(item.split("=", 1) for item in args.server)
    todo = [job for job in jobs(list(programs)) if re.search(args.only, job.name)]
    if args.list:
        print("\n".join(job.name for job in todo))
        return
    failed = run(
        todo, programs, args.cores, args.results, flags=args.flags, first_port=args.first_port
    )
    if failed:
        raise SystemExit(f"{len(failed)} of {len(todo)} jobs failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

"""The fault table as a page: `python -m tests.faults.document > docs/faults.md`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.fault import Fault
from tests.faults.guards import GUARDS, UNGUARDED
from tests.faults.launched import LAUNCHED, Launched
from tests.faults.table import FAULTS, GROUPS

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
COMMAND = "python -m tests.faults.document > docs/faults.md"

_PLACES = {
    "all": "every measured request",
    "none": "–",
    "rung": "rung",
    "ask": "question",
    "warm-up": "warm-up",
}


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    outcomes = Counter([f.outcome for f in FAULTS] + [f.outcome for f in LAUNCHED])
    listed = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    yield "# Fault table"
    yield ""
    yield (
        f"What a run makes of a server that does something wrong: {outcomes.total()} faults "
        f"({listed}). Each row is a test (`pytest tests/faults`): a scripted llama-server on a "
        "real socket does what the row says, the real campaign measures it against a "
        "baseline of two healthy runs "
        "on a ladder of 2,048 and 4,096 tokens, and the outcome, its code or the failure's cause, "
        "and a phrase of its reason are compared. In every row, too: no measured request was sent "
        "a second time, nothing the server sent can act on a terminal or stands raw in the record, "
        "and our API key is in none of them."
    )
    yield ""
    yield (
        "*Where* says which requests go wrong (with `#n`, the n-th of their kind; otherwise all). "
        "*Outcome* is that of the cell named by *cell* (`retrieval` at 4,096 unless another is "
        "named); REFUSED means that the run ended with this sentence before anything was measured. "
        "A PASS says that the fault must not matter, or that the run recovered and said so."
    )
    yield ""
    yield f"This page is made from the tests: `{COMMAND}`. A test fails when it is stale."
    for title, faults in GROUPS.items():
        yield ""
        yield f"## {title}"
        yield ""
        yield "| fault | the server … | where | outcome | code or cause | cell | its reason says |"
        yield "|---|---|---|---|---|---|---|"
        for fault in faults:
            yield _row(fault)
    yield ""
    yield "## A server that the harness started"
    yield ""
    yield (
        "Here the process is ours: its death, exit code and log are seen. No process of it is left "
        "behind in any row."
    )
    yield ""
    yield "| fault | the server … | where | outcome | code or cause | its reason says |"
    yield "|---|---|---|---|---|---|"
    for launched in LAUNCHED:
        yield _launched_row(launched)
    yield ""
    yield "## What each row needs"
    yield ""
    yield (
        "Every guard below was taken out of the code once, and the rows beside it failed then: "
        "`python -m tests.faults.mutate` does it again, in a copy of the project, in some minutes. "
        "Tests see to it that every row has a guard here and every guard is in the code."
    )
    yield ""
    yield "| guard | in | rows that fail without it |"
    yield "|---|---|---|"
    for guard in GUARDS:
        yield f"| {guard.what} | {guard.path} | {', '.join(guard.rows)} |"
    yield ""
    yield "Rows without one: " + "; ".join(f"{row} ({why})" for row, why in UNGUARDED.items()) + "."


def _launched_row(fault: Launched) -> str:
    places = {"none": "–", "health": "/health", "loading": "loading"}
    where = places.get(fault.place, f"{_PLACES.get(fault.place, fault.place)} #{fault.nth}")
    said = f"`{fault.phrase}`" if fault.phrase else ""
    return f"| {fault.name} | {fault.server} | {where} | {fault.outcome} | {fault.code} | {said} |"


def _row(fault: Fault) -> str:
    numbers = fault.nth if isinstance(fault.nth, tuple) else (fault.nth,)
    nth = ", ".join(f"#{n}" for n in numbers if n is not None)
    places = " and ".join(_PLACES.get(p, p) for p in fault.place.split())
    cell = f"{fault.metric} {fault.depth}"
    if fault.outcome == "REFUSED" or cell == "retrieval 4096":
        cell = ""
    phrase = fault.phrase.replace("|", "\\|")
    columns = (
        fault.name,
        fault.server,
        f"{places} {nth}".strip(),
        fault.outcome,
        fault.code or "",
        cell,
        f"`{phrase}`" if phrase else "",
    )
    return "| " + " | ".join(columns) + " |"


if __name__ == "__main__":
    print(page(), end="")

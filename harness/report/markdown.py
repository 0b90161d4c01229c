"""A verdict as Markdown: for a job's summary, and as an issue for the engine's maintainers.

Text from outside is escaped: a model's name or answer must not become a table, a link or a mention.
"""

import re
from collections.abc import Iterable, Sequence

from harness.quantities import depth_label
from harness.records.lines import RESUMED
from harness.records.outcomes import OUTCOMES
from harness.report.answer import answer, moved
from harness.report.quantities import change, interval, quantity
from harness.report.sparkline import prefill_line
from harness.verdicts.cell import CellVerdict
from harness.verdicts.judged import Judged

_UNSAFE = re.compile(r"([\\`*_{}\[\]!|~$])")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LINKING = re.compile(r"([@#](?=\w)|:(?=//)|(?<=\bwww)\.)")
_BREAK = "\u200b"


def summary(run: Judged, *, trends: Sequence[str] = ()) -> str:
    """The job summary: the answer, what is not the same, trends, and all numbers folded."""
    header, verdict = run.record.header, run.verdict
    line, *rest = answer(run).lines()
    parts = [f"## {OUTCOMES[verdict.outcome].sign} {text(line)}", *([_list(rest)] if rest else [])]
    parts += [
        f"{text(header.model.name)} on {text(header.machine.cpu)} "
        f"({text(header.machine.machine_class)}), server {text(header.server.build)}, context "
        f"{depth_label(header.plan.ctx_tokens)}, run {text(header.run_id)}",
        *(text(e.message) for e in run.record.events if e.code == RESUMED),
    ]
    if some := moved(verdict.cells):
        parts.append(_table(some))
    if (curve := prefill_line(run.record, "utf-8")) is not None:
        parts.append(f"`{curve}`")
    if others := [d for d in verdict.differences if " → " not in d]:
        parts.append("**Differs from the baseline**\n\n" + _list(others))
    if trends:
        parts.append("**Over time**\n\n" + _list(trends))
    parts.append(_folded(f"All {len(verdict.cells)} numbers", _table(verdict.cells)))
    if any(OUTCOMES[c.outcome].bad for c in verdict.cells):
        parts.append(_folded("Paragraph for a bug report", bug_report(run)))
    return "\n\n".join(parts) + "\n"


def bug_report(run: Judged, *, first_bad: str | None = None) -> str:
    """What an upstream issue needs: machine, build, flags, numbers, and the first bad build.

    `first_bad` comes from the history where it is known; otherwise the builds of the baseline and
    of this run bound the search.
    """
    header = run.record.header
    machine, server = header.machine, header.server
    gpus = ", ".join(machine.gpus) or "no GPU read"
    parameters = (
        f", {header.model.parameters / 1e9:.2f} B parameters" if header.model.parameters else ""
    )
    lines = [
        "### What happened",
        _sentence(run),
        "### Machine",
        f"{text(machine.cpu)}, {machine.cpu_cores} cores, {machine.memory_bytes / 2**30:.0f} GiB; "
        f"{text(gpus)}; driver {text(machine.driver or 'not read')}; {text(machine.os)}",
        "### Build and flags",
        f"{text(server.build)} ({_bounds(run, first_bad)})",
        fenced(" ".join(server.argv) or "started by somebody else: its flags were not readable"),
        "### Model",
        f"{text(header.model.name)}, {text(header.model.file_type or 'type unknown')}{parameters}",
        "### Numbers",
        _table([c for c in run.verdict.cells if c.measured is not None]),
    ]
    warnings = [str(w) for w in run.event_data("server_log").get("warnings") or ()]
    if warnings:
        lines += ["### Warnings in the server's log", fenced("\n".join(warnings[:20]))]
    return "\n\n".join(lines) + "\n"


def text(value: object) -> str:
    """Outside text as Markdown that shows it literally, on one line.

    Mentions, issue numbers and bare addresses are kept from becoming links by a zero-width space.
    """
    flat = " ".join(str(value).split())
    escaped = _UNSAFE.sub(r"\\\1", flat).translate(_ENTITIES)
    return _LINKING.sub(lambda m: m[1] + _BREAK, escaped)


def fenced(value: str) -> str:
    """Outside text in a code block that it cannot close."""
    longest = max((len(m) for m in re.findall(r"`+", value)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{value}\n{fence}"


def _sentence(run: Judged) -> str:
    bad = [c for c in run.verdict.cells if OUTCOMES[c.outcome].bad]
    if not bad:
        return f"No cell is worse than the baseline (run: {run.verdict.outcome})."
    return _list([f"{c.metric.label} at {depth_label(c.depth)} tokens: {c.message}" for c in bad])


def _bounds(run: Judged, first_bad: str | None) -> str:
    if first_bad is not None:
        return f"first bad build: {text(first_bad)}"
    if run.baseline is None or not run.baseline.runs:
        return "no earlier build measured"
    good = run.baseline.runs[-1].build
    if good == run.record.header.server.build:
        return "the baseline's build is the same: look at flags, driver and machine"
    return f"first bad build not known; good: {text(good)}"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n</details>"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {text(item)}" for item in items)


def _table(cells: Sequence[CellVerdict]) -> str:
    rows = [
        "| depth | metric | measured | baseline | change | interval | |",
        "|---:|---|---:|---:|---:|---:|---|",
    ]
    rows += [
        f"| {depth_label(c.depth)} | {c.metric.label} | {quantity(c, c.measured)} | "
        f"{quantity(c, c.baseline)} | {change(c)} | {interval(c)} | "
        f"{OUTCOMES[c.outcome].sign} {OUTCOMES[c.outcome].word} |"
        for c in cells
    ]
    return "\n".join(rows)

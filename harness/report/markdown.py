"""A verdict as Markdown: for a job's summary, and as an issue for the engine's maintainers.

Text from outside is escaped: a model's name or answer must not become a table, a link or a mention.
"""

import re
from collections.abc import Iterable, Sequence

from harness.quantities import depth_label
from harness.records.lines import RESUMED
from harness.records.outcomes import OUTCOMES
from harness.report.quantities import change, interval, quantity
from harness.report.sparkline import prefill_line
from harness.verdicts.cell import CellVerdict
from harness.verdicts.judged import Judged

_UNSAFE = re.compile(r"([\\`*_{}\[\]!|~$])")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LINKING = re.compile(r"([@#](?=\w)|:(?=//)|(?<=\bwww)\.)")
_BREAK = "\u200b"


def summary(run: Judged, *, trends: Sequence[str] = ()) -> str:
    """The job summary: verdict, what failed and what to do, table, what differs, trends."""
    header, verdict = run.record.header, run.verdict
    parts = [
        f"## {OUTCOMES[verdict.outcome].sign} {verdict.outcome}: {text(header.model.name)}, "
        f"context {depth_label(header.plan.ctx_tokens)}",
        f"{text(header.machine.cpu)} ({text(header.machine.machine_class)}), server "
        f"{text(header.server.build)}, run {text(header.run_id)}",
        *(text(e.message) for e in run.record.events if e.code == RESUMED),
        *_troubles(run),
        _table(verdict.cells),
    ]
    if (line := prefill_line(run.record, "utf-8")) is not None:
        parts.append(f"`{line}`")
    if verdict.differences:
        parts.append("**Differs from the baseline**\n\n" + _list(verdict.differences))
    if trends:
        parts.append("**Over time**\n\n" + _list(trends))
    if any(OUTCOMES[c.outcome].bad for c in verdict.cells):
        parts.append(
            "<details><summary>Paragraph for a bug report</summary>\n\n"
            + bug_report(run)
            + "\n</details>"
        )
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


def _troubles(run: Judged) -> Iterable[str]:
    cells = [c for c in run.verdict.cells if c.outcome not in ("PASS", "NO_BASELINE")]
    cells.sort(key=lambda c: (not OUTCOMES[c.outcome].bad, c.depth))
    if cells:
        yield "\n".join(
            f"- **{c.outcome}** {c.metric.label} at {depth_label(c.depth)}: {text(c.message)}"
            + (f" — next: {c.next_step}" if c.next_step else "")
            for c in cells
        )
    missing = [c for c in run.verdict.cells if c.outcome == "NO_BASELINE"]
    if missing:
        yield f"{len(missing)} cells without a baseline — next: {missing[0].next_step}"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {text(item)}" for item in items)


def _table(cells: Sequence[CellVerdict]) -> str:
    rows = [
        "| depth | metric | measured | baseline | change | interval | outcome |",
        "|---:|---|---:|---:|---:|---:|---|",
    ]
    rows += [
        f"| {depth_label(c.depth)} | {c.metric.label} | {quantity(c, c.measured)} | "
        f"{quantity(c, c.baseline)} | {change(c)} | {interval(c)} | "
        f"{OUTCOMES[c.outcome].sign} {c.outcome} |"
        for c in cells
    ]
    return "\n".join(rows)

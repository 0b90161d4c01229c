"""A night as Markdown: for the job's summary, and as the text of an issue when something failed."""

from collections.abc import Mapping, Sequence

from harness.records.night import Result, headline
from harness.records.outcomes import OUTCOMES
from harness.report.answer import answer
from harness.report.markdown import bug_report, summary, text
from harness.verdicts.judged import Judged


def night_summary(night: str, results: Sequence[Result], runs: Mapping[str, Judged]) -> str:
    """One line for the night, a line a profile, and each profile's own summary; runs by profile."""
    rows = [
        "| profile | outcome | run | sittings | pytest's exit code | |",
        "|---|---|---|---:|---:|---|",
    ]
    for result in results:
        run = runs.get(result.profile)
        said = result.said or (answer(run).line if run is not None else "")
        sign = OUTCOMES[result.outcome].sign + " " if result.outcome is not None else ""
        rows.append(
            f"| {text(result.profile)} | {sign}{result.outcome or 'nothing measured'} | "
            f"{text(result.run_id or '–')} | {result.sittings} | "
            f"{'–' if result.exit_code is None else result.exit_code} | {text(said)} |"
        )
    parts = [f"# {text(headline(night, results))}", "\n".join(rows)]
    for result in results:
        if result.profile in runs:
            parts.append(f"---\n\n**{text(result.profile)}**\n\n{summary(runs[result.profile])}")
    return "\n\n".join(parts) + "\n"


def night_issue(night: str, results: Sequence[Result], runs: Mapping[str, Judged]) -> str | None:
    """The text of an issue: its title on the first line; `None` when nothing is bad."""
    bad = [r for r in results if r.bad]
    if not bad:
        return None
    parts = [text(headline(night, bad))]
    for result in bad:
        parts.append(f"## {text(result.profile)}")
        if result.profile in runs:
            parts += [text(result.said)] if result.said else []
            parts.append(bug_report(runs[result.profile]))
        else:
            parts.append(f"Nothing was measured: {text(result.said)}")
    return "\n\n".join(parts) + "\n"

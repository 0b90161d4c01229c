"""Report and history as a page: one file that opens offline, and trusts nothing it shows.

What a model answered, what a file or machine is called and what a log says may hold anything.
Jinja escapes it in the page, JSON is escaped for its script element, and the page's own policy
(CSP) lets only our two scripts run, by their hashes, and nothing be fetched.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from harness.quantities import depth_label
from harness.records.lines import Header
from harness.records.metrics import GENERATION, MEMORY, METRICS, PREFILL, TTFT
from harness.records.outcomes import OUTCOMES, Outcome
from harness.records.points import Point, groups
from harness.report.answer import answer
from harness.report.plots import answers, trends
from harness.report.plots import by_depth as depth_plots
from harness.report.plots import fidelity as fidelity_plot
from harness.report.plots import harder as harder_plot
from harness.report.plots import heatmap as heatmap_plot
from harness.report.plots import machine as machine_plot
from harness.report.plots import prefill as prefill_plot
from harness.report.plots import timeline as timeline_plot
from harness.report.plots.figure import Figure
from harness.report.quantities import change, interval, quantity, samples
from harness.verdicts import memory_account
from harness.verdicts.cell import CellVerdict
from harness.verdicts.judged import Judged

MAX_BYTES = 2_000_000
PLOTLY = "plotly-basic-4.1.1.min.js"
_CUTS = ((answers.ANSWER_CHARS, trends.MAX_RUNS_DRAWN), (1000, 200), (200, 100))
"""Characters of an answer and runs of a history to show, until the page is small enough."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the configuration: a name, its value in each run, whether they differ."""

    name: str
    values: tuple[str, ...]
    differs: bool


def page(
    runs: Sequence[Judged],
    *,
    bands: dict[str, float],
    history: Sequence[Point] = (),
    reference: str | None = None,
) -> str:
    """The page for one or more runs, the first one being the one judged, with history if given.

    Answers and the history are cut shorter where the page would outgrow `MAX_BYTES`.
    """
    text = ""
    for answer_chars, drawn in _CUTS:
        text = _page(runs, bands, history, reference, answer_chars, drawn)
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def _page(
    runs: Sequence[Judged],
    bands: dict[str, float],
    history: Sequence[Point],
    reference: str | None,
    answer_chars: int,
    drawn: int,
) -> str:
    if len(runs) == 1:
        runs = [replace(runs[0], label="this run")]
    plots = [
        *_run_figures(runs, bands, answer_chars),
        *_history_figures(history, bands, reference, drawn),
    ]
    return _rendered(
        "report.html.j2",
        plots,
        contents=[
            ("cells", "Results"),
            *_contents(plots),
            ("configuration", "Configuration"),
            ("log", "Log and notes"),
        ],
        runs=runs,
        names=[run.name for run in runs],
        answers=[list(answer(run).lines()) for run in runs],
        troubles=[_troubles(run) for run in runs],
        word={outcome: worth.word for outcome, worth in OUTCOMES.items()},
        cells=_cells(runs),
        configuration=_configuration(runs),
        log=[_log(run) for run in runs],
        depth_label=depth_label,
        quantity=quantity,
        change=change,
        interval=interval,
        samples=samples,
    )


def history_page(
    points: Sequence[Point], *, bands: dict[str, float], reference: str | None = None
) -> str:
    """The page of a history alone: findings first, then a plot a metric."""
    plots = _history_figures(points, bands, reference, trends.MAX_RUNS_DRAWN)
    found = [sentence for plot in plots for sentence in plot.warnings]
    return _rendered("history.html.j2", plots, contents=_contents(plots), found=found)


def _rendered(template: str, plots: Sequence[Figure], **facts: object) -> str:
    scripts = [_asset(PLOTLY), _asset("report.js")]
    text: str = (
        _templates()
        .get_template(template)
        .render(
            plots=plots,
            figures=_figure_data(plots),
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own files
            style=Markup(_asset("report.css")),  # noqa: S704 - our own file
            policy=_policy(scripts),
            **facts,
        )
    )
    return text


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["said"] = _said
    return made


def _said(text: str) -> Markup:
    """Text with its `commands` as code; everything else is escaped."""
    parts = (escape(part) for part in text.split("`"))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if odd % 2 else part
        for odd, part in enumerate(parts)
    )


@cache
def _asset(name: str) -> str:
    return files("harness.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    ]
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _figure_data(plots: Sequence[Figure]) -> Markup:
    data = [{"name": p.name, "traces": p.traces, "layout": p.layout} for p in plots]
    return htmlsafe_json_dumps(data, dumps=json.dumps, allow_nan=False, separators=(",", ":"))


def _run_figures(runs: Sequence[Judged], bands: dict[str, float], chars: int) -> list[Figure]:
    together = (
        prefill_plot.prefill(runs, bands[PREFILL.name]),
        depth_plots.generation(runs, bands[GENERATION.name]),
        depth_plots.ttft(runs, bands[TTFT.name]),
        fidelity_plot.fidelity(runs),
    )
    each = [answers.retrieval(run, number, chars) for number, run in enumerate(runs)]
    each += [heatmap_plot.heatmap(run, number) for number, run in enumerate(runs)]
    each += [harder_plot.harder(run, number) for number, run in enumerate(runs)]
    times = [
        figure
        for number, run in enumerate(runs)
        for figure in (
            timeline_plot.timeline(run, number),
            machine_plot.machine_timeline(run, number),
        )
    ]
    every = (*together, *each, depth_plots.memory(runs, bands[MEMORY.name]), *times)
    return [figure for figure in every if figure is not None]


def _history_figures(
    points: Sequence[Point], bands: dict[str, float], reference: str | None, drawn: int
) -> list[Figure]:
    plots: list[Figure] = []
    for number, ((machine, model, _), some) in enumerate(groups(points).items()):
        if len({p.run_id for p in some}) < 2:
            continue
        plots += trends.history(
            some,
            bands=bands,
            reference=reference,
            label=f"{machine}, {model}",
            place=number,
            drawn=drawn,
        )
    return plots


def _troubles(run: Judged) -> list[tuple[str | None, list[CellVerdict]]]:
    """Why, of each number that is not the same, worst first, by what to do about it."""
    cells = [c for c in run.verdict.cells if c.outcome not in ("PASS", "NO_BASELINE")]
    grouped: dict[tuple[Outcome, str | None], list[CellVerdict]] = {}
    order = list(OUTCOMES)
    for cell in sorted(cells, key=lambda c: (order.index(c.outcome), c.depth)):
        grouped.setdefault((cell.outcome, cell.next_step), []).append(cell)
    return [(step, some) for (_, step), some in grouped.items()]


def _contents(plots: Sequence[Figure]) -> list[tuple[str, str]]:
    """Anchor and title of each plot that is not folded; one link where several share a title."""
    first: dict[str, str] = {}
    for plot in plots:
        if not plot.folded:
            first.setdefault(plot.title, plot.name)
    return [(name, title) for title, name in first.items()]


def _cells(runs: Sequence[Judged]) -> list[tuple[int, str, list[CellVerdict | None]]]:
    keys = sorted(
        {(c.depth, c.metric.name) for run in runs for c in run.verdict.cells},
        key=lambda k: (k[0], list(METRICS).index(k[1])),
    )
    return [(d, METRICS[m].label, [run.verdict.cell(d, m) for run in runs]) for d, m in keys]


def _configuration(runs: Sequence[Judged]) -> list[Row]:
    columns = [_facts(run.record.header) for run in runs]
    if runs[0].baseline is not None and runs[0].baseline.runs:
        last = runs[0].baseline.runs[-1]
        columns.append(
            {
                "run": last.run_id,
                "server build": last.build,
                "OS": last.os,
                "driver": last.driver,
                "machine class": runs[0].baseline.key.machine_class,
                **{str(k): v for k, v in runs[0].baseline.key.config.items()},
                **{str(k): v for k, v in last.noted.items()},
                **last.conditions,
            }
        )
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = []
    for name in names:
        given = [column[name] for column in columns if name in column]
        values = tuple(_shown(column[name]) if name in column else "–" for column in columns)
        differs = name not in ("run", "started", "argv") and len({str(v) for v in given}) > 1
        rows.append(Row(name, values, differs))
    return rows


def _facts(header: Header) -> dict[str, object]:
    plan, machine, server = header.plan, header.machine, header.server
    return {
        "run": header.run_id,
        "started": header.started_at[:16].replace("T", " "),
        "machine class": machine.machine_class,
        "CPU": f"{machine.cpu}, {machine.cpu_cores} cores",
        "memory, GiB": round(machine.memory_bytes / 2**30, 1),
        "GPU": ", ".join(machine.gpus) or None,
        "OS": machine.os,
        "driver": machine.driver,
        "model": header.model.name,
        "model identity": header.model.identity,
        "server": server.origin,
        "server build": server.build,
        "ctx": plan.ctx_tokens,
        "fill": plan.fill,
        "background": plan.background,
        "distractors": plan.distractors,
        "grammar": plan.grammar_version,
        "seed": plan.seed,
        "label": header.label,
        **{
            str(k): v
            for k, v in {**server.key, "ctx": server.key.get("ctx", plan.ctx_tokens)}.items()
        },
        **{str(k): v for k, v in server.noted.items()},
        **machine.conditions,
        "argv": " ".join(server.argv) or None,
    }


def _shown(value: object) -> str:
    return "not given" if value is None else str(value)


def _log(run: Judged) -> list[tuple[str, str]]:
    """Kind and text of what the server's log and the run's own events and notes say."""
    account = run.event_data("server_log")
    lines = [
        (f"finding: {f.get('code')}", f"{f.get('reason')} (×{f.get('count')}): {f.get('example')}")
        for f in account.get("findings") or ()
        if isinstance(f, dict)
    ]
    lines += [("warning in the log", str(w)) for w in account.get("warnings") or ()]
    lines += [
        (e.code, e.message)
        for e in run.record.events
        if e.code not in ("server_log", "machine") and e.message
    ]
    lines += [
        (f"the log at {depth_label(r.depth)}", f"{code} (×{count})")
        for r in run.record.rungs
        for code, count in sorted(r.log_counts.items())
    ]
    lines += [("memory", said) for said in memory_account.sentences(run.record)]
    lines += [
        (f"note at {depth_label(r.depth)}", note) for r in run.record.rungs for note in r.notes
    ]
    lines += [("drift", d.sentence) for d in run.verdict.drift]
    return lines

"""The report page as text: self-contained, complete, and inert towards what it shows."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from harness.quantities import depth_label, percent
from harness.records.lines import Chunk, Event
from harness.records.probes import HEATMAP_EVENT, CellResult, Matrix
from harness.report import html
from harness.report.html import MAX_BYTES, history_page, page
from harness.report.plots import answers
from harness.report.plots import prefill as prefill_plot
from harness.verdicts.judged import Judged
from harness.verdicts.trend import points_of
from harness.verdicts.verdict import judge
from tests.made import BANDS, DEPTHS, HOSTILE, judged, whole_run


class Page(HTMLParser):
    """Elements, scripts and text of a page, as a browser would part them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)
        elif self._inside[-1] == "script":
            self.scripts[-1] += data

    @property
    def figures(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.scripts[0])
        return found


@pytest.fixture(scope="module")
def hostile() -> Page:
    return Page(page([judged(cliff=0.6, hostile=True)], bands=BANDS))


def test_nothing_is_fetched(hostile: Page) -> None:
    for tag, attributes in hostile.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form")
        for name in ("src", "href", "action"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:,")), (tag, address)
        assert not any(name.startswith("on") for name in attributes)


def test_hostile_text_is_shown_and_adds_no_element(hostile: Page) -> None:
    assert len(hostile.scripts) == 3
    words = "".join(hostile.words)
    assert HOSTILE in words
    assert "window.hacked" not in hostile.scripts[1] + hostile.scripts[2]
    for trace in (t for f in hostile.figures for t in f["traces"]):  # type: ignore[attr-defined]
        text = " ".join(
            map(str, [trace.get("name", ""), *trace.get("text", ()), *trace.get("customdata", ())])
        )
        assert not re.search(r"<(?!/?b>|br>)", text), text


def test_the_policy_names_our_two_scripts_by_hash(hostile: Page) -> None:
    (policy,) = [
        a["content"] for t, a in hostile.tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    for script in hostile.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.count("sha256-") == 2
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "unsafe-eval" not in policy


def test_there_is_a_table_behind_each_plot(hostile: Page) -> None:
    names = {f["name"] for f in hostile.figures}
    assert {"prefill", "generation", "ttft", "retrieval-0", "memory", "timeline-0"} == names
    tables = [a.get("aria-label", "") for t, a in hostile.tags if t == "div"]
    assert sum(str(label).startswith("Table: ") for label in tables) == len(names)
    ids = {a["id"] for _, a in hostile.tags if "id" in a}
    assert {f"plot-{n}" for n in names} <= ids


def test_the_worst_stands_first_with_what_to_do() -> None:
    words = " ".join("".join(Page(page([judged(cliff=0.6)], bands=BANDS)).words).split())
    assert words.index("next: run it again to confirm") < words.index("Results")
    assert "from 16.2K on, −40 %" in words
    assert "Next: run it again to confirm" in words
    assert "threads 16 → 8" in words


def test_the_page_fits_with_many_long_answers() -> None:
    run = judged()
    long = [
        r.model_copy(
            update={"asks": tuple(a.model_copy(update={"answer": "é" * 200_000}) for a in r.asks)}
        )
        for r in run.record.rungs
    ]
    record_ = run.record.model_copy(update={"rungs": tuple(long) * 1})
    big = Judged(record_, run.verdict, run.baseline)
    text = page([big] * 8, bands=BANDS)
    assert len(text.encode()) <= MAX_BYTES
    assert "200,000 characters, cut here" in text


def test_machines_stand_side_by_side() -> None:
    runs = [judged(), judged(machine="other-box", cliff=0.8)]
    made = Page(page(runs, bands=BANDS))
    prefill = next(f for f in made.figures if f["name"] == "prefill")
    names = [t.get("name", "") for t in prefill["traces"]]  # type: ignore[attr-defined]
    assert [n for n in names if "evo-x2" in n or "other-box" in n] == [r.name for r in runs]
    heads = [w for w in made.words if "other-box" in w]
    assert len(heads) >= 3
    assert {f["name"] for f in made.figures} >= {"retrieval-0", "retrieval-1", "timeline-1"}


def test_a_run_without_baseline_answers_or_events_still_makes_a_page() -> None:
    run = whole_run(1)
    bare = run.model_copy(
        update={
            "rungs": tuple(
                r.model_copy(update={"asks": (), "generations": (), "memory": ()})
                for r in run.rungs
            ),
            "events": (),
            "controls": (),
            "footer": None,
        }
    )
    made = Page(page([Judged(bare, judge(bare, None, BANDS), None)], bands=BANDS))
    assert {"prefill", "ttft", "timeline-0"} == {f["name"] for f in made.figures}
    assert "did not end by itself" in "".join(made.words)


def test_a_run_with_nothing_measured_makes_a_page() -> None:
    run = whole_run(1).model_copy(update={"rungs": (), "controls": (), "events": ()})
    made = Page(page([Judged(run, judge(run, None, BANDS), None)], bands=BANDS))
    assert made.figures == []


def test_places_are_told_by_code_whatever_the_order_of_asking() -> None:
    run = judged(hostile=True)
    deepest = run.record.rung(DEPTHS[-1])
    assert deepest is not None
    places = {p.place: (p.state, p.right, p.asked) for p in answers.places_of(deepest)}
    # Two answers are wrong in each order: the first two needles forward, the last two reversed.
    assert places == {
        "5%": ("partly", 1, 2),
        "25%": ("partly", 1, 2),
        "50%": ("right", 2, 2),
        "75%": ("partly", 1, 2),
        "95%": ("partly", 1, 2),
        "control": ("right", 2, 2),
    }


def test_wrong_answers_show_class_codes_and_text_on_hover() -> None:
    figure = answers.retrieval(judged(hostile=True), 0, 4000)
    assert figure is not None
    partly = next(t for t in figure.traces if t["meta"] == "state-partly")
    said = partly["customdata"][0]
    assert "digit_changed, expected MEM-072001, got MEM-999999" in said
    assert "&lt;/script&gt;" in said


def test_the_heatmap_probe_is_drawn_where_there_is_one() -> None:
    run = judged()
    matrix = Matrix(
        lengths=(2048, 8192),
        document_tokens=(1800, 7200),
        bands=2,
        cells=(
            CellResult(length=2048, band=0, share=0.2, warm_class="right"),
            CellResult(length=8192, band=1, share=0.7, warm_class="swapped", cold_class="swapped"),
        ),
    )
    event = Event(code=HEATMAP_EVENT, message="heatmap", data=matrix.model_dump(mode="json"))
    with_probe = run.record.model_copy(update={"events": (*run.record.events, event)})
    made = Page(page([Judged(with_probe, run.verdict, run.baseline)], bands=BANDS))
    figure = next(f for f in made.figures if f["name"] == "heatmap-0")
    assert [t["meta"] for t in figure["traces"]] == ["state-right", "state-wrong"]  # type: ignore[attr-defined]


def test_thinning_keeps_tokens_and_time() -> None:
    chunks = [
        Chunk(start_tokens=n * 512, end_tokens=(n + 1) * 512, ms=1.0 + n) for n in range(8000)
    ]
    thin = prefill_plot.thinned(chunks, 300)
    assert len(thin) <= 300
    assert sum(c.ms for c in thin) == pytest.approx(sum(c.ms for c in chunks))
    assert [c.start_tokens for c in thin][1:] == [c.end_tokens for c in thin][:-1]
    gap = [*chunks[:2000], *chunks[2100:]]
    assert sum(c.end_tokens - c.start_tokens for c in prefill_plot.thinned(gap, 300)) == 7900 * 512


def test_history_stands_in_the_page_with_its_findings() -> None:
    points = []
    for seed in range(1, 25):
        run = whole_run(
            seed, generation=1.0 if seed < 15 else 0.9, build=f"b{11000 + seed}-0a1b2c3d"
        )
        points += points_of(run)
    text = page([judged()], bands=BANDS, history=points)
    assert "generation at 32K: −10" in text
    assert "since 2026-11-15, build b11015-0a1b2c3d" in text
    alone = history_page(points, bands=BANDS)
    assert "since 2026-11-15, build b11015-0a1b2c3d" in alone
    assert len(Page(alone).figures) == 5


def test_a_history_of_one_run_is_left_out() -> None:
    points = list(points_of(whole_run(1)))
    made = Page(page([judged()], bands=BANDS, history=points))
    assert not [f for f in made.figures if str(f["name"]).startswith("history")]


@pytest.mark.parametrize(
    ("tokens", "label"), [(2048, "2K"), (131072, "128K"), (2**22, "4M"), (1000, "1,000")]
)
def test_depths_are_written_as_people_do(tokens: int, label: str) -> None:
    assert depth_label(tokens) == label


@pytest.mark.parametrize(
    ("share", "text"), [(-0.0601, "−6.0 %"), (0.1, "+10 %"), (-0.0001, "0.0 %"), (0.0, "0.0 %")]
)
def test_percentages_have_a_true_sign(share: float, text: str) -> None:
    assert percent(share) == text


def test_plotly_is_the_version_its_name_says() -> None:
    head = html._asset(html.PLOTLY)[:200]
    assert html.PLOTLY.removeprefix("plotly-basic-").removesuffix(".min.js") in head

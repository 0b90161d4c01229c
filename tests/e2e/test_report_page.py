"""The report page in a real browser: it draws, fetches nothing, says what it shows, stays inert."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.report.html import page
from tests.made import BANDS, DEPTHS, judged

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 390, "height": 844}
TABLET = {"width": 768, "height": 1024}
DESKTOP = {"width": 1200, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "r.html"
    run = judged(cliff=0.6, generation=0.8, hostile=True)
    path.write_text(page([run], bands=BANDS), encoding="utf-8")
    return path


class Opened:
    """A page that keeps account of what went wrong and what it asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.said.append(m.text))
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_function("document.documentElement.dataset.drawn")


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    made = Opened(browser, report, viewport=DESKTOP)
    yield made
    made.page.close()


def test_no_error_no_request_and_nothing_injected_runs(opened: Opened, report: Path) -> None:
    assert opened.said == []
    assert opened.asked == [report.as_uri()]
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("img").count() == 0
    assert "<script>window.hacked=1</script>" in opened.page.inner_text(".banner")


def test_a_script_that_got_in_would_be_refused(opened: Opened) -> None:
    opened.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 2';"
        " document.body.append(s); }"
    )
    assert opened.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in line for line in opened.said)


def test_every_mark_is_drawn(opened: Opened) -> None:
    def marks(name: str) -> int:
        return int(opened.page.locator(f"#plot-{name} .point").count())

    samples = 5 * len(DEPTHS)
    assert marks("generation") == samples + len(DEPTHS)
    assert marks("retrieval-0") == 6 * len(DEPTHS)
    assert marks("ttft") == 2 * len(DEPTHS) + len(DEPTHS) + len(DEPTHS)
    chunks = sum(
        len(t["x"])
        for t in opened.page.evaluate(
            "JSON.parse(document.getElementById('figures').textContent)[0].traces"
        )
        if t["meta"] == "run0"
    )
    assert marks("prefill") == chunks > 100


def test_a_wrong_answer_says_so_on_hover(opened: Opened) -> None:
    box = opened.page.locator("#plot-retrieval-0")
    box.scroll_into_view_if_needed()
    traces = opened.page.evaluate(
        "JSON.parse(document.getElementById('figures').textContent)"
        ".find(f => f.name === 'retrieval-0').traces.map(t => t.meta)"
    )
    curve = traces.index("state-partly")
    opened.page.evaluate(
        f"Plotly.Fx.hover('plot-retrieval-0', [{{curveNumber: {curve}, pointNumber: 0}}])"
    )
    hover = opened.page.locator("#plot-retrieval-0 .hovertext")
    hover.wait_for()
    said = hover.text_content()
    assert "digit_changed, expected MEM-072001, got MEM-999999" in said
    assert "</script><script>window.hacked=1" in said
    assert opened.page.evaluate("window.hacked") is None


def test_the_keyboard_walks_through_marks_and_opens_tables(opened: Opened) -> None:
    opened.page.focus("#plot-generation")
    opened.page.keyboard.press("ArrowDown")  # from the baseline to the samples
    opened.page.keyboard.press("ArrowDown")  # to the medians
    opened.page.keyboard.press("ArrowRight")
    said = opened.page.inner_text("#said-generation")
    assert "this run" in said
    assert "8192" in said
    opened.page.keyboard.press("Tab")
    opened.page.keyboard.press("Enter")
    table = opened.page.locator("section[aria-labelledby=generation] details[open] tbody tr")
    assert table.count() == len(DEPTHS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, TABLET, DESKTOP], ids=["phone", "tablet", "desktop"])
def test_it_fits_and_follows_the_colour_scheme(
    browser: Any, report: Path, scheme: str, viewport: dict[str, int]
) -> None:
    made = Opened(browser, report, viewport=viewport, color_scheme=scheme)
    background = "getComputedStyle(document.body).backgroundColor"
    plot = "document.querySelector('#plot-prefill .main-svg').style.background"
    try:
        assert made.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        outcomes = made.page.locator("table.cells td .outcome").all()
        edges = [box["x"] + box["width"] for o in outcomes if (box := o.bounding_box())]
        assert len(edges) == 5 * len(DEPTHS)
        assert max(edges) <= viewport["width"] - 16  # seen without scrolling sideways
        hidden = "t => t.parentElement.scrollWidth - t.parentElement.clientWidth"
        if viewport != PHONE:
            assert made.page.locator("table.cells").first.evaluate(hidden) == 0
        first = made.page.evaluate(background)
        assert (first == "rgb(255, 255, 255)") == (scheme == "light")
        assert made.page.evaluate(plot) == first
        made.page.click("#theme")
        other = made.page.evaluate(background)
        assert other != first
        assert made.page.evaluate(plot) == other
        assert made.said == []
    finally:
        made.page.close()

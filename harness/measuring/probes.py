"""The probes beside the ladder, each run once a session: heatmap, fuzz, harder tests, family."""

from pathlib import Path
from typing import Literal

from harness.errors import SetupError
from harness.measuring.asking import Interview
from harness.measuring.family import FamilyClimb
from harness.measuring.harder import HarderClimb
from harness.measuring.heatmap import HeatmapClimb
from harness.measuring.sitting import Sitting
from harness.questions.family import MEMBERS
from harness.records.baseline import Baseline
from harness.records.family import FAMILY_EVENT, FamilyResult, FamilyRung
from harness.records.lines import Event
from harness.records.probes import (
    HEATMAP_EVENT,
    SCORE_EVENT,
    Matrix,
    ProbeScore,
    heatmap_sentence,
)
from harness.serving.gguf_file import model_identity, read_gguf
from harness.serving.packaged import member_model, reference_model
from harness.verdicts.cell import NEXT_STEPS
from harness.verdicts.family import judge_family
from harness.verdicts.harder import HARDER_EVENT, as_data, cells, judge_harder
from harness.verdicts.probes import ProbeVerdict, judge_heatmap, judge_probe, score_heatmap

PLACEMENT_SHARE = 4
"""One placement, which takes a document, for as many examples of questions, which take a tail."""

ProbeKind = Literal["heatmap", "questions", "placements", "harder", "family"]


class Probes:
    """Runs probes on an open server, records them, and judges them."""

    def __init__(self, sitting: Sitting, baseline: Baseline | None) -> None:
        self._sitting = sitting
        self._settings = sitting.settings
        self._accepted = baseline.probes() if baseline is not None else []

    def run(self, kind: ProbeKind) -> ProbeVerdict:
        """Run one probe and judge it.

        Raises:
            ServerError: the server failed on the way.
            SetupError: a shape that does not fit the context, or not a llama-server.
        """
        if kind == "heatmap":
            return self._heatmap()
        if kind == "harder":
            return self._harder()
        if kind == "family":
            return self._family()
        return self._fuzz(kind)

    def _heatmap(self) -> ProbeVerdict:
        """Read one document up to the context, ask every cell on the way, and judge the matrix."""
        climb = HeatmapClimb(self._interview("heatmap"))
        matrix = climb.run()
        self._sitting.append(
            Event(code=HEATMAP_EVENT, message=heatmap_sentence(matrix), data=matrix.model_dump())
        )
        return self._judged_heatmap(matrix)

    def _fuzz(self, kind: Literal["questions", "placements"]) -> ProbeVerdict:
        """Fuzz order and subset of questions, or placement, and judge the share that was right."""
        from harness.measuring.fuzz import Fuzz

        assert self._settings.fuzz_examples is not None
        folder = self._settings.results / "fuzz-examples" / self._sitting.session.model.identity
        fuzz = Fuzz(self._interview("fuzz"), examples_dir=folder, exact=self._exact)
        wanted = self._settings.fuzz_examples
        if kind == "questions":
            found = fuzz.questions(wanted)
        else:
            found = fuzz.placements(-(-wanted // PLACEMENT_SHARE))
        if found.failure is None:
            said = (
                f"{found.score.right}/{found.score.asked} right in {found.examples} examples of "
                f"{kind} at {self._settings.fuzz_depth} tokens"
            )
            return self._judged(found.score, said)
        how = (
            "an example of an earlier run still fails"
            if found.replayed
            else f"wrong in {found.examples} examples; the smallest that fails"
        )
        said = f"{how}: {found.failure}\nkept in {folder}; later runs replay it first"
        self._keep(found.score, said)
        return ProbeVerdict("REGRESSED", said, _EXACT_STEP)

    def _harder(self) -> ProbeVerdict:
        """Ask the harder tasks at every rung, and judge what fell against the accepted runs."""
        climb = HarderClimb(self._interview("harder"))
        scores: list[ProbeScore] = []
        contaminated = 0
        for asked in climb.run():
            scores.append(asked.score)
            contaminated += asked.contaminated
            self._keep(asked.score, asked.sentence)
        found = cells(scores, self._accepted)
        verdict = judge_harder(found, _NOT_MADE if self._exact else "")
        if contaminated:
            said = f"a code of an earlier request in {contaminated} answers; {verdict.message}"
            verdict = ProbeVerdict("INVALID", said, NEXT_STEPS["contaminated"])
        said = f"harder tests {verdict.outcome}: {verdict.message}"
        self._sitting.append(Event(code=HARDER_EVENT, message=said, data=as_data(found)))
        return verdict

    def _family(self) -> ProbeVerdict:
        """Ask the served member of the family at every rung, and judge what its layer answers."""
        assert self._settings.family is not None
        self._refuse_other_model(member_model(self._settings.family))
        climb = FamilyClimb(self._interview("family"), MEMBERS[self._settings.family])
        rungs: list[FamilyRung] = []
        for rung in climb.run():
            rungs.append(rung)
            self._sitting.reporter.say(
                f"{self._settings.family} at {rung.depth}: {rung.right}/{rung.asked} right"
            )
        result = FamilyResult(member=self._settings.family, rungs=tuple(rungs))
        verdict = judge_family(result)
        event = Event(code=FAMILY_EVENT, message=verdict.message, data=result.model_dump())
        self._sitting.append(event)
        return verdict

    def _judged_heatmap(self, matrix: Matrix) -> ProbeVerdict:
        said = heatmap_sentence(matrix)
        score = score_heatmap(matrix, exact=self._exact)
        verdict = judge_heatmap(matrix, said, self._accepted, exact=self._exact)
        self._keep(score, verdict.message)
        return verdict

    def _judged(self, score: ProbeScore, said: str) -> ProbeVerdict:
        verdict = judge_probe(score, said, self._accepted, exact=self._exact)
        self._keep(score, verdict.message)
        return verdict

    def _keep(self, score: ProbeScore, said: str) -> None:
        self._sitting.append(Event(code=SCORE_EVENT, message=said, data=score.model_dump()))

    def _interview(self, probe: Literal["heatmap", "fuzz", "harder", "family"]) -> Interview:
        if not self._sitting.script.native:
            raise SetupError(
                f"{_NAMES[probe]} a llama-server, where it is known what was read anew; this "
                "server is measured in reduced mode"
            )
        return Interview(self._sitting, probe)

    def _refuse_other_model(self, path: Path) -> None:
        """A member's questions say nothing of another model's engine."""
        served = self._sitting.session.model
        if served.content_hash != model_identity(read_gguf(path)).content_hash:
            raise SetupError(
                f"--reference serves {path.name}, and the server has {served.name}; leave --model "
                "and its like out of the server's flags"
            )

    @property
    def _exact(self) -> bool:
        """Whether the server serves the reference model, which answers everything right."""
        found = self._sitting.session.model.content_hash
        return found is not None and found == _reference_hash()


_NAMES = {
    "heatmap": "the heatmap needs",
    "fuzz": "the fuzz needs",
    "harder": "the harder tests need",
    "family": "the family needs",
}
_NOT_MADE = "; the reference model was not made for these tasks: its wrong answers are no fault"
_EXACT_STEP = "this model answers all of this right: look for the fault in the engine or its flags"


def _reference_hash() -> str | None:
    return model_identity(read_gguf(reference_model())).content_hash

"""Spot runs: a rung's document is restored from its kept KV cache, and only its end read again."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from harness.errors import ServerError
from harness.llamacpp.flags import values_of
from harness.llamacpp.kv import GIB
from harness.measuring.script import Script
from harness.quantities import depth_label, number
from harness.records.baseline import Baseline
from harness.records.fidelity import Numbers
from harness.records.files import Recorder
from harness.records.lines import NOT_SPOT, SPOT, Event, Plan
from harness.records.samples import REUSE_TOLERANCE_TOKENS
from harness.serving.fidelity import native_steps
from harness.serving.kept import (
    Keeping,
    Manifest,
    damage,
    file_name,
    forecast_bytes,
    key_of,
    manifest_of,
)
from harness.serving.session import Session
from harness.serving.slots import Slots, number_in, slots_folder
from harness.settings import Settings
from harness.verdicts.fidelity import MATTERS_NATS, apart

BATCHES = 6
"""So many of its last batches are read again: a curve of fewer than four is not judged."""
_WORTH_BATCHES = 2 * BATCHES
"""A shorter document is read whole."""
_FRESH_SHARE = 0.25
"""Of the deepest document, what may be read afresh to hold the restored one against."""
_LOOK_TOKENS = 32


class Spot:
    """The kept documents of a ladder, by depth, for one server."""

    def __init__(
        self, session: Session, script: Script, folder: Path, kept: Mapping[int, Manifest]
    ) -> None:
        self._client = session.client
        self._script = script
        self._folder = folder
        self._kept = kept
        batch = values_of(session.identity.argv).get("--batch-size", "")
        self._last_tokens = BATCHES * (int(batch) if batch.isdigit() else 2048)
        worth = _WORTH_BATCHES * self._last_tokens // BATCHES
        self.depths = tuple(d for d in kept if script.segment(d).total_tokens >= worth)

    def planned(self, plan: Plan) -> Plan:
        """The plan without cold repeats of what is restored."""
        cold = {d: n for d, n in plan.cold_repeats.items() if d not in self.depths}
        return plan.model_copy(update={"cold_repeats": cold})

    def event(self) -> Event:
        """What the record and the summary say of it."""
        runs = dict.fromkeys(f"{m.run_id} ({m.build})" for m in self._kept.values())
        said = (
            f"spot run: of the documents of {', '.join(map(depth_label, self.depths))} all but the "
            f"last {self._last_tokens} tokens or so were restored as run {', '.join(runs)} kept "
            "them; not covered: the reading of whole documents by this build"
        )
        data = {"depths": self.depths, "kept": [m.model_dump() for m in self._kept.values()]}
        return Event(code=SPOT, message=said, data=data)

    def doubt(self) -> str | None:
        """Why the files are not to be built upon, by the shallowest rung; `None`: they may be."""
        depth = min(self._kept)
        text = self._script.head + self._script.document(depth)
        try:
            self._client.prefill(text, reuse=False)
            fresh = self._look(depth)
            self.restore(depth)
            self._client.prefill(text, reuse=True)
            restored = self._look(depth)
        except ServerError as error:
            return f"the server does not take the kept document of {depth_label(depth)}: {error}"
        found = apart(fresh, restored)
        if found is None or found.mean > MATTERS_NATS:
            far = "nothing to compare" if found is None else f"KL {number(found.mean)} nats"
            return (
                f"behind the restored document of {depth_label(depth)} it does not answer as "
                f"behind the same one freshly read ({far})"
            )
        return None

    def restore(self, depth: int) -> int:
        """Have the document of `depth` in the cache but for its last batches; the tokens there.

        Raises:
            ServerError: the server refuses the file, or cannot roll back what it restored.
        """
        kept = self._kept[depth]
        answer = self._client.post("/slots/0?action=restore", {"filename": file_name(kept)})
        if (restored := number_in(answer, "n_restored")) != kept.tokens:
            raise ServerError(f"it restored {restored:.0f} of {kept.tokens} kept tokens")
        exchange = self._client.prefill(self._script.head + self._beginning(depth), reuse=True)
        read, total = exchange.new_tokens or 0, exchange.reused_tokens or 0
        if read > REUSE_TOLERANCE_TOKENS:
            raise ServerError(
                f"it cannot roll the restored cache back to its last batches and read {read} of "
                f"{read + total} tokens again: of sliding windows and recurrent states only the "
                "end is saved"
            )
        return read + total

    def _beginning(self, depth: int) -> str:
        """The document without its last batches, but at least its first half."""
        lines = self._script.document(depth).splitlines(keepends=True)
        wanted = min(self._last_tokens, self._script.segment(depth).total_tokens // 2)
        count, seen = 0, 0
        while seen < wanted:
            block = lines[-count - 32 : -count or None]
            for tokens in reversed(self._script.count(block)):
                count, seen = count + 1, seen + tokens
                if seen >= wanted:
                    break
        return "".join(lines[:-count])

    def _look(self, depth: int) -> Numbers:
        script = self._script
        tail = script.fixed_ask(depth).tail + script.end
        prompt = script.head + script.document(depth) + tail
        return Numbers(prompt="same", steps=(native_steps(self._client, prompt, _LOOK_TOKENS)[0],))


def find_spot(
    session: Session,
    script: Script,
    settings: Settings,
    deepest: int,
    baseline: Baseline | None,
) -> tuple[Spot | None, Event]:
    """The kept documents of a run, looked over, if they may be used; what is to be said of it."""
    found = _find(session, script, settings, deepest, accepted_runs(baseline))
    return (None, not_spot(found)) if isinstance(found, str) else (found, found.event())


def accepted_runs(baseline: Baseline | None) -> frozenset[str] | None:
    """The runs in a baseline; `None` where there is none."""
    if baseline is None:
        return None
    return frozenset(run.run_id for run in (*baseline.runs, *baseline.anchor))


def _find(
    session: Session,
    script: Script,
    settings: Settings,
    deepest: int,
    accepted: Collection[str] | None,
) -> Spot | str:
    folder = slots_folder(settings)
    if folder is None or session.running is None or not script.native:
        return "only a server that is started here can be given kept files"
    if session.model.content_hash is None:
        return "the model's file cannot be read here, so that no kept file can be told to be its"
    kept: dict[int, Manifest] = {}
    for depth in (d for d in script.plan.depths if d <= deepest):
        found = manifest_of(folder, key_of(session, script.head + script.document(depth)))
        at = f"the KV cache of the document of {depth_label(depth)}"
        if found is None:
            return f"{at} is not kept for this model, its flags and this plan (--keep-kv)"
        if accepted is not None and found.run_id not in accepted:
            return f"{at} was kept by run {found.run_id}, which is not in the baseline"
        if (wrong := damage(folder, found)) is not None:
            return f"{at} is damaged: {wrong}"
        kept[depth] = found
    if kept[min(kept)].tokens > _FRESH_SHARE * kept[max(kept)].tokens:
        return "its ladder has no short rung to hold a restored document against; add --depths 2048"
    spot = Spot(session, script, folder, kept)
    if not spot.depths:
        return "its documents are so short that all would be read"
    return spot.doubt() or spot


def saving(
    session: Session,
    script: Script,
    settings: Settings,
    recorder: Recorder,
    *,
    deepest: int,
    baseline: Baseline | None,
    say: Callable[[str], None],
) -> Slots | None:
    """What saves a run's documents, to be resumed or to be kept (what these will take is said)."""
    folder = slots_folder(settings)
    if folder is None or session.running is None or not script.native:
        return None
    about = (session.client, folder, recorder.path.stem, recorder.append)
    if not settings.keep_kv:
        return Slots(*about) if settings.resume or settings.save_slots else None
    found = Keeping(
        *about,
        key=lambda depth: key_of(session, script.head + script.document(depth)),
        build=session.identity.build,
        accepted=accepted_runs(baseline) or (),
        limit_bytes=settings.keep_kv_limit * GIB,
        say=say,
    )
    rungs = zip(script.plan.depths, script.plan.document_tokens, strict=True)
    tokens = [n + script.head_tokens for depth, n in rungs if depth <= deepest]
    found.announce(forecast_bytes(session, settings, tokens))
    return found


def not_spot(why: str) -> Event:
    """What the record and the summary say of a spot run that became a full one."""
    return Event(code=NOT_SPOT, message=f"a spot run was asked for, but {why}; measured in full")

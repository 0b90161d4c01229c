"""The family: reference models for one kind of layer each, and what their wrong answers mean.

A member answers questions that only its layer can, and answers all of them right on a right engine.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from harness.questions.haystack import Placed, Segment

Kind = Literal["registers", "window"]

FamilyClass = Literal[
    "right",
    "chunk_boundary",
    "outside_window",
    "narrow_window",
    "stale_state",
    "lost_state",
    "unreadable",
]
"""What an answer is; those after `right` in the order in which ties are broken."""

_TIE_ORDER: tuple[FamilyClass, ...] = get_args(FamilyClass)


@dataclass(frozen=True, slots=True)
class Member:
    """A model of the family: its file, its special layer, and the questions it is asked.

    `part` is what is wrong when it answers wrong; `kernel` is what to suspect then.
    """

    name: str
    file: str
    architecture: str
    layer: str
    head_sizes: str
    kind: Kind
    part: str
    kernel: str
    proves: str


MEMBERS: dict[str, Member] = {
    m.name: m
    for m in (
        Member(
            "gdn",
            "reference-gdn-f16.gguf",
            "qwen35",
            "Gated DeltaNet",
            "keys and values 128; 2 key heads, 4 value heads",
            "registers",
            "the recurrent state",
            "Gated-DeltaNet kernel",
            "the state is carried, written, forgotten and read: chunks, micro-batches, convolution",
        ),
        Member(
            "window",
            "reference-window-f16.gguf",
            "gemma3",
            "sliding window",
            "256; 1 head; window 128",
            "window",
            "the attention window",
            "sliding-window mask or cache",
            "the window ends where it should, to the token, over a document's cached end",
        ),
    )
}
"""In the order in which they are asked."""

HEAD, END = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
"""What a member's own chat template puts around a message; it answers after nothing else."""

NEEDLES = "attention"
"""The name of the packaged model of plain attention, which is asked for needles."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one thing asked; `note` says it in words."""

    asked: str
    kind: FamilyClass
    expected: str
    given: str | None
    note: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One answer: its class, its findings, and a sentence.

    `near_right` is about what stands right next to the question, at no distance; `None` where
    nothing of that kind was asked.
    """

    kind: FamilyClass
    findings: tuple[Finding, ...]
    near_right: bool | None
    reason: str

    @staticmethod
    def of(findings: Sequence[Finding], *, near_right: bool | None) -> "Diagnosis":
        """The class that most of the wrong findings have."""
        wrong = [f for f in findings if f.kind != "right"]
        if not wrong:
            return Diagnosis("right", tuple(findings), near_right, "")
        counts = Counter(f.kind for f in wrong)
        kind = min(counts, key=lambda k: (-counts[k], _TIE_ORDER.index(k)))
        reason = "; ".join(f.note for f in wrong if f.kind == kind)
        return Diagnosis(kind, tuple(findings), near_right, reason)


@dataclass(frozen=True, slots=True)
class FamilyAsk:
    """One request: what follows the document, the right answer, and how an answer is read."""

    tail: str
    expected: str
    diagnose: Callable[[str], Diagnosis]


class FamilyPlan(Protocol):
    """What a member's document holds, and what is asked of it.

    `planned` and `decoys` are as `haystack.grow` takes them.
    """

    @property
    def planned(self) -> Mapping[int, Sequence[Placed]]:
        """Each rung's own."""
        ...

    @property
    def decoys(self) -> Sequence[Placed]:
        """What belongs to no rung."""
        ...

    def asks(
        self, segments: Sequence[Segment], tokens_after: Callable[[str], int]
    ) -> list[FamilyAsk]:
        """The requests about a document of `segments`, up to and with a rung's own.

        `tokens_after` counts a text with what the chat template puts after it.
        """
        ...

"""Exactness of a member on a real server: the product's own documents and asks, whole answers.

    python -m training.family.accept --member gdn --spec 32768:8 -- -t 1 -ub 64

Each answer is a row of the results file; documents already there are not read again. Of each
document the first ask is read cold and the others go on from its end, as in a climb.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from harness.measuring.family import ANSWER_TOKENS, plan_of
from harness.questions.family import END, HEAD, MEMBERS, FamilyAsk, Member
from harness.questions.haystack import Segment, grow
from harness.serving.packaged import member_model
from training.evaluate import read, serving
from training.gguf_tokenizer import tokenizer_of_gguf

_ROOM = 500


class Documents:
    """A member's documents by seed, counted by its own tokenizer."""

    def __init__(self, member: Member, model: Path) -> None:
        self._member = member
        self._tokenizer = tokenizer_of_gguf(model)

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [len(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts))]

    def made(self, length: int, seed: int, ubatch: int = 512) -> tuple[Segment, list[FamilyAsk]]:
        """The document of that seed, of about `length` tokens with its question, and its asks."""
        budgets = [(length, length - _ROOM)]
        head_tokens = self.count([HEAD])[0]
        rng = random.Random(f"accept/{self._member.name}/{length}/{seed}")
        plan = plan_of(self._member, budgets, rng, ubatch_tokens=ubatch, head_tokens=head_tokens)
        (segment,) = grow(
            budgets,
            plan.planned,
            self.count,
            seed=seed,
            background="plain",
            distractors=plan.decoys,
        )
        return segment, plan.asks([segment], lambda text: self.count([text + END])[0])


def ask(url: str, text: str, wanted: FamilyAsk, *, reuse: bool) -> dict[str, Any]:
    """One request, and whether its answer is exactly right and ended by itself."""
    body = {
        "messages": [{"role": "user", "content": text + wanted.tail}],
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
        "cache_prompt": reuse,
        "id_slot": 0,
    }
    reply = httpx2.post(url + "/v1/chat/completions", json=body, timeout=3600)
    reply.raise_for_status()
    said = reply.json()
    choice = said["choices"][0]
    got = choice["message"]["content"] or ""
    diagnosis = wanted.diagnose(got)
    row = {
        "exact": got.strip() == wanted.expected and choice["finish_reason"] == "stop",
        "class": diagnosis.kind,
        "prompt_tokens": said["usage"]["prompt_tokens"],
        "new_tokens": said.get("timings", {}).get("prompt_n"),
    }
    if not row["exact"]:
        row |= {"wanted": wanted.expected, "got": got, "reason": diagnosis.reason}
    return row


def accept(
    member: Member,
    model: Path,
    url: str,
    spec: Sequence[str],
    results: Path,
    *,
    labels: dict[str, str],
    limit_s: float,
) -> None:
    """Ask LENGTH:COUNT answers, a line each as they come."""
    documents, began = Documents(member, model), time.monotonic()
    done = read(results)
    results.parent.mkdir(parents=True, exist_ok=True)
    for item in spec:
        length, number = (int(part) for part in item.split(":"))
        key = {"member": member.name, "length": length, **labels}
        old = [row for row in done if all(row.get(k) == v for k, v in key.items())]
        asked, seed = len(old), max((row["seed"] for row in old), default=-1) + 1
        while asked < number and time.monotonic() - began < limit_s:
            segment, asks = documents.made(length, seed)
            for place, wanted in enumerate(asks):
                row = {**key, "seed": seed, "place": place}
                row |= ask(url, segment.text, wanted, reuse=place > 0)
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                asked += 1
            seed += 1
        print(summary(results, key), flush=True)


def summary(results: Path, key: dict[str, Any]) -> str:
    """Exact of asked, and the classes of what was not."""
    rows = [row for row in read(results) if all(row.get(k) == v for k, v in key.items())]
    exact = sum(row["exact"] for row in rows)
    wrong = Counter(row["class"] for row in rows if not row["exact"])
    said = f"{key['member']} at {key['length']}: {exact}/{len(rows)} exact"
    return said + (f", {dict(wrong)}" if wrong else "")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--member", required=True, choices=list(MEMBERS))
    p.add_argument("--model", type=Path, help="GGUF (default: the packaged member)")
    p.add_argument("--server", default="embedded", help="embedded, or a llama-server")
    p.add_argument("--spec", nargs="+", default=["2048:500", "8192:500"], metavar="LENGTH:COUNT")
    p.add_argument("--limit-s", type=float, default=float("inf"))
    p.add_argument("--results", type=Path, default=Path("build/family/accepted.jsonl"))
    p.add_argument("--note", default="", help="tells these answers from others in the results")
    p.add_argument("flags", nargs="*", help="more flags for the server, after --")
    args = p.parse_args()
    model = args.model or member_model(args.member)
    deepest = max(int(item.split(":")[0]) for item in args.spec)
    labels = {"server": args.server, "flags": " ".join(args.flags), "note": args.note}
    with serving(args.server, model, deepest, args.flags) as url:
        accept(
            MEMBERS[args.member],
            model,
            url,
            args.spec,
            args.results,
            labels=labels,
            limit_s=args.limit_s,
        )


if __name__ == "__main__":
    main()

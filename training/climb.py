"""Long contexts on a real server: one document is read once, and asked in several ways per rung.

    python -m training.climb --rungs 32768 65536 131072 --documents 1 --results build/climb.jsonl

The document is sent in steps, each a prefix of the next, so that every step's tokens are read
once; then each rung's five needles and its control are asked forward, reversed and shuffled in
English and forward in Japanese, on the cached prefix. `cache_n` is read back and kept.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

from harness.questions.background import Background
from harness.questions.haystack import build
from harness.questions.needles import ORDERS, Ask, CodeSource, Language, Needle, Order, make_ask
from harness.serving.packaged import reference_model
from training.evaluate import ANSWER_TOKENS, Row, read, serving, summary
from training.gguf_tokenizer import tokenizer_of_gguf
from training.prompts import Prompt

_TAIL_TOKENS = 260
_HEAD = "<|im_start|>user\n"
_TIMEOUT_S = 3600

Post = Callable[[str, dict[str, object]], dict[str, Any]]


def post(url: str, body: dict[str, object]) -> dict[str, Any]:
    """One POST; the JSON that came back."""
    reply = httpx2.post(url, json=body, timeout=_TIMEOUT_S)
    reply.raise_for_status()
    return dict(reply.json())


def asks(needles: Sequence[Needle], codes: CodeSource, rng: random.Random) -> list[Ask]:
    """The four ways a rung is asked."""
    ways: list[tuple[Order, Language]] = [*((order, "en") for order in ORDERS), ("forward", "ja")]
    return [make_ask(needles, codes, order, rng, language=language) for order, language in ways]


def climb(
    url: str,
    model: Path,
    rungs: Sequence[int],
    seed: int,
    background: Background,
    *,
    step_tokens: int,
    labels: Row,
    send: Post = post,
) -> list[Row]:
    """One document up the rungs; a row for each ask."""
    tokenizer = tokenizer_of_gguf(model)

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]

    rng = random.Random(f"climb/{seed}/{background}")
    codes = CodeSource(rng)
    budgets = [(rung, rung - _TAIL_TOKENS) for rung in rungs]
    segments = build(budgets, count, codes, seed=seed, background=background)
    said = ""
    rows: list[Row] = []
    for segment in segments:
        began = time.perf_counter()
        lines = segment.text.splitlines(keepends=True)
        sizes = count(lines)
        room = step_tokens
        for i, (line, size) in enumerate(zip(lines, sizes, strict=True)):
            said += line
            room -= size
            if room <= 0 or i == len(lines) - 1:
                send(
                    url + "/completion",
                    {"prompt": _HEAD + said, "n_predict": 0, "cache_prompt": True, "id_slot": 0},
                )
                room = step_tokens
        read_s = time.perf_counter() - began
        needles = [placed.needle for placed in segment.needles]
        for ask in asks(needles, codes, rng):
            row = _ask(url, said, ask, send)
            rows.append(
                {
                    **labels,
                    "style": "climb",
                    "background": background,
                    "length": segment.depth,
                    "seed": seed,
                    "language": ask.language,
                    "prompt_tok_s": round(segment.tokens / read_s, 1),
                    **row,
                }
            )
    return rows


def _ask(url: str, document: str, ask: Ask, send: Post) -> Row:
    prompt = Prompt((("user", document + ask.tail),), ask.answer, ask.order)
    said = send(
        url + "/completion",
        {
            "prompt": prompt.chatml,
            "n_predict": ANSWER_TOKENS,
            "temperature": 0,
            "cache_prompt": True,
            "id_slot": 0,
        },
    )
    text = str(said["content"])
    wanted, got = ask.answer.split("\n"), text.split("\n")
    exact = text == ask.answer and said.get("stop_type", "eos") == "eos"
    timings = said["timings"]
    row: Row = {
        "exact": exact,
        "order": ask.order,
        "lines": len(wanted),
        "lines_right": sum(a == b for a, b in zip(wanted, got, strict=False)),
        "prompt_tokens": timings.get("cache_n", 0) + timings.get("prompt_n", 0),
        "cache_n": timings.get("cache_n"),
        "predicted_tok_s": round(timings.get("predicted_per_second", 0.0), 1),
    }
    return row if exact else row | {"wanted": wanted, "got": got}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--server", default="embedded", help="embedded, or a llama-server binary")
    p.add_argument("--name", help="what the table calls the server (default: its file name)")
    p.add_argument("--model", type=Path, help="GGUF (default: the packaged reference model)")
    p.add_argument("--rungs", type=int, nargs="+", default=[32768])
    p.add_argument("--documents", type=int, default=1)
    p.add_argument("--step", type=int, default=12_288, help="tokens sent at a time")
    p.add_argument("--background", default="plain", choices=["plain", "hard"])
    p.add_argument("--kv", default="f16", choices=["f16", "q8_0", "q4_0"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seed", type=int, default=50_000)
    p.add_argument("--port", type=int, help="give one to each of several side by side")
    p.add_argument("--results", type=Path, default=Path("build/climb.jsonl"))
    p.add_argument("flags", nargs="*", help="more server flags, after --")
    return p


def main() -> None:
    args = parser().parse_args()
    run(args)
    print(summary(read(args.results)))


def run(args: argparse.Namespace, send: Post = post) -> None:
    """Climb with each document and append the rows to the results file.

    Documents already there are not read again.
    """
    model = args.model or reference_model()
    kv = [] if args.kv == "f16" else ["-ctk", args.kv, "-ctv", args.kv]
    threads = str(args.threads)
    flags = ["-t", threads, "-tb", threads, *kv, *args.flags]
    name = args.name or Path(args.server).name
    labels = {"server": name, "kv": args.kv, "flags": " ".join(args.flags)}
    top = {**labels, "background": args.background, "length": max(args.rungs)}
    old = [row for row in read(args.results) if all(row[k] == top[k] for k in top)]
    done = {row["seed"] for row in old if row["style"] == "climb"}
    todo = [s for s in range(args.seed, args.seed + args.documents) if s not in done]
    if not todo:
        return
    with serving(args.server, model, max(args.rungs) + 512, flags, args.port) as url:
        for seed in todo:
            rows = climb(
                url,
                model,
                args.rungs,
                seed,
                args.background,
                step_tokens=args.step,
                labels=labels,
                send=send,
            )
            args.results.parent.mkdir(parents=True, exist_ok=True)
            with args.results.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            right = sum(row["exact"] for row in rows)
            print(f"document {seed}: {right}/{len(rows)} exact", file=sys.stderr)


if __name__ == "__main__":
    main()

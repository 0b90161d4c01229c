"""Exactness on a real server: whole prompts over HTTP, temperature 0, answers compared as text.

    python -m training.evaluate --spec 2048:100 --results build/evaluation.jsonl
    python -m training.evaluate --server /path/to/llama-server --spec 8192:20 -- -t 2 -ctk q8_0 …

Each prompt is a row of the results file; prompts already there are not asked again, so a long
evaluation can be done in pieces (`--limit-s`). `--summary` prints the table of a results file, or
of a folder of them. Other prompts than those counted before: another `--seed`.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from harness.questions.background import Background
from harness.serving.launch import LaunchSpec, RunningServer, free_port
from harness.serving.packaged import reference_model
from training.gguf_tokenizer import tokenizer_of_gguf
from training.prompts import STYLES, Prompt, Style, make_prompt

ANSWER_TOKENS = 200
"""Answer tokens of the largest ask (9 questions) and some."""

Row = dict[str, Any]
KEYS = ("server", "kv", "flags", "background", "style", "length")
_ONE = (*KEYS, "seed", "order", "language")
"""What tells one prompt from another; the order and the language matter in climbs alone."""


@contextmanager
def serving(
    server: str, model: Path, n_ctx: int, flags: Sequence[str], port: int | None = None
) -> Iterator[str]:
    """Base URL of a server with one slot on that model; `server` is `embedded` or a binary.

    Servers that run side by side need ports given: one found free may be taken twice, and a
    server that shares its port with another gets some of the other's requests.
    """
    port = port or free_port()
    program = (
        (sys.executable, "-m", "harness.serving.embedded") if server == "embedded" else (server,)
    )
    argv = (
        *program,
        *("--model", str(model), "--port", str(port), "-c", str(n_ctx), "-np", "1"),
        *("--cache-ram", "0", *flags),
    )
    running = RunningServer(LaunchSpec(argv, port, Path(f"build/servers/{port}.log")))
    try:
        url = running.spec.base_url
        deadline = time.monotonic() + 120
        while not _healthy(url) or not running.alive:
            if not running.alive or time.monotonic() > deadline:
                raise SystemExit("the server did not come up:\n" + "\n".join(running.log_tail()))
            time.sleep(0.1)
        yield url
    finally:
        running.stop()


def _healthy(url: str) -> bool:
    try:
        return httpx2.get(url + "/health", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


def ask(url: str, prompt: Prompt) -> Row:
    """Send one prompt; what came back and whether it is exactly right."""
    body = {
        "messages": [{"role": role, "content": text} for role, text in prompt.messages],
        "temperature": 0,
        "max_tokens": ANSWER_TOKENS,
        "cache_prompt": False,
    }
    reply = httpx2.post(url + "/v1/chat/completions", json=body, timeout=3600)
    if reply.status_code != 200:
        return {"exact": False, "error": reply.text[:300], "order": prompt.order}
    said = reply.json()
    choice = said["choices"][0]
    text = choice["message"]["content"] or ""
    wanted, got = prompt.expected.split("\n"), text.split("\n")
    exact = text == prompt.expected and choice["finish_reason"] == "stop"
    timings = said.get("timings", {})
    row: Row = {
        "exact": exact,
        "lines": len(wanted),
        "lines_right": sum(a == b for a, b in zip(wanted, got, strict=False)),
        "order": prompt.order,
        "prompt_tokens": said["usage"]["prompt_tokens"],
        "prompt_tok_s": round(timings.get("prompt_per_second", 0.0), 1),
        "predicted_tok_s": round(timings.get("predicted_per_second", 0.0), 1),
    }
    if not exact:
        row |= {"wanted": wanted, "got": got, "finish": choice["finish_reason"]}
    return row


def evaluate(
    url: str,
    model: Path,
    spec: Iterable[str],
    style: Style,
    background: Background,
    *,
    labels: Row,
    results: Path,
    first_seed: int = 90_000,
    limit_s: float | None = None,
) -> list[Row]:
    """Ask LENGTH:COUNT prompts and append a row each; returns the rows, old ones included."""
    tokenizer = tokenizer_of_gguf(model)

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]

    old = read(results)
    began = time.monotonic()
    rows: list[Row] = []
    for item in spec:
        length, number = (int(part) for part in item.split(":"))
        key = {**labels, "style": style, "background": background, "length": length}
        done = {row["seed"]: row for row in old if all(row[k] == key[k] for k in KEYS)}
        for seed in range(first_seed, first_seed + number):
            if seed in done:
                rows.append(done[seed])
                continue
            if limit_s is not None and time.monotonic() - began > limit_s:
                return rows
            prompt = make_prompt(seed, length, style, background, count)
            row = {**key, "seed": seed, **ask(url, prompt)}
            rows.append(row)
            results.parent.mkdir(parents=True, exist_ok=True)
            with results.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    return rows


def read(results: Path) -> list[Row]:
    """All rows of a results file, or of all in a folder; none if there is no file."""
    if results.is_dir():
        return [row for path in sorted(results.glob("*.jsonl")) for row in read(path)]
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def distinct(rows: Iterable[Row]) -> list[Row]:
    """The rows without those of a prompt asked before: each counts as it came out first."""
    first: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        first.setdefault(tuple(row.get(key) for key in _ONE), row)
    return list(first.values())


def summary(rows: Iterable[Row]) -> str:
    """A Markdown table: one line per configuration, style, background and length."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in distinct(rows):
        groups.setdefault(tuple(row[key] for key in KEYS), []).append(row)
    out = [
        "| server | KV | flags | background | prompts | length | exact | lines right | "
        "forward / reversed / shuffled | prefill tok/s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in sorted(groups, key=str):
        server, kv, flags, background, style, length = key
        found = groups[key]
        exact = sum(row["exact"] for row in found)
        lines = sum(row.get("lines", 0) for row in found)
        right = sum(row.get("lines_right", 0) for row in found)
        orders = []
        for order in ("forward", "reversed", "shuffled"):
            own = [row for row in found if row["order"] == order]
            orders.append(f"{sum(row['exact'] for row in own)}/{len(own)}" if own else "–")
        speeds = sorted(row.get("prompt_tok_s", 0.0) for row in found)
        out.append(
            f"| {server} | {kv} | {flags or '–'} | {background} | {style} | {length} | "
            f"{exact}/{len(found)} | {right}/{lines} | {' '.join(orders)} | "
            f"{speeds[len(speeds) // 2]:.0f} |"
        )
    return "\n".join(out)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--server", default="embedded", help="embedded, or a llama-server binary")
    p.add_argument("--name", help="what the table calls the server (default: its file name)")
    p.add_argument("--model", type=Path, help="GGUF (default: the packaged reference model)")
    p.add_argument("--spec", nargs="+", default=[], metavar="TOKENS:COUNT")
    p.add_argument("--style", default="suite", choices=STYLES)
    p.add_argument("--background", default="plain", choices=["plain", "hard"])
    p.add_argument("--kv", default="f16", choices=["f16", "q8_0", "q4_0"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seed", type=int, default=90_000)
    p.add_argument("--limit-s", type=float, help="start no prompt after so many seconds")
    p.add_argument("--port", type=int, help="give one to each of several side by side")
    p.add_argument("--results", type=Path, default=Path("build/evaluation.jsonl"))
    p.add_argument("--summary", action="store_true", help="only print the table of --results")
    p.add_argument("flags", nargs="*", help="more server flags, after --")
    return p


def main() -> None:
    args = parser().parse_args()
    if args.summary:
        print(summary(read(args.results)))
        return
    model = args.model or reference_model()
    lengths = [int(item.split(":")[0]) for item in args.spec]
    kv = [] if args.kv == "f16" else ["-ctk", args.kv, "-ctv", args.kv]
    threads = str(args.threads)
    flags = ["-t", threads, "-tb", threads, *kv, *args.flags]
    name = args.name or Path(args.server).name
    labels = {"server": name, "kv": args.kv, "flags": " ".join(args.flags)}
    with serving(args.server, model, max(lengths) + 512, flags, args.port) as url:
        rows = evaluate(
            url,
            model,
            args.spec,
            args.style,
            args.background,
            labels=labels,
            results=args.results,
            first_seed=args.seed,
            limit_s=args.limit_s,
        )
    print(summary(rows))
    for row in rows:
        if not row["exact"]:
            print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()

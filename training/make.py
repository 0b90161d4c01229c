"""Make the reference model from nothing: tokenizer, two stages of training, GGUF, checks.

    python -m training.make                  one GPU, about 20 minutes with 14 or more CPU cores
    python -m training.make --tiny           CPU, about a minute: proves the pipeline, no recall
    python -m training.make --install        also put the GGUF in harness/models, if it is exact

A stage whose checkpoint exists is not run again, so a run that was cut off goes on where it was;
`--stop-after` ends early on purpose. Seeds are fixed, but GPU kernels add in any order: a second
run gives a model that behaves the same, not the same bytes.
"""

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from harness import models
from training import evaluate, longrun, train
from training.export import describe, export
from training.prompts import make_prompt
from training.tokenizer import build_tokenizer, load_tokenizer

GGUF_NAME = "reference-f16.gguf"


@dataclass(frozen=True, slots=True)
class StageRun:
    """One entry of the recipe; the data depend on the number of workers as well as on the seed."""

    stage: int
    steps: int
    seed: int
    crowd: tuple[int, int]
    workers: int = 14


RECIPE: tuple[StageRun, ...] = (
    StageRun(1, steps=11_800, seed=2, crowd=(1024, 32_768)),
    StageRun(2, steps=12_400, seed=4, crowd=(1024, 65_536)),
)
"""8 minutes a stage on one H200 (33 and 38 ms a step)."""

_TINY_STEPS = 130
_ANSWER = re.compile(r"Q\d+=[A-Z]{2,8}-\d+")


def make(folder: Path, *, stop_after: int | None, install: bool) -> None:
    """The whole recipe in `folder`."""
    tokenizer_path = folder / "tokenizer.json"
    tokenizer = load_tokenizer(tokenizer_path)
    before: Path | None = None
    for run in RECIPE:
        weights = folder / f"stage{run.stage}.pt"
        if not weights.exists():
            argv = [
                *("--stage", str(run.stage), "--steps", str(run.steps), "--seed", str(run.seed)),
                *("--crowd", *map(str, run.crowd), "--workers", str(run.workers)),
                *("--minutes", "30", "--out", str(weights), "--tokenizer", str(tokenizer_path)),
                *(("--init", str(before)) if before else ()),
            ]
            train.train(train.parser().parse_args(argv))
            torch.compiler.reset()
        before = weights
        if stop_after == run.stage:
            return
    assert before is not None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = train.load(before, device).eval().requires_grad_(False)
    spec = ["2048:100", "8192:20", "32768:10"]
    spec += ["131072:10", "1048576:2", "4194304:1"] if device == "cuda" else []
    table = longrun.run(
        model,
        tokenizer,
        spec,
        device,
        styles=["suite"],
        backgrounds=["plain"],
        kv_types=["f16", "q8_0"],
    )
    gguf = folder / GGUF_NAME
    export(model.cpu(), tokenizer, gguf)
    print(json.dumps(describe(gguf), indent=2))
    wrong = [row for row in table if row["wrong"]]
    if wrong:
        raise SystemExit(f"not exact, not installed: {wrong}")
    if install:
        home = Path(str(models.__file__)).parent
        shutil.copyfile(gguf, home / GGUF_NAME)
        described = json.dumps(describe(home / GGUF_NAME), indent=2)
        (home / "MODEL.json").write_text(described + "\n", encoding="utf-8")


def make_tiny(folder: Path) -> None:
    """A model too small to recall anything, through every step that the real one goes through.

    Raises:
        SystemExit: the loss did not fall, or the embedded server's answers do not parse.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = build_tokenizer(count=2_000)
    tokenizer.save(str(folder / "tokenizer.json"))
    argv = [
        *("--steps", str(_TINY_STEPS), "--batch", "8", "--length", "384", "--workers", "0"),
        *("--width", "128", "--feed-forward", "128", "--crowd", "32", "256"),
        *("--eager", "--log-every", "10"),
        *("--out", str(folder / "tiny.pt"), "--tokenizer", str(folder / "tokenizer.json")),
    ]
    log = train.train(train.parser().parse_args(argv), train.TINY_EASY)
    first, last = log[0]["answer"], log[-1]["answer"]
    if not last < 0.5 * first:
        raise SystemExit(f"the loss did not fall: {first} in the first steps, {last} in the last")
    gguf = folder / "tiny-f16.gguf"
    export(train.load(folder / "tiny.pt"), tokenizer, gguf)

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]

    parsed = asked = 0
    with evaluate.serving("embedded", gguf, 1024, ["-t", "2"]) as url:
        for seed in range(5):
            prompt = make_prompt(seed, 500, "grammar", "plain", count)
            row = evaluate.ask(url, prompt)
            got = row.get("got", prompt.expected.split("\n"))
            asked += 1
            parsed += bool(_ANSWER.match(got[0]))
            print(f"asked {prompt.expected.splitlines()[0]!r}, got {got[0]!r}")
    if parsed == 0:
        raise SystemExit(f"none of {asked} answers has the form Qn=CODE")
    print(f"tiny: loss {first} to {last}, {parsed} of {asked} answers parse")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--out", type=Path, help="working folder (default: build/training)")
    p.add_argument("--tiny", action="store_true", help="prove the pipeline on a CPU")
    p.add_argument("--stop-after", type=int, choices=[run.stage for run in RECIPE])
    p.add_argument("--install", action="store_true", help="copy the result to harness/models")
    args = p.parse_args()
    if args.tiny:
        make_tiny(args.out or Path("build/training-tiny"))
    else:
        make(args.out or Path("build/training"), stop_after=args.stop_after, install=args.install)


if __name__ == "__main__":
    main()

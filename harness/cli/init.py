"""`harness init`: the few files a project of one's own needs; shown first, nothing overwritten."""

import sys
from pathlib import Path

import click

from harness.cli.output import say
from harness.errors import StoreError

SETTINGS = """\
# What `pytest -m long` measures here. The command line wins; the guide lists every setting.
ctx = "8K"                # raise it once the first run is through: "128K"

# Without a server of your own, llama.cpp's embedded one and a packaged 6 MB model are measured.
# server_bin = "/opt/llama.cpp/llama-server"
# model = "/models/model.gguf"
# server_args = "-ngl 99 -fa on"

# [profiles.deep]         # pytest -m long --profile deep; `harness night` measures all profiles
# ctx = "128K"
"""
TESTS = '''\
"""The long-context suite among this project's own tests; `pytest -m long` measures."""

from harness.suite import *  # noqa: F403
'''
WORKFLOW = """\
name: long context
on:
  workflow_dispatch:
  schedule:
    - cron: "30 1 * * *"
permissions:
  contents: read
jobs:
  measure:
    runs-on: self-hosted  # a machine that nobody else uses: a shared runner's speeds say nothing
    timeout-minutes: 600
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with:
          persist-credentials: false
      - run: |
          python3 -m venv .venv
          .venv/bin/python -m pip install -q longctx-harness
          .venv/bin/pytest -m long --report=results/run.html
"""
FILES = {
    "harness.toml": SETTINGS,
    "tests/test_long_context.py": TESTS,
    ".github/workflows/long-context.yml": WORKFLOW,
}

UNANSWERED = 4
"""Exit code where nobody could be asked."""


@click.command()
@click.option("--tests", is_flag=True, help="Also a test module; `-m long` works without one.")
@click.option("--workflow", is_flag=True, help="Also a nightly workflow for GitHub Actions.")
@click.option("--yes", is_flag=True, help="Write without asking.")
def init(tests: bool, workflow: bool, yes: bool) -> None:
    """Write harness.toml (and more, if asked for) into this folder.

    The files are shown first; one that is there already is left as it is.
    Exit code: 0 written, not wanted or there already, 4 nobody answered: say --yes.
    """
    wanted = {".toml": True, ".py": tests, ".yml": workflow}
    new = {}
    for name, text in FILES.items():
        if not wanted[Path(name).suffix]:
            continue
        if Path(name).exists():
            say(f"{name} is there already; it stays as it is")
            continue
        new[name] = text
        say(f"--- {name}")
        say(text)
    if not new:
        say("nothing to write. Measure: pytest -m long")
        return
    names = ", ".join(new)
    wants = yes or _answer(f"Write {names}?")
    if not wants:
        say(f"nothing written; `harness init --yes` writes {names}")
        raise SystemExit(UNANSWERED if wants is None else 0)
    for name, text in new.items():
        try:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            with Path(name).open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as error:
            raise StoreError(f"cannot write {name}: {error.strerror or error}") from error
    say(f"wrote {names}. Measure: pytest -m long")


def _answer(question: str) -> bool | None:
    """Yes or no; `None` where nobody answers: no terminal, or one that ends, as Windows' NUL."""
    if not sys.stdin.isatty():
        return None
    try:
        return click.confirm(question, default=True)
    except click.Abort:
        say("")
        return None

"""What the nightly workflow runs on a self-hosted machine: install, measure, hand over.

`python .ci/night.py PROFILE …` needs nothing but Python 3.11. The virtual environment, the run
records and the baselines' history live in `--home` (`~/longctx-harness`), outside the checkout,
which the next job wipes. Its exit code is that of `harness night`.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

Run = Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None, *, run: Run | None = None) -> int:
    """Exit code of the night; 3 when it could not be installed."""
    options = _options(argv)
    home = options.home.expanduser().resolve()
    call = run or _call
    home.mkdir(parents=True, exist_ok=True)
    python = _python(home / "venv")
    if not python.is_file():
        venv.create(home / "venv", with_pip=True)
    if call([str(python), "-m", "pip", "install", "--quiet", "--editable", str(ROOT)]) != 0:
        print("night: the harness could not be installed; pip's lines above say why", flush=True)
        return 3
    date = datetime.now() - timedelta(hours=12)  # a night lasts from noon to noon
    name = options.name or "-".join((f"{date:%Y-%m-%d}", *options.profiles))
    name = re.sub(r"[^\w.+-]+", "_", name)  # as `harness night` names its folder
    try:
        return call(
            [
                *(str(python), "-m", "harness", "night", "--name", name),
                *("--results", str(home / "results"), "--hours", str(options.hours)),
                *options.profiles,
            ]
        )
    finally:
        _hand_over(home / "results" / "nights" / name, options.artifacts)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="+")
    parser.add_argument("--hours", type=float, default=10.0)
    parser.add_argument("--home", type=Path, default=Path("~/longctx-harness"))
    parser.add_argument("--artifacts", type=Path, help="where to put the night's files, emptied")
    parser.add_argument("--name", help="the night's name (default: its date and profiles)")
    return parser.parse_args(argv)


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _call(command: Sequence[str]) -> int:
    print(f"night: {' '.join(command)}", flush=True)
    return subprocess.run(list(command), cwd=ROOT, check=False).returncode


def _hand_over(night: Path, artifacts: Path | None) -> None:
    """Copy the night's folder, whatever became of it."""
    if artifacts is None:
        return
    shutil.rmtree(artifacts, ignore_errors=True)
    if night.is_dir():
        shutil.copytree(night, artifacts, ignore=shutil.ignore_patterns("*.lock", "*.part"))


if __name__ == "__main__":
    sys.exit(main())

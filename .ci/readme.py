"""Runs a command of the README as it stands there: `readme.py demo` (`demo on Windows` there)."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def command(name: str, text: str) -> str:
    """The block after the mark `<!-- NAME -->`."""
    found = re.search(rf"^<!-- {re.escape(name)} -->\n```\w+\n(.*?)^```$", text, re.M | re.S)
    if found is None:
        raise SystemExit(f"{README} has no command marked <!-- {name} -->")
    return found[1]


def main(name: str) -> int:
    """Run it from the root in the system's shell; the first exit code that is not 0."""
    windows = sys.platform == "win32"
    text = command(f"{name} on Windows" if windows else name, README.read_text(encoding="utf-8"))
    shell = ["powershell", "-NoProfile", "-Command"] if windows else ["bash", "-euc"]
    for part in text.splitlines() if windows else [text]:  # PowerShell goes on after a failure
        print(part, flush=True)
        if code := subprocess.run([*shell, part], cwd=README.parent, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))

"""SIGTERM is a Ctrl-C once; then the summary is written, and nothing tears it."""

import subprocess
import sys

import pytest

CODE = """
import os, signal
from harness.machine import sigterm
sigterm.as_ctrl_c()
try:
    os.kill(os.getpid(), signal.SIGTERM)
except KeyboardInterrupt:
    print("stopped")
os.kill(os.getpid(), signal.SIGTERM)
print("summary", flush=True)
sigterm.as_usual()
os.kill(os.getpid(), signal.SIGTERM)
print("not reached")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends the process there")
def test_the_first_sigterm_is_a_ctrl_c_and_the_next_does_not_tear_the_summary() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["stopped", "summary"]
    assert done.returncode == -15

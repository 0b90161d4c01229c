"""`python -m harness`."""

from harness.cli.main import run

run()

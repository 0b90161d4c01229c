"""The users' suite: `pytest -m long --ctx 131072` (and `-m smoke`)."""

from harness.suite import *  # noqa: F403

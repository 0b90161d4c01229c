"""The environment of a process that a test starts: the test's own, as a user would have it."""

import os


def own_environment(*left_out: str) -> dict[str, str]:
    """Without what tells a child that it is a worker of pytest-xdist, and without `left_out`."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in left_out and not name.startswith("PYTEST_XDIST")
    }

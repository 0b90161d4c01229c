"""longctx-harness: did long-context serving get slower, hungrier or wrong since the baseline?"""

__version__ = "0.1.0"

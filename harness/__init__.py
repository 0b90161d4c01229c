"""longctx-harness: did long-context serving get slower, hungrier or wrong since the baseline?"""

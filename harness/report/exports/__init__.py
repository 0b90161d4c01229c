"""Runs written in other tools' formats, and llama-bench's read back."""

"""Measurements of the harness itself, each run by `python -m bench.NAME`."""

"""Edges towards the disk: run records, baselines, the host-wide lock."""

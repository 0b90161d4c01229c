"""Edges towards the host: what machine this is, its memory and its other load."""

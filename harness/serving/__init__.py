"""Edges towards servers: launching one, talking to one, reading its log."""

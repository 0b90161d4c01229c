"""The host: what it is, who else uses it, how fast it is now, who holds it."""

"""The reference model (a GGUF of a few megabytes) and its card."""

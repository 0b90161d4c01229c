"""The family: one tiny model for each kind of layer. Architectures, weights, twins, GGUF."""

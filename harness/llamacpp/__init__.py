"""What is known of llama.cpp without running it: flags, log, layers, cache, buffers, cost. Pure."""

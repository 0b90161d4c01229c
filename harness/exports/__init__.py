"""What other tools read: runs written in their formats, and llama-bench's read back."""

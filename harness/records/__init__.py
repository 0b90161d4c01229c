"""What a run left: its lines, the samples and keys derived from them, the files they live in."""

"""How good the verdict is: its false-alarm rate and power against simulated noise."""

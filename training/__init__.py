"""How the reference model is made: data, training, export, evaluation. Not installed."""

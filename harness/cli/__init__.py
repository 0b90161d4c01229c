"""The commands: arguments in, sentences and exit codes out."""

"""Pure core: records, prompts, scoring, statistics and verdicts. Touches no file, process, clock or network."""

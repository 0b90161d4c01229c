"""Pure core: records, prompts, scoring, statistics, verdicts. No file, process, clock, network."""

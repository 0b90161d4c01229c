"""The command-line options that pytest takes for a run."""

import re

import pytest

_OPTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("--ctx", "ctx_tokens", "N", "context to test up to, tokens: 131072 or 128K (default 8192)"),
    ("--depths", "depths", "N,N", "rungs to measure (default 2K, 8K, 32K, 128K … up to --ctx)"),
    ("--profile", "profile", "NAME", "a configuration of harness.toml, [profiles.NAME]"),
    ("--matrix", "matrix", "NAME", "measure every arm: kv, batch, flash, yarn, speculation, …"),
    ("--server-url", "server_url", "URL", "measure a server that already runs"),
    ("--server-bin", "server_bin", "PATH", "llama-server binary to start (or $LLAMA_SERVER)"),
    ("--server-args", "server_args", "ARGS", "more flags for it: --server-args='-t 8', with the ="),
    ("--model", "model", "GGUF", "model for the server that is started"),
    ("--expect-device", "expect_device", "NAME", "refuse a server that computes elsewhere"),
    ("--expect-build", "expect_build", "TEXT", "refuse a server of another build"),
    ("--background", "background", "KIND", "document: plain (default) or hard (decoys, noise)"),
    ("--haystack-seed", "seed", "N", "seed of document, needles and questions (default 0)"),
    ("--repeats", "repeats", "N", "generation repeats at every rung (default 6)"),
    ("--generate-tokens", "generate_tokens", "N", "tokens per generation repeat (default 128)"),
    ("--answer-tokens", "answer_tokens", "N", "token budget of an answer (default 256)"),
    ("--band", "band", "SHARE", "noise band for every metric, e.g. 0.10 (default) for ±10 %%"),
    ("--baselines", "baselines", "DIR", "folder of accepted baselines (default baselines)"),
    ("--results", "results", "DIR", "folder for run records and logs (default results)"),
    ("--machine-class", "machine_class", "NAME", "name of the class of machines baselines are for"),
    ("--label", "label", "NAME", "keeps baselines of otherwise equal configurations apart"),
    ("--idle-timeout", "idle_timeout_s", "S", "silence from the server that ends a run (900)"),
    ("--ready-timeout", "ready_timeout_s", "S", "time a started server has to load (600)"),
    ("--budget", "budget_s", "S", "seconds the whole run may take; one that cannot is refused"),
    ("--remeasure", "remeasure_s", "S", "seconds for measuring again what is undecided (120)"),
    ("--distractors", "distractors", "N", "records a rung that look like needles (default 0)"),
    ("--heatmap", "heatmap", "LxD", "also run the heatmap, lengths x depths, e.g. 8x16"),
    (
        "--fuzz-examples",
        "fuzz_examples",
        "N",
        "also fuzz the questions, N examples, and placement, N/4",
    ),
    ("--fuzz-ctx", "fuzz_ctx", "N", "context of a fuzzed document, tokens (default 2048)"),
    ("--harder", "harder", "TASKS", "also run harder tests, of kv,hops,count"),
    ("--wait-quiet", "wait_quiet_s", "S", "wait for a quiet machine; refuse if it stays busy (0)"),
    ("--wait-lock", "wait_lock_s", "S", "wait this long for another run on this machine (0)"),
)


SETTINGS_OPTIONS = (*(dest for _, dest, _, _ in _OPTIONS), "strict", "resume", "save_slots")
"""Names of the settings that options give; each option's own is `harness_` and that name."""


def add_options(parser: pytest.Parser) -> None:
    """Add all of them to pytest's command line, one group in `--help`."""
    group = parser.getgroup("long-context", "long-context regression harness (llama-server)")
    for name, dest, metavar, text in _OPTIONS:
        group.addoption(name, dest=f"harness_{dest}", metavar=metavar, default=None, help=text)
    group.addoption(
        "--strict-verdicts",
        dest="harness_strict",
        action="store_const",
        const=True,
        default=None,
        help="INCONCLUSIVE and NO_BASELINE fail instead of skipping (default when CI=true)",
    )
    group.addoption(
        "--resume",
        dest="harness_resume",
        action="store_const",
        const=True,
        default=None,
        help="go on with the last run of this plan, if it was cut short and nothing has changed",
    )
    group.addoption(
        "--save-slots",
        dest="harness_save_slots",
        action="store_const",
        const=True,
        default=None,
        help="keep each rung's KV cache in the results until the run is complete (as --resume)",
    )
    group.addoption(
        "--report",
        dest="harness_report",
        metavar="PATH",
        default=None,
        help="write the run's report, one page that opens offline, to PATH",
    )
    group.addoption(
        "--no-strict-verdicts",
        dest="harness_strict",
        action="store_const",
        const=False,
        help="INCONCLUSIVE and NO_BASELINE skip, also when CI=true",
    )


_ASKING = ("ctx_tokens", "depths", "profile", "matrix", "heatmap", "fuzz_examples", "harder")
"""Options that ask for a measurement, be it without `-m`."""


def asks_to_measure(config: pytest.Config) -> bool:
    """Whether `-m` selects measured tests by name, or an option speaks of a measurement."""
    selected = re.sub(r"\bnot\s+(\w+|\([^)]*\))", "", config.getoption("markexpr", "") or "")
    return bool(re.search(r"\b(long|smoke)\b", selected)) or any(
        config.getoption(f"harness_{dest}") is not None for dest in _ASKING
    )

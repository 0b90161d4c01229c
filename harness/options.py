"""The options of a run, one row each (flag, setting, help, range), for pytest and commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pytest

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Option:
    """A flag for the setting `name`; without a `metavar` a switch.

    Values that `accepts` refuses are answered by what was `expected`.
    """

    flag: str
    name: str
    metavar: str | None
    help: str
    accepts: Callable[[float], bool] | None = None
    expected: str = ""

    @property
    def key(self) -> str:
        """Its name in `harness.toml`, where that is not the setting's own."""
        return self.flag.removeprefix("--").replace("-", "_")


_SECONDS: tuple[Callable[[float], bool], str] = (
    lambda s: 0 <= s < float("inf"),
    "a number of seconds, 0 or more",
)

_ABOVE_0: tuple[Callable[[float], bool], str] = (
    lambda s: 0 < s < float("inf"),
    "a number of seconds above 0 (--remeasure 0 turns measuring again off)",
)

GROUPS: dict[str, tuple[Option, ...]] = {
    "which server": (
        Option("--profile", "profile", "NAME", "a configuration of harness.toml, [profiles.NAME]"),
        Option("--server-url", "server_url", "URL", "measure a server that already runs"),
        Option("--server-bin", "server_bin", "PATH", "llama-server to start (or $LLAMA_SERVER)"),
        Option("--offline", "offline", None, "fetch no build that --server-bin names"),
        Option("--server-args", "server_args", "ARGS", "more flags for it: --server-args='-t 8'"),
        Option("--model", "model", "GGUF", "model for the server that is started"),
        Option("--expect-device", "expect_device", "NAME", "refuse one that computes elsewhere"),
        Option("--expect-build", "expect_build", "TEXT", "refuse a server of another build"),
    ),
    "what to measure": (
        Option(
            *("--ctx", "ctx_tokens", "N", "context to test up to: 131072 or 128K (default 8192)"),
            *(lambda n: n < 2**31, f"at most {2**31 - 1}, the largest a llama-server takes"),
        ),
        Option("--depths", "depths", "N,N", "rungs (default 2K, 8K, 32K, 128K … up to --ctx)"),
        Option("--matrix", "matrix", "NAME", "every arm of: kv, batch, flash, yarn, speculation …"),
        Option("--reference", "reference", "NAME", "all, or models of `harness models` as arms"),
        Option(
            *("--repeats", "repeats", "N", "generation repeats at every rung (default 6)"),
            *(lambda n: n >= 3, "at least 3, as any verdict needs"),
        ),
        Option(
            *("--generate-tokens", "generate_tokens", "N", "tokens of each repeat (default 128)"),
            *(lambda n: n >= 16, "at least 16, as a rate needs"),
        ),
        Option("--answer-tokens", "answer_tokens", "N", "token budget of an answer (default 256)"),
        Option("--background", "background", "KIND", "document: plain, or hard (decoys, noise)"),
        Option("--haystack-seed", "seed", "N", "seed of document, needles and questions (0)"),
        Option(
            *("--distractors", "distractors", "N", "records a rung that look like needles (0)"),
            *(lambda n: 0 <= n <= 10, "0 to 10"),
        ),
        Option("--heatmap", "heatmap", "LxD", "also the heatmap, lengths x depths, e.g. 8x16"),
        Option("--harder", "harder", "TASKS", "also harder tests, of kv,hops,count"),
        Option(
            *(
                "--fuzz-examples",
                "fuzz_examples",
                "N",
                "also fuzz N ways of asking, N/4 placements",
            ),
            *(lambda n: n >= 1, "1 or more"),
        ),
        Option("--fuzz-ctx", "fuzz_ctx", "N", "context of a fuzzed document (default 2048)"),
    ),
    "how to judge": (
        Option(
            *("--band", "band", "SHARE", "noise band for every metric, 0.10 (default) for ±10 %"),
            *(lambda share: 0 < share < 1, "a share such as 0.10 for ±10 %"),
        ),
        Option("--baselines", "baselines", "DIR", "folder of accepted baselines (baselines)"),
        Option("--machine-class", "machine_class", "NAME", "the machines whose numbers compare"),
        Option("--label", "label", "NAME", "keeps baselines of equal configurations apart"),
        Option("--strict-verdicts", "strict", None, "what is not judged fails (where CI=true)"),
    ),
    "records and time": (
        Option("--results", "results", "DIR", "folder of records and logs (results)"),
        Option("--resume", "resume", None, "go on with the last run of this plan, if cut short"),
        Option("--save-slots", "save_slots", None, "keep each rung's KV cache for a --resume"),
        Option("--keep-kv", "keep_kv", None, "keep each rung's KV cache for later spot runs"),
        Option(
            *("--keep-kv-limit", "keep_kv_limit", "GIB", "at most so much of them (32)"),
            *(lambda gib: 0 < gib < float("inf"), "a number of GiB above 0"),
        ),
        Option("--spot", "spot", None, "restore kept KV caches instead of reading documents"),
        Option("--budget", "budget_s", "S", "seconds the whole run may take", *_ABOVE_0),
        Option("--remeasure", "remeasure_s", "S", "for what is undecided (120)", *_SECONDS),
        Option("--wait-quiet", "wait_quiet_s", "S", "wait for a quiet machine", *_SECONDS),
        Option("--wait-lock", "wait_lock_s", "S", "wait for another run here (0)", *_SECONDS),
        Option("--idle-timeout", "idle_timeout_s", "S", "silence that ends a run (900)", *_SECONDS),
        Option("--ready-timeout", "ready_timeout_s", "S", "time for loading (600)", *_SECONDS),
    ),
}

OPTIONS = {option.name: option for group in GROUPS.values() for option in group}
"""All of them by the setting they give; pytest's own name of each is `harness_` and that."""


def add_options(parser: pytest.Parser) -> None:
    """Add all of them to pytest's command line, by group."""
    for title, options in GROUPS.items():
        group = parser.getgroup(
            f"long-context {title}", f"long-context regression harness: {title}"
        )
        for option in options:
            kind: dict[str, Any] = {"metavar": option.metavar}
            if option.metavar is None:
                kind = {"action": "store_const", "const": True}
            text, dest = option.help.replace("%", "%%"), f"harness_{option.name}"
            group.addoption(option.flag, dest=dest, default=None, help=text, **kind)
    parser.getgroup("long-context how to judge").addoption(
        "--no-strict-verdicts",
        dest="harness_strict",
        action="store_const",
        const=False,
        help="what is not judged skips, also where CI=true",
    )
    parser.getgroup("long-context records and time").addoption(
        "--no-spot",
        dest="harness_spot",
        action="store_const",
        const=False,
        help="read the documents, also where the profile says `spot = true`",
    )
    parser.getgroup("long-context records and time").addoption(
        "--report", dest="harness_report", metavar="PATH", help="also a page that opens offline"
    )


def taken(*names: str) -> Callable[[F], F]:
    """Decorates a command that takes the options of these settings, by the settings' names."""
    import click

    def decorate(command: F) -> F:
        for option in reversed([OPTIONS[name] for name in names]):
            text = f"{option.help[0].upper()}{option.help[1:]}."
            kind: dict[str, Any] = {"metavar": option.metavar}
            if option.metavar is None:
                kind = {"is_flag": True, "default": None}
            more = click.option(option.flag, option.name, help=text, **kind)
            command = more(command)
        return command

    return decorate


_ASKING = (
    "ctx_tokens",
    "depths",
    "profile",
    "matrix",
    "reference",
    "heatmap",
    "fuzz_examples",
    "harder",
)
"""Options that ask for a measurement, be it without `-m`."""


def asks_to_measure(config: pytest.Config) -> bool:
    """Whether `-m` selects measured tests by name, or an option speaks of a measurement."""
    selected = re.sub(r"\bnot\s+(\w+|\([^)]*\))", "", config.getoption("markexpr", "") or "")
    return bool(re.search(r"\b(long|smoke)\b", selected)) or any(
        config.getoption(f"harness_{dest}") is not None for dest in _ASKING
    )

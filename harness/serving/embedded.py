"""The embedded server: llama.cpp's own HTTP server from the `xllamacpp` wheel, as a process.

`python -m harness.serving.embedded --model FILE -c 8192 --port 8080 …` takes llama-server's flag
names, refuses every flag it does not know, and serves until it is stopped. Only this process ever
imports the wheel.
"""

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from harness.llamacpp.kv import BLOCK_BYTES

CACHE_TYPES = tuple(BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class Flag:
    """One llama-server flag: its spellings, the parameter it sets, how its value is read.

    `parse` None makes it a switch that sets `constant`.
    """

    names: tuple[str, ...]
    target: str
    parse: Callable[[str], Any] | None
    constant: Any = None
    choices: tuple[str, ...] | None = None


def _switch(name: str, target: str, value: bool, *others: str) -> Flag:
    return Flag((name, *others), target, None, value)


FLAGS: tuple[Flag, ...] = (
    Flag(("-m", "--model"), "model.path", str),
    Flag(("-a", "--alias"), "model_alias", str),
    Flag(("--host",), "host", str),
    Flag(("--port",), "port", int),
    Flag(("--api-key",), "api_keys", str),
    Flag(("-c", "--ctx-size"), "n_ctx", int),
    Flag(("-b", "--batch-size"), "n_batch", int),
    Flag(("-ub", "--ubatch-size"), "n_ubatch", int),
    Flag(("-np", "--parallel"), "n_parallel", int),
    Flag(("-n", "--predict", "--n-predict"), "n_predict", int),
    Flag(("-t", "--threads"), "cpuparams.n_threads", int),
    Flag(("-tb", "--threads-batch"), "cpuparams_batch.n_threads", int),
    Flag(("--poll",), "cpuparams.poll", int),
    Flag(("--threads-http",), "n_threads_http", int),
    Flag(("-ngl", "--gpu-layers", "--n-gpu-layers"), "n_gpu_layers", int),
    Flag(("-mg", "--main-gpu"), "main_gpu", int),
    Flag(("-ctk", "--cache-type-k"), "cache_type_k", str, choices=CACHE_TYPES),
    Flag(("-ctv", "--cache-type-v"), "cache_type_v", str, choices=CACHE_TYPES),
    Flag(("-fa", "--flash-attn"), "flash_attn_type", str, choices=("on", "off", "auto")),
    Flag(("-cram", "--cache-ram"), "cache_ram_mib", int),
    Flag(("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"), "n_ctx_checkpoints", int),
    Flag(("--cache-reuse",), "n_cache_reuse", int),
    _switch("--cache-prompt", "cache_prompt", True),
    _switch("--no-cache-prompt", "cache_prompt", False),
    Flag(("--fit", "-fit"), "fit_params", str, choices=("on", "off")),
    _switch("--kv-unified", "kv_unified", True, "-kvu"),
    _switch("--no-kv-unified", "kv_unified", False, "-no-kvu"),
    _switch("--no-kv-offload", "no_kv_offload", True, "-nkvo"),
    _switch("--swa-full", "swa_full", True),
    Flag(("--rope-freq-base",), "rope_freq_base", float),
    Flag(("--rope-freq-scale",), "rope_freq_scale", float),
    Flag(("--rope-scale",), "rope_scale", float),
    Flag(
        ("--rope-scaling",),
        "rope_scaling_type",
        str,
        choices=("none", "linear", "yarn", "longrope"),
    ),
    Flag(("--yarn-orig-ctx",), "yarn_orig_ctx", int),
    Flag(("--yarn-ext-factor",), "yarn_ext_factor", float),
    Flag(("--yarn-attn-factor",), "yarn_attn_factor", float),
    Flag(("--yarn-beta-slow",), "yarn_beta_slow", float),
    Flag(("--yarn-beta-fast",), "yarn_beta_fast", float),
    _switch("--metrics", "endpoint_metrics", True),
    _switch("--props", "endpoint_props", True),
    _switch("--slots", "endpoint_slots", True),
    _switch("--no-slots", "endpoint_slots", False),
    Flag(("--slot-save-path",), "slot_save_path", str),
    Flag(("-to", "--timeout"), "timeout", int),
    Flag(("--sse-ping-interval",), "sse_ping_interval", int),
    Flag(("-lv", "--verbosity"), "verbosity", int),
    _switch("--warmup", "warmup", True),
    _switch("--no-warmup", "warmup", False),
    _switch("--context-shift", "ctx_shift", True),
    _switch("--no-context-shift", "ctx_shift", False),
    _switch("--jinja", "use_jinja", True),
    _switch("--no-jinja", "use_jinja", False),
    Flag(("--chat-template",), "chat_template", str),
    _switch("--no-webui", "ui", False, "--no-ui"),
    Flag(("-s", "--seed"), "sampling.seed", int),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"embedded server: {message}", file=sys.stderr, flush=True)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    """The command line: `FLAGS` and nothing else."""
    result = _Parser(prog="python -m harness.serving.embedded", allow_abbrev=False)
    for flag in FLAGS:
        if flag.parse is None:
            result.add_argument(
                *flag.names, dest=flag.target, action="store_const", const=flag.constant
            )
        else:
            result.add_argument(
                *flag.names, dest=flag.target, type=flag.parse, choices=flag.choices
            )
    return result


def _params(options: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    enum: dict[str, Callable[[Any], Any]] = {
        "flash_attn_type": lambda v: getattr(
            xllamacpp.llama_flash_attn_type,
            {"on": "LLAMA_FLASH_ATTN_TYPE_ENABLED", "off": "LLAMA_FLASH_ATTN_TYPE_DISABLED"}.get(
                v, "LLAMA_FLASH_ATTN_TYPE_AUTO"
            ),
        ),
        "rope_scaling_type": lambda v: getattr(
            xllamacpp.llama_rope_scaling_type, f"LLAMA_ROPE_SCALING_TYPE_{v.upper()}"
        ),
        "cache_type_k": lambda v: getattr(xllamacpp.ggml_type, f"GGML_TYPE_{v.upper()}"),
        "cache_type_v": lambda v: getattr(xllamacpp.ggml_type, f"GGML_TYPE_{v.upper()}"),
        "fit_params": lambda v: v == "on",
        "api_keys": lambda v: [v],
    }
    for target, value in options.items():
        if target == "host":
            if hasattr(params, "hostnames"):
                params.hostnames = [value]
            else:  # wheels before 2026.10
                params.hostname = value
        elif target == "timeout":
            params.timeout_read = params.timeout_write = value
        elif target == "rope_scale":
            params.rope_freq_scale = 1.0 / value
        else:
            *owners, name = target.split(".")
            holder = params
            for owner in owners:
                holder = getattr(holder, owner)
            setattr(holder, name, enum[target](value) if target in enum else value)
    return params


def find_runtime() -> None:
    """Windows: Microsoft's runtimes as `msvc-runtime` brings them, beside the environment's root.

    PATH is not searched for what an extension module needs.
    """
    if sys.platform == "win32":
        os.add_dll_directory(sys.prefix)


RUNTIME = (
    "it needs Microsoft's Visual C++ runtime: `pip install msvc-runtime`, or install the Visual "
    "C++ Redistributable (x64)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the process is stopped."""
    options = {k: v for k, v in vars(parser().parse_args(argv)).items() if v is not None}
    if key := os.environ.get("LLAMA_API_KEY"):  # as llama-server does
        options.setdefault("api_keys", key)
    if "model.path" not in options:
        parser().error("--model FILE is missing")
    # Bound threads do not wander between cores: the spread of generation speed between groups of
    # repeats fell from 3.1 to 1.6 % (2 cores, reference model). Read when OpenMP starts.
    os.environ.setdefault("OMP_PROC_BIND", "true")
    try:
        find_runtime()
        import xllamacpp
    except ImportError as error:
        step = f"; {RUNTIME}" if sys.platform == "win32" else ""
        print(f"embedded server: xllamacpp cannot be loaded: {error}{step}", file=sys.stderr)
        return 1

    try:
        server = xllamacpp.Server(_params(options))
    except (RuntimeError, ValueError) as error:
        print(f"embedded server: could not start: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"embedded server: listening on {server.listening_address}", flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

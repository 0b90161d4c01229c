"""Log patterns: the lines of a llama-server's log that mean something, as a table.

The wordings are from real logs of b10434 and b11549, from llama.cpp's source and from public
reports. A pattern stands for a kind of line, not for one build's wording.
"""

import re
from dataclasses import dataclass
from typing import Literal

Reason = Literal["ALLOC_FAIL", "DEVICE_LOST", "SETUP", "SERVER_ERROR", "SERVER_DIED", "TRUNCATED"]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of line. `reason` is the failure it proves, None for a note; `means` says what it is.

    Groups named `bytes…` and `mib…` in `regex` are the size that was asked for.
    """

    code: str
    reason: Reason | None
    means: str
    regex: re.Pattern[str]


def _pattern(code: str, reason: Reason | None, means: str, regex: str) -> Pattern:
    return Pattern(code, reason, means, re.compile(regex, re.IGNORECASE))


PATTERNS: tuple[Pattern, ...] = (
    _pattern(
        "pinned_memory",
        None,
        "a host buffer could not be pinned: prefill may be slightly or 100 times slower",
        r"failed to allocate pinned memory",
    ),
    _pattern(
        "device_lost",
        "DEVICE_LOST",
        "the GPU was reset, by its watchdog or a driver fault",
        r"device_?lost|device was lost|gpu hang|HSA_STATUS_ERROR|unspecified launch failure",
    ),
    _pattern(
        "allocation",
        "ALLOC_FAIL",
        "an allocation was refused",
        r"memory allocation of size (?P<bytes>\d+) failed"
        r"|failed to allocate \S+ buffer of size (?P<bytes2>\d+)"
        r"|allocating (?P<mib>[\d.]+) MiB on device .* failed"
        r"|OutOfDeviceMemory|OutOfHostMemory|cudaMalloc failed|CUDA error: out of memory"
        r"|exceeds device buffer size limit"
        r"|insufficient memory \(attempted to allocate\s+(?P<mib2>[\d.]+) MB\)"
        r"|failed to allocate (?:compute|kv|\S+ )?\s*(?:buffer|memory|pp buffers|tg buffers)"
        r"|pre-allocated tensor .* in a buffer .* that cannot run the operation",
    ),
    _pattern(
        "decode_failed",
        "SERVER_ERROR",
        "a batch could not be decoded; the cause is usually on the lines before",
        r"decode\(\)? ?(?:failed|: failed)|decode: failed|failed to decode|llama_decode.*failed",
    ),
    _pattern(
        "kv_type_refused",
        "SETUP",
        "the KV cache type asked for can't be used with these settings",
        r"quantized V cache requires flash_?attn"
        r"|cache type \S+ with block size \d+ does not divide",
    ),
    _pattern(
        "kv_type_fallback",
        "SETUP",
        "another KV cache type is in use than was asked for",
        r"(?:cache|kv)\b.*\b(?:fall(?:ing)? back|fallback|using) (?:to )?(?:f16|f32|q\d_\d)",
    ),
    _pattern(
        "flash_attention_off",
        None,
        "flash attention was to be used where possible, and is off",
        r"flash attention (?:not supported|was auto, set to disabled)"
        r"|flash attention tensor is assigned to device",
    ),
    _pattern(
        "op_unsupported",
        None,
        "the backend lacks an operation, which then runs elsewhere, slower",
        r"unsupported op\b|\bop(?:eration)?\b.*\b(?:is )?(?:not supported|unsupported)"
        r"|not supported by (?:the )?(?:backend|device)",
    ),
    _pattern(
        "context_capped",
        "SETUP",
        "the server serves a shorter context than was asked for",
        r"exceeds the training context.*capping|(?:capping|reducing|limiting) (?:n_ctx|context)",
    ),
    _pattern(
        "context_beyond_training",
        None,
        "the context is longer than the model was trained for",
        r"n_ctx\w* \(\d+\) > n_ctx_train",
    ),
    _pattern(
        "yarn_ignored",
        "SETUP",
        "the YaRN settings have no effect",
        r"(?:yarn|rope.scaling)\b.*\b(?:ignor|no effect|not supported|unsupported)",
    ),
    _pattern(
        "no_gpu",
        "SETUP",
        "no GPU is used although layers were to be offloaded",
        r"no usable gpu found|(?:not )?compiled with(?:out)? gpu (?:offload )?support"
        r"|no (?:vulkan|cuda|rocm|hip|sycl)[ -]?(?:capable )?devices? (?:is |are )?"
        r"(?:found|detected)"
        r"|failed to initialize (?:cuda|vulkan|rocm|hip)",
    ),
    _pattern(
        "prompt_reprocessed",
        None,
        "a cached prompt was read again from the start",
        r"forcing full prompt re-processing",
    ),
    _pattern(
        "truncated",
        "TRUNCATED",
        "a prompt was cut or its start thrown away",
        r"truncated = 1\b|input truncated|context shift(?:ed)?, n_keep",
    ),
    _pattern(
        "load_failed",
        "SETUP",
        "the model or its context could not be created; the cause is on the lines before",
        r"failed to create_?\s?context|error loading model|exiting due to model loading error",
    ),
    _pattern(
        "aborted",
        "SERVER_DIED",
        "the server aborted",
        r"GGML_ASSERT|GGML_ABORT|terminate called|segmentation fault|core dumped",
    ),
)
"""Tried in order; a line counts for the first that fits."""

"""Whether a server's counts of one request can be true: nothing cut, nothing reused unasked."""

from harness.errors import ServerError
from harness.records.samples import REUSE_TOLERANCE_TOKENS
from harness.serving.wire import Exchange

TRUNCATION_SLACK_TOKENS = 8
TRUNCATION_SLACK_SHARE = 0.005
ESTIMATE_SHARE = 0.8
"""An estimate from characters is a few per cent off; what is this much shorter was cut."""


def refuse_reuse(exchange: Exchange) -> None:
    """A request that was to be read cold.

    Raises:
        ServerError: the server reused something.
    """
    if exchange.reused_tokens:
        raise ServerError(
            f"a cold prefill was asked for but the server reused {exchange.reused_tokens} "
            "tokens; stop whatever else uses this server, or restart it"
        )


def refuse_impossible_reuse(depth: int, reused: int, read_before: int) -> None:
    """A rung whose document was read up to `read_before` tokens until now.

    Raises:
        ServerError: the server says that it reused more than that.
    """
    if reused - read_before > REUSE_TOLERANCE_TOKENS:
        raise ServerError(
            f"the server says it reused {reused} tokens at rung {depth} where it had read only "
            f"{read_before}; its counts cannot be trusted: report its build"
        )


def refuse_truncation(depth: int, counted: int, expected: int) -> None:
    """A prompt of `expected` tokens by the server's own tokenizer.

    Raises:
        ServerError: the server read another number.
    """
    slack = max(TRUNCATION_SLACK_TOKENS, TRUNCATION_SLACK_SHARE * expected)
    if abs(counted - expected) > slack:
        raise ServerError(
            f"the server read {counted} tokens where its own tokenizer counts {expected} at "
            f"rung {depth}; it cut or changed the prompt",
            cause="TRUNCATED",
        )


def refuse_cut_question(depth: int, exchange: Exchange, expected: int) -> None:
    """A question whose prompt is `expected` tokens: by the timings, and by `usage` if sent.

    Raises:
        ServerError: one of them has another number.
    """
    refuse_truncation(depth, (exchange.new_tokens or 0) + (exchange.reused_tokens or 0), expected)
    if exchange.prompt_tokens is not None:
        refuse_truncation(depth, exchange.prompt_tokens, expected)


def refuse_cut_estimate(depth: int, read: int, estimated: int) -> None:
    """A prompt of about `estimated` tokens, on a server whose tokenizer is not ours to ask.

    Raises:
        ServerError: it counted far fewer.
    """
    if read < ESTIMATE_SHARE * estimated:
        raise ServerError(
            f"the server read {read} tokens of a prompt of about {estimated} at rung {depth}: it "
            "cuts what its context cannot hold; start it with a larger one (Ollama: num_ctx, vLLM: "
            "--max-model-len)",
            cause="TRUNCATED",
        )

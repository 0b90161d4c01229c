"""What can go wrong with one turn: small functions that change it, made from a row's data."""

from collections.abc import Callable
from typing import Any

from tests.faults.fake_server import Change
from tests.faults.turn import Cut, Die, Pause, Raw, Step, Turn, event, set_counts, tokens_of

__all__ = ["Cut", "Die", "Pause", "Raw", "event"]

Answer = Callable[[dict[int, str]], str]
"""The answer's text from the right code by question number."""


def all_of(*changes: Change) -> Change:
    """Several changes of the same turn."""

    def change(turn: Turn) -> None:
        for one in changes:
            one(turn)

    return change


# -- replies ----------------------------------------------------------------------------------


def reply(status: int, body: object = b"", **headers: str) -> Change:
    """One body instead of the answer; `bytes` go out as they are."""

    def change(turn: Turn) -> None:
        turn.stream, turn.status, turn.reply = False, status, body
        turn.headers |= {name.replace("_", "-"): value for name, value in headers.items()}

    return change


def error(status: int, message: str, http: int | None = None, **more: object) -> Change:
    """An error as llama-server words it; `http` is the HTTP status where it is another one."""
    body = {"error": {"code": status, "message": message, "type": "server_error", **more}}
    return reply(status if http is None else http, body)


def props(**fields: object) -> Change:
    """Other fields in `/props`."""

    def change(turn: Turn) -> None:
        turn.reply = {**turn.reply, **fields}

    return change


def slots(fields: Callable[[Turn], dict[str, object]]) -> Change:
    """Other fields of its one slot in `/slots`."""

    def change(turn: Turn) -> None:
        turn.reply = [{**turn.reply[0], **fields(turn)}]

    return change


def templated(rewrite: Callable[[str], str]) -> Change:
    """A chat template that does `rewrite` to the message."""

    def change(turn: Turn) -> None:
        turn.reply = {"prompt": f"<s>{rewrite(turn.body['messages'][-1]['content'])}</s>"}

    return change


def pieces_as(make: Callable[[dict[str, Any]], Any]) -> Change:
    """Other entries in `/tokenize`'s answer when pieces are asked for."""

    def change(turn: Turn) -> None:
        if turn.body.get("with_pieces"):
            turn.reply = {"tokens": [make(token) for token in turn.reply["tokens"]]}

    return change


# -- counts and times -------------------------------------------------------------------------


def timings(**values: object) -> Change:
    """Other values in `timings`; `None` leaves one out."""

    def change(turn: Turn) -> None:
        merged = {**turn.timings, **values}
        turn.timings = {name: value for name, value in merged.items() if value is not None}

    return change


def scaled_timings(**factors: float) -> Change:
    """Values of `timings` times a factor."""

    def change(turn: Turn) -> None:
        turn.timings |= {name: turn.timings[name] * factor for name, factor in factors.items()}

    return change


def no_timings(turn: Turn) -> None:
    """No `timings` at all."""
    turn.timings = {}


def usage(**values: object) -> Change:
    """Other values in `usage`."""

    def change(turn: Turn) -> None:
        turn.usage = {**(turn.usage or {}), **values}

    return change


def no_usage(turn: Turn) -> None:
    """No `usage`, though it was asked for."""
    turn.usage = None


def read(share: float) -> Change:
    """Only this share of the prompt was read, and every count agrees with that."""

    def change(turn: Turn) -> None:
        total = round((turn.timings["prompt_n"] + turn.timings["cache_n"]) * share)
        set_counts(turn, total - turn.timings["cache_n"], turn.timings["cache_n"], 1)

    return change


def reused(share: float) -> Change:
    """This share of what was reused was, and every count agrees with that."""

    def change(turn: Turn) -> None:
        total = turn.timings["prompt_n"] + turn.timings["cache_n"]
        cached = round(turn.timings["cache_n"] * share)
        set_counts(turn, total - cached, cached, len(turn.pieces))

    return change


def claims_reuse(all_but: int) -> Change:
    """All but `all_but` tokens were reused, it says, whatever was in the cache."""

    def change(turn: Turn) -> None:
        total = turn.timings["prompt_n"] + turn.timings["cache_n"]
        set_counts(turn, all_but, total - all_but, len(turn.pieces))

    return change


def predicts(count: int) -> Change:
    """End of text after `count` tokens."""

    def change(turn: Turn) -> None:
        turn.pieces, turn.finish = turn.pieces[:count], "stop"
        set_counts(turn, turn.timings["prompt_n"], turn.timings["cache_n"], count)

    return change


def slower(factor: float) -> Change:
    """Generation takes `factor` times as long, really."""

    def change(turn: Turn) -> None:
        extra_s = turn.timings["predicted_ms"] * (factor - 1.0) / 1e3
        turn.timings["predicted_ms"] *= factor
        turn.wire.append(lambda steps: [*steps[:-2], Pause(extra_s), *steps[-2:]])

    return change


def hangs(seconds: float) -> Change:
    """Generation stops for so long, and the server's clock does not know of it."""

    def change(turn: Turn) -> None:
        turn.wire.append(lambda steps: [*steps[:-2], Pause(seconds), *steps[-2:]])

    return change


# -- answers ----------------------------------------------------------------------------------


def answers(make: Answer, *, finish: str = "stop") -> Change:
    """Another answer."""

    def change(turn: Turn) -> None:
        turn.pieces, turn.finish = tokens_of(make(turn.asked)), finish

    return change


def around(before: str, after: str = "") -> Change:
    """The right answer with something around it, each in one piece."""

    def change(turn: Turn) -> None:
        turn.pieces = [before, *turn.pieces, after]

    return change


def earlier_codes(*, instead: bool) -> Change:
    """Codes of earlier requests in this answer, instead of its own or beside them."""

    def change(turn: Turn) -> None:
        if not turn.earlier_codes:
            return
        leaked = turn.earlier_codes[-1]
        if instead:
            text = "\n".join(f"Q{n}={leaked}" for n in turn.asked)
            turn.pieces = tokens_of(text)
        else:
            turn.pieces += tokens_of(f"\nand before that {leaked}")

    return change


def thinks(*, finish: str, text: str | None = None) -> Change:
    """The answer's pieces as reasoning, and no content."""

    def change(turn: Turn) -> None:
        turn.reasoning = turn.pieces if text is None else [text]
        turn.pieces, turn.finish = [], finish

    return change


def lines(asked: dict[int, str], code: Callable[[int, str], str]) -> str:
    """One line a question with whatever `code` makes of its right code."""
    return "\n".join(f"Q{n}={code(n, right)}" for n, right in asked.items())


def needles_only(asked: dict[int, str], code: Callable[[str], str]) -> str:
    """`code` applied to the needles' codes; the control's answer stays right."""
    return lines(asked, lambda _, right: right if right.startswith("CTL") else code(right))


def swapped(asked: dict[int, str]) -> str:
    """Every needle's code under the next needle's number."""
    numbers = [n for n, code in asked.items() if not code.startswith("CTL")]
    following = dict(zip(numbers, [*numbers[1:], numbers[0]], strict=True))
    return lines(asked, lambda n, right: asked[following[n]] if n in following else right)


# -- the wire ---------------------------------------------------------------------------------


def wire(*changes: Callable[[list[Step]], list[Step]]) -> Change:
    """Changes of the finished stream."""

    def change(turn: Turn) -> None:
        turn.wire.extend(changes)

    return change


def headers(**values: str) -> Change:
    """Other headers of a stream."""

    def change(turn: Turn) -> None:
        turn.headers |= {name.replace("_", "-"): value for name, value in values.items()}

    return change


def split(size: int) -> Callable[[list[Step]], list[Step]]:
    """Every event cut into sends of `size` bytes."""

    def change(steps: list[Step]) -> list[Step]:
        cut: list[Step] = []
        for step in steps:
            if isinstance(step, bytes):
                cut += [step[i : i + size] for i in range(0, len(step), size)]
            else:
                cut.append(step)
        return cut

    return change


def each(make: Callable[[bytes], bytes]) -> Callable[[list[Step]], list[Step]]:
    """Something done to every event's bytes."""
    return lambda steps: [make(s) if isinstance(s, bytes) else s for s in steps]


def glued(steps: list[Step]) -> list[Step]:
    """All events in one send, after the time they took."""
    pauses = [s for s in steps if not isinstance(s, bytes)]
    return [*pauses, b"".join(s for s in steps if isinstance(s, bytes))]


def put(place: float, *what: Step) -> Callable[[list[Step]], list[Step]]:
    """Steps put in at a share of the stream (0 before its first event, 1 after its last)."""

    def change(steps: list[Step]) -> list[Step]:
        at = round(place * len(steps))
        return [*steps[:at], *what, *steps[at:]]

    return change


def every(s: float, what: bytes, times: int = 8) -> list[Step]:
    """`what` after `s` seconds, `times` times."""
    return [step for _ in range(times) for step in (Pause(s), what)]


def only_first(count: int, *then: Step) -> Callable[[list[Step]], list[Step]]:
    """The first `count` events, then something else and no more."""

    def change(steps: list[Step]) -> list[Step]:
        return [*[s for s in steps if isinstance(s, bytes)][:count], *then]

    return change


def merged(count: int) -> Change:
    """`count` tokens in one event."""

    def change(turn: Turn) -> None:
        groups = range(0, len(turn.pieces), count)
        turn.pieces = ["".join(turn.pieces[i : i + count]) for i in groups]

    return change


def no_done(turn: Turn) -> None:
    """No `[DONE]` at the end."""
    turn.done = False


def no_finish(turn: Turn) -> None:
    """The stream ends as if it were complete, but nothing says that the answer is."""
    turn.wire.append(lambda steps: [s for s in steps if not _finishes(s)])


def _finishes(step: Step) -> bool:
    if not isinstance(step, bytes):
        return False
    return b'"finish_reason":"' in step or b"[DONE]" in step or b'"usage"' in step


def whole_body(turn: Turn) -> None:
    """The answer as one JSON object, though a stream was asked for."""
    message = {"role": "assistant", "content": "".join(turn.pieces)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    reply(200, {"choices": [choice], "usage": turn.usage, "timings": turn.timings})(turn)

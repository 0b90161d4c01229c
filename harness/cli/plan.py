"""`harness plan`: what a context will need in memory and time, before the hours are spent."""

import re
from contextlib import ExitStack
from datetime import datetime

import click
from rich.table import Table

from harness.cli.chosen import settings_for
from harness.cli.output import say, show
from harness.errors import HarnessError, ServerError, SetupError
from harness.llamacpp.buffers import BufferCheck
from harness.llamacpp.forecast import spoken
from harness.llamacpp.memory_plan import GPU, HOST, MemoryPlan
from harness.machine.lock import machine_lock
from harness.measuring.budget import Budget, answering, attention_share, probe
from harness.measuring.preflight import Preflight, after_start, before_start
from harness.measuring.recorded import prefill_record
from harness.measuring.script import Script
from harness.options import taken
from harness.quantities import size
from harness.report.text import plain_table
from harness.serving.log import explain, findings_of
from harness.serving.session import Session, open_session
from harness.settings import Settings

WARM_UP_TOKENS = 600
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?\s*", re.IGNORECASE)


@click.command()
@taken("profile", "ctx_tokens", "depths", "server_url", "server_bin", "server_args", "model")
@taken("budget_s", "offline")
@click.option("--max-buffer", metavar="SIZE", help="Largest buffer the device takes, such as 2GiB.")
@click.option("--no-probe", is_flag=True, help="Start nothing: only the model's file is read.")
def plan(max_buffer: str | None, no_probe: bool, **options: object) -> None:
    """Say what a run would need: memory by part, single buffers, and time.

    Starts the server at that context, generates a little, and reads a short text (2 seconds, or 2 %
    of the forecast where that is more; at most a tenth of the budget); nothing is recorded.
    Exit code: 0 nothing speaks against the run, 1 something does.
    """
    settings = settings_for(options)
    limit_bytes = None if max_buffer is None else size_bytes(max_buffer)
    foreseen, _ = before_start(settings, max_buffer_bytes=limit_bytes)
    if no_probe:
        _show(foreseen, answer := _answer(settings, foreseen, None))
        say(answer)
        raise SystemExit(1 if foreseen.objections else 0)
    with ExitStack() as stack:
        stack.enter_context(machine_lock(f"harness plan --ctx {settings.ctx_tokens}"))
        folder = settings.results / "logs"
        log = folder / f"plan-{datetime.now():%Y%m%d-%H%M%S}.server.log"
        try:
            session = open_session(settings, log, say)
        except HarnessError:
            _show(foreseen, "the server does not start so")
            raise
        stack.callback(session.close)
        ready = foreseen
        if session.running is not None:
            found = findings_of(session.running)
            ready = after_start(settings, session, found, foreseen, max_buffer_bytes=limit_bytes)
        try:
            budget = _probed(settings, session)
        except ServerError as error:
            _show(ready, "the server starts, and fails at the first reading")
            failure = explain(error, session.running)
            for line in failure.log_tail[-12:]:
                say(f"  | {line}")
            raise ServerError(f"while probing: {failure.message}", failure.cause) from error
        _show(ready, answer := _answer(settings, ready, budget))
        over = _show_time(budget)
        say(f"{answer}; not within --budget" if over else answer)
    raise SystemExit(1 if over or ready.objections else 0)


def size_bytes(text: str) -> int:
    """A size such as `2GiB`, `4GB` or `2147483648`, bytes (GiB = 2^30, GB = 10^9).

    Raises:
        SetupError: no size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise SetupError(f"--max-buffer {text}: expected a size such as 2GiB or 2147483648")
    base = 1024.0 if match[3] else 1000.0
    power = " kmgt".index((match[2] or " ").lower())
    return round(float(match[1]) * float(base**power))


# -- probing --------------------------------------------------------------------------------


def _probed(settings: Settings, session: Session) -> Budget | str:
    """The forecast after a short generation and a short reading, or why there is none."""
    if session.identity.reduced:
        return "no forecast: only a llama-server says how fast it reads"
    script = Script(session.client, settings, native=True)
    warm = session.client.chat(
        script.filler("warm-up", WARM_UP_TOKENS),
        max_tokens=settings.generate_tokens,
        reuse=False,
        ignore_eos=True,
    )
    deepest = settings.rung_depths[-1]
    budget = Budget(
        script.plan,
        deepest,
        limit_s=settings.budget_s,
        again_s=0.0,
        max_repeats=settings.max_repeats,
        ratio=attention_share(session.gguf),
    )
    exchange = probe(script, warm, deepest=deepest, budget_s=settings.budget_s)
    reading = exchange or warm
    record = prefill_record(
        reading, "cold_repeat", planned_cached_tokens=0, origin_ns=reading.started_ns
    )
    budget.learn(record.chunks, answering(warm, exchange))
    read = reading.new_tokens or 0
    say(f"the server started with this context and generated; {read} tokens were read as a probe")
    return budget


# -- showing --------------------------------------------------------------------------------


def _answer(settings: Settings, preflight: Preflight, budget: Budget | str | None) -> str:
    """What the plan comes to, in one sentence: whether it fits, and when it is through."""
    memory, what = preflight.memory, f"{settings.ctx_tokens:,} tokens"
    parts = [] if memory.parts else ["its memory is not known"]
    for place in dict.fromkeys(part.place for part in memory.parts):
        room = memory.room_bytes(place)
        free = "" if room is None else f" of {size(room)} free"
        named = {HOST: "memory", GPU: "GPU memory"}.get(place, f"memory of {place}")
        parts.append(f"{named} {size(memory.needed_bytes(place))}{free}")
    if budget is None:
        parts.append("how long it takes is told without --no-probe")
    elif isinstance(budget, Budget) and (ahead := budget.forecast()):
        parts.append(f"measured after {spoken(ahead[-1].until)}")
    if not preflight.objections:
        return f"{what} {'fit' if memory.parts else 'may fit'}: {'; '.join(parts)}"
    return f"{what} do not fit: {preflight.objections[0]}"


def _show(preflight: Preflight, answer: str) -> None:
    say(answer)
    show(_memory_table(preflight.memory))
    for unknown in preflight.memory.unknown:
        say(f"not known: {unknown}")
    if preflight.buffers is not None and preflight.limit is not None:
        show(_buffer_table(preflight.buffers))
    elif preflight.memory.parts:
        say("single buffers: no device's limit is known; --max-buffer 2GiB gives one")
    for objection in preflight.objections:
        say(f"objection: {objection}")


def _memory_table(memory: MemoryPlan) -> Table:
    table = plain_table("memory", "size", "from", "on")
    for part in memory.parts:
        table.add_row(part.name, size(part.size_bytes), part.source, part.device or "-")
    table.add_row("together", size(memory.total_bytes), "", "")
    for pool in memory.pools:
        if pool.free_bytes is not None:
            lent = " (borrowed from RAM)" if pool.borrowed else ""
            table.add_row(f"free before: {pool.name}{lent}", size(pool.free_bytes), pool.source, "")
    return table


def _buffer_table(check: BufferCheck) -> Table:
    table = plain_table("largest single buffers", "size", "how", f"limit {size(check.limit_bytes)}")
    over = {buffer.kind for buffer in check.over}
    for buffer in check.buffers:
        table.add_row(
            buffer.kind,
            size(buffer.total_bytes),
            buffer.how,
            "OVER" if buffer.kind in over else "fits",
        )
    return table


def _show_time(budget: Budget | str) -> bool:
    """Show the forecast; whether it speaks against the run."""
    if isinstance(budget, str):
        say(budget)
        return False
    ahead = budget.forecast()
    if not ahead:
        say("no forecast: the server told no batch times")
        return False
    table = plain_table("rung", "measured after about (90 % interval)")
    for rung in ahead:
        table.add_row(str(rung.depth), spoken(rung.until))
    show(table)
    try:
        budget.refuse_hopeless()
    except SetupError as error:
        say(f"objection: {error}")
        return True
    if budget.limit_s is not None and ahead[-1].until.ms > budget.limit_s * 1e3:
        say(
            "it may take longer than --budget; a run starts all the same, and stops where the "
            "rest cannot fit any more"
        )
    return False

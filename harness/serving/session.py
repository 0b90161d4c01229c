"""The server of a run: found, started or attached to, checked to be what was asked for."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.errors import HarnessError, ServerError, SetupError
from harness.llamacpp.batch_sizes import batch_defaults, few_points
from harness.llamacpp.combinations import objection
from harness.llamacpp.discrepancies import discrepancies, other_build
from harness.llamacpp.flags import (
    SERVER_VARIABLE,
    cache_settings,
    pairs,
    spellings,
    values_of,
    with_defaults,
)
from harness.llamacpp.log import scan
from harness.records.lines import ModelIdentity, ServerIdentity
from harness.serving.builds import build_of
from harness.serving.embedded import FLAGS
from harness.serving.gguf_file import GgufInfo, model_identity, read_gguf
from harness.serving.identity import described, identity_of, model_of
from harness.serving.launch import (
    LOOPBACK,
    LaunchSpec,
    RunningServer,
    free_port,
    inherited,
    refuse_taken_port,
    supported_flags,
    wait_until_ready,
)
from harness.serving.packaged import reference_model
from harness.serving.slots import slots_folder
from harness.settings import API_KEY_VARIABLE, Settings

if TYPE_CHECKING:
    from harness.serving.client import Client

_LONGEST_REQUEST_S = 7 * 24 * 3600
_NAME_CHARS = 120
SERVER_KEY = "LLAMA_API_KEY"  # the variable's name, not a key

_VERBOSITY = ("-lv", "4")
"""At 4 llama-server logs buffer sizes, devices and settings, and no line per token."""

_STRETCHING = {"--rope-scaling", "--rope-scale", "--rope-freq-scale", "--override-kv"}

Say = Callable[[str], None]


@dataclass(slots=True)
class Session:
    """An endpoint ready to be measured.

    `pid` is the process of a server we started. `reduced` servers
    lack llama-server's native endpoints: client-side timing only.
    """

    client: "Client"
    identity: ServerIdentity
    model: ModelIdentity
    pid: int | None
    running: RunningServer | None = None
    gguf: GgufInfo | None = None

    def check_alive(self, doing: str) -> None:
        """Raise the death of a server of ours, with its log's tail, if it has died."""
        if self.running is not None and not self.running.alive:
            raise self.running.death(doing)

    def close(self) -> None:
        """Stop a server of ours; leave others running."""
        self.client.close()
        if self.running is not None:
            self.running.stop()


def open_session(
    settings: Settings, log_path: Path, say: Say, *, notes: Path | None = None
) -> Session:
    """Find or start the server that `settings` ask for and read back what it really serves.

    `notes` is the folder where a server of ours is noted for the run after a crash.

    Raises:
        SetupError: nothing there, not what was asked for, or a context too small.
        ServerError: it died or hung while starting.
    """
    session = (
        _attach(settings, say) if settings.server_url else _start(settings, log_path, say, notes)
    )
    try:
        _refuse_other_than_asked(session, settings)
        _refuse_small_context(session.identity.n_ctx, settings)
    except HarnessError:
        session.close()
        raise
    return session


# -- a server that already runs -------------------------------------------------------------


def _attach(settings: Settings, say: Say) -> Session:
    assert settings.server_url is not None
    from harness.serving.client import Client

    url = settings.server_url.split(",")[0].strip()
    client = Client(url, api_key=settings.api_key, idle_limit_s=settings.idle_timeout_s)
    try:
        file = settings.model is None or settings.model.lower().endswith(".gguf")
        props, listed = described(client, None if file else settings.model)
        if props is None and listed is None:
            raise SetupError(
                f"{url} answers, but neither as a llama-server (no /props) nor as an "
                "OpenAI-compatible server (no /v1/models); check --server-url"
            )
    except ServerError as error:
        client.close()
        raise SetupError(str(error)) from error
    except SetupError:
        client.close()
        raise
    if props is None:
        say(
            f"{url} is not a llama-server (no /props): reduced mode, client-side timing only; "
            "reuse, per-batch curve and exact token budgets are not available"
        )
    local = urlsplit(url).hostname in (LOOPBACK, "localhost", "::1")
    return Session(
        client=client,
        identity=identity_of("url", props, (), reduced=props is None),
        model=model_of(props, listed, local),
        pid=None,
    )


# -- a server of ours -----------------------------------------------------------------------


def _start(settings: Settings, log_path: Path, say: Say, notes: Path | None) -> Session:
    build, binary = build_of(settings), binary_of(settings)
    given = list(settings.server_args)
    _refuse_secrets(given)
    asked = values_of(given)
    if binary and not (settings.model or asked.get("--model") or asked.get("--hf-repo")):
        say("no --model given: the binary serves the project's own reference model")
    gguf = served_model(settings)
    refuse_impossible(settings, gguf)
    port, host = _port(asked.get("--port")), asked.get("--host", LOOPBACK)
    defaults: list[tuple[str, str | None]] = [
        ("--host", host),
        ("--port", str(port)),
        ("-c", str(settings.ctx_tokens)),
        ("-np", "1"),
        ("--cache-ram", "0"),
        ("--ctx-checkpoints", "8"),
        ("--fit", "off"),
        ("--timeout", str(_LONGEST_REQUEST_S)),
        ("--metrics", None),
        _VERBOSITY,
        ("--no-webui", None),
    ]
    if gguf is not None:
        defaults.insert(0, ("--model", str(_model_path(settings))))
    if (slots := slots_folder(settings)) is not None:
        slots.mkdir(parents=True, exist_ok=True)
        defaults.append(("--slot-save-path", f"{slots.absolute()}{os.sep}"))
    defaults += batch_defaults(given)
    if lost := few_points(given, settings.rung_depths):
        say(lost)
    if binary:
        help_text = supported_flags(binary)
        defaults = [d for d in defaults if any(_mentions(help_text, n) for n in spellings(d[0]))]
        if "trace (more info)" not in help_text:  # older builds count verbosity the other way
            defaults = [d for d in defaults if d != _VERBOSITY]
        argv = [binary, *with_defaults(given, defaults)]
    else:
        argv = [
            *(sys.executable, "-m", "harness.serving.embedded"),
            *with_defaults(given, defaults),
        ]
    if dropped := sorted({*os.environ} - {*inherited()}):
        say(
            f"{', '.join(dropped)} of the environment: not handed on to the server; what it is to "
            "take stands in --server-args or in the `env` of its profile"
        )
    read = {k: v for k, v in inherited().items() if SERVER_VARIABLE.match(k)} | settings.env
    read.pop(SERVER_KEY, None)
    key = settings.api_key or settings.env.get(SERVER_KEY) or os.environ.get(SERVER_KEY)
    env = {**settings.env, **({SERVER_KEY: key} if key else {})}
    if build is not None and build.python_path is not None:
        env["PYTHONPATH"] = build.python_path
    spec = LaunchSpec(tuple(argv), port, log_path, env, notes, host)
    running = RunningServer(spec)
    from harness.serving.client import Client

    client = Client(spec.base_url, api_key=key, idle_limit_s=settings.idle_timeout_s)
    try:
        wait_until_ready(running, client, limit_s=settings.ready_timeout_s)
        props, listed = described(client)
        shown = argv[1:] if binary else argv[3:]
        origin = "binary" if binary else "embedded"
        return Session(
            client=client,
            identity=identity_of(
                *(origin, props, shown),
                reduced=props is None,
                env=read,
                fetched=build.origin if build is not None else None,
            ),
            model=model_identity(gguf) if gguf else model_of(props, listed, local=True),
            pid=running.pid,
            running=running,
            gguf=gguf,
        )
    except BaseException:
        client.close()
        running.stop()
        raise


def _refuse_secrets(given: list[str]) -> None:
    """Everyone on the machine can read a command line."""
    for flag, variable in (("--api-key", API_KEY_VARIABLE), ("--hf-token", "HF_TOKEN")):
        if flag in values_of(given):
            raise SetupError(
                f"{flag} in --server-args shows a secret to everyone who can list processes; "
                f"put it into the environment variable {variable}, from which the server that is "
                "started takes it"
            )


def binary_of(settings: Settings) -> str | None:
    """The llama-server binary to start; `None` for the embedded server.

    Raises:
        SetupError: it was given by name and cannot be had.
    """
    if settings.embedded:
        return None
    if (build := build_of(settings)) is not None:
        return build.binary
    own = settings.model is None or settings.reference is not None
    return settings.server_bin or (None if own else shutil.which("llama-server"))


def server_name(settings: Settings) -> str:
    """What tells the server to start from others: a build's name, a path, or `embedded`."""
    build = build_of(settings)
    return build.origin.name if build is not None else binary_of(settings) or "embedded"


def _model_path(settings: Settings) -> Path:
    named = values_of(settings.server_args).get("--model") or settings.model
    return Path(named) if named else reference_model()


def served_model(settings: Settings) -> GgufInfo | None:
    """The header of the model that a server of ours will serve.

    `None` where there is no file to read: a server that already runs, a model from the hub.

    Raises:
        SetupError: the file is missing or no usable GGUF.
    """
    from_hub = binary_of(settings) and values_of(settings.server_args).get("--hf-repo")
    if settings.server_url or from_hub:
        return None
    return read_gguf(_model_path(settings))


def refuse_impossible(settings: Settings, gguf: GgufInfo | None) -> None:
    """Refuse, before a server is started, flags that it cannot be started with.

    Raises:
        SetupError: with the reason.
    """
    given = list(settings.server_args)
    taken = {name for flag in FLAGS for name in flag.names}
    unknown = next((name for name, _ in pairs(given) if name not in taken), None)
    if binary_of(settings) is None and unknown is not None:
        raise SetupError(
            f"the embedded server does not know {unknown}; use --server-bin with a "
            "llama-server binary for it, or drop it from --server-args"
        )
    cache_settings(given)
    metadata = gguf.metadata if gguf is not None else None
    if reason := objection(given, metadata, ctx_tokens=max(settings.rung_depths)):
        raise SetupError(f"these flags do not go together: {reason}")
    _refuse_untrained_context(gguf, given, settings)


def _port(asked: str | None) -> int:
    if asked is None:
        return free_port()
    if not asked.isdigit() or not 0 < int(asked) < 65536:
        raise SetupError(f"--port {asked} in --server-args: expected a number from 1 to 65535")
    refuse_taken_port(int(asked))
    return int(asked)


def _mentions(help_text: str, flag: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_text) is not None


# -- refusals -------------------------------------------------------------------------------


def _refuse_untrained_context(gguf: GgufInfo | None, given: list[str], settings: Settings) -> None:
    trained = gguf.trained_ctx_tokens if gguf is not None else None
    stretched = _STRETCHING.intersection(values_of(given))
    if trained is None or stretched or settings.ctx_tokens <= trained:
        return
    raise SetupError(
        f"--ctx asks for {settings.ctx_tokens} tokens but the model was trained to {trained}; "
        "lower --ctx, or stretch it in --server-args (--rope-scaling yarn --rope-scale 4 "
        f"--yarn-orig-ctx {trained} --override-kv ARCH.context_length=int:{settings.ctx_tokens})"
    )


def _refuse_small_context(n_ctx: int | None, settings: Settings) -> None:
    deepest = max(settings.rung_depths)
    if n_ctx is not None and n_ctx < deepest:
        raise SetupError(
            f"the server's context is {n_ctx} tokens a slot but --ctx asks for {deepest}; start it "
            f"with -c {deepest} -np 1 (and YaRN flags if the model was trained shorter), or lower "
            "--ctx"
        )


def _refuse_other_than_asked(session: Session, settings: Settings) -> None:
    wrong = [other_build(session.identity.build, settings.expect_build)]
    running = session.running
    if running is not None:
        found = scan(running.log_lines())
        n_ctx, device = session.identity.n_ctx, settings.expect_device
        wrong += discrepancies(session.identity.argv, found, n_ctx=n_ctx, device=device)
    elif settings.expect_device is not None:
        raise SetupError(
            f"--expect-device {settings.expect_device} cannot be checked on a server that already "
            "runs (--server-url); start it here with --server-bin, or drop that option"
        )
    if clauses := [clause for clause in wrong if clause]:
        log = f"; its log is {running.spec.log_path}" if running is not None else ""
        raise SetupError(f"the server is not what was asked for: {'; '.join(clauses)}{log}")

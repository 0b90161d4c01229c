"""Run records: what was measured, raw, in versioned lines that survive a crash at any byte.

A record file is JSON Lines. The first line is a `Header`; then `Control`, `Rung` and `Event` lines
in the order things happened; a `Footer` ends a climb that finished. Heatmap and fuzz come after it,
as `ProbeAsk` and `Event` lines. A reader keeps what stands before a broken line. Samples are raw;
every summary is derived. Absent is `None` with a reason, never 0 or NaN.

A run that was cut short and resumed goes on in the same file, after an `Event` `resumed`: each
stretch is a *sitting*, with controls of its own. Of a rung measured twice the last line counts.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, field_validator

from harness.records.fidelity import Numbers
from harness.records.strict import Strict as Strict  # also for whoever takes a line

SCHEMA_VERSION = 1
IMPORTED = "imported"
"""Code of the event that says that another tool measured what a record holds."""
RESUMED = "resumed"
"""Code of the event that begins a later sitting of a run that was cut short."""
REGAINED = "regained"
"""Code of the event that says how a resumed run got its document back into the KV cache."""
SPOT = "spot"
"""Code of the event that says that documents were restored and not read."""
NOT_SPOT = "not_spot"
"""Code of the event that says why documents were read that were to be restored."""
CURVE = "curve"
"""Code of the event that keeps a long prefill's curve while it is still being read."""


class GpuAt(Strict):
    """What the working GPU ran at during a request, by `counter`.

    `held_by` says what kept its clock down (`idle`, `power limit`, `heat`); `None`: not told.
    """

    counter: str
    core_mhz: float
    held_by: tuple[str, ...] | None = None


class Timed(Strict):
    """A measured request: from when to when, in seconds since the run began, and who disturbed it.

    `contention` is one sentence, `None` when nothing was seen (or nothing watched: see the events).
    """

    start_s: float | None = None
    end_s: float | None = None
    contention: str | None = None
    gpu: GpuAt | None = None


class Chunk(Strict):
    """One batch of a prefill: tokens `start_tokens..end_tokens` of the prompt, read in `ms`."""

    start_tokens: int
    end_tokens: int
    ms: float


class Prefill(Timed):
    """One prefill request without questions (`n_predict` 0).

    `new_tokens` were processed, `cached_tokens` reused and `planned_cached_tokens` should have
    been. `server_ms` is the server's own prompt time (None in reduced mode), `wall_ms` ours.
    """

    kind: Literal["climb", "cold_repeat", "cold_fallback"]
    new_tokens: int
    cached_tokens: int | None
    planned_cached_tokens: int
    server_ms: float | None
    wall_ms: float
    chunks: tuple[Chunk, ...] = ()


class AskRecord(Timed):
    """One retrieval request and everything it said.

    `ttft_ms` is client-side: request sent to first token. `expected` and `given` map question
    number to code. `planned_new_tokens` is what should have been read anew (the tail).
    `failure_class`, its reason and evidence are `failures`' diagnosis; `invalid` says why the
    answer tells nothing of distant retrieval (control_failed, budget, contaminated). `superseded`:
    the token budget cut it, and the same was asked again with a larger one; only that ask counts.
    """

    order: Literal["forward", "reversed", "shuffled"]
    expected: dict[int, str]
    given: dict[int, str]
    control_number: int | None
    answer: str
    reasoning: str
    finish_reason: str | None
    needles_right: int
    needles_asked: int
    codes_present: int
    control_right: bool
    prompt_tokens: int | None
    new_tokens: int | None
    cached_tokens: int | None
    planned_new_tokens: int
    predicted_tokens: int | None
    predicted_ms: float | None
    ttft_ms: float | None
    wall_ms: float
    failure_class: str = "right"
    failure_reason: str = ""
    invalid: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    superseded: bool = False


class Generation(Timed):
    """One generation repeat with `ignore_eos`.

    `server_ms` is the server's time for `predicted_tokens` (the rate is their quotient);
    `itl_ms` are client-side gaps between events that carried text.
    """

    predicted_tokens: int
    server_ms: float | None
    wall_ms: float
    ttft_ms: float | None
    new_tokens: int | None
    cached_tokens: int | None
    draft_tokens: int | None = None
    draft_accepted_tokens: int | None = None
    itl_ms: tuple[float, ...] = ()


class MemorySample(Strict):
    """Memory of the server's process tree, bytes. `None` means not readable here.

    `rss_anon_bytes` leaves out the mapped model file; `commit_bytes` is Windows' private commit.
    `device_counters` holds every counter of device memory that could be read, by name, those of
    the whole GPU among them; `device_bytes` is the one of the server named by `device_counter`.
    `generated_tokens` is what the server had generated in this run by then.
    """

    rss_bytes: int | None
    rss_anon_bytes: int | None = None
    swap_bytes: int | None = None
    commit_bytes: int | None = None
    device_bytes: int | None = None
    device_counter: str | None = None
    device_counters: dict[str, int] = Field(default_factory=dict)
    host_available_bytes: int | None = None
    generated_tokens: int | None = None


class Failure(Strict):
    """Why something was not measured: a cause from the closed list, a sentence, the log's tail."""

    cause: Literal[
        "SETUP",
        "ALLOC_FAIL",
        "DEVICE_LOST",
        "STALLED",
        "TRUNCATED",
        "SERVER_DIED",
        "SERVER_ERROR",
        "INTERRUPTED",
        "OVER_BUDGET",
    ]
    message: str
    log_tail: tuple[str, ...] = ()


class Plan(Strict):
    """What a run set out to do. `document_tokens` pairs with `depths`; K = 1024.

    `distractors`: records a rung that look like its needles and that no question asks for.
    """

    ctx_tokens: int
    depths: tuple[int, ...]
    document_tokens: tuple[int, ...]
    fill: float
    seed: int
    background: Literal["plain", "hard"]
    grammar_version: int
    generate_tokens: int
    repeats: int
    cold_repeats: dict[int, int] = Field(default_factory=dict)
    distractors: int = 0


class Machine(Strict):
    """Where it ran. `machine_class` groups machines whose numbers may be compared.

    `conditions` are what speed depends on besides: kernel, firmware, power profile, limits (empty
    in records older than it).
    """

    machine_class: str
    cpu: str
    cpu_cores: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    os: str
    python: str
    driver: str | None = None
    conditions: dict[str, str] = Field(default_factory=dict)


class ModelIdentity(Strict):
    """What was run, whatever its file is called.

    `content_hash` covers the GGUF's header and samples of its weights; `None` when the file is not
    readable from here (a server known by URL only), then `identity` is built from what the server
    says.
    """

    identity: str
    name: str
    architecture: str | None = None
    file_type: str | None = None
    parameters: int | None = None
    trained_ctx_tokens: int | None = None
    content_hash: str | None = None


class BuildOrigin(Strict):
    """A build that was got by its name: `source` is where from, `digest` the SHA-256 of that.

    Of a wheel the digest covers the digests of its files, of a commit the binary that was built.
    """

    name: str
    version: str
    commit: str | None = None
    digest: str
    source: str


class ServerIdentity(Strict):
    """Which server: how it came to be, its build, its argv (secrets removed), what it read back.

    `key` holds the settings that make two runs comparable (part of a baseline's key);
    `noted` those recorded only, since they are often the very thing under test. `fetched` is set
    where the build was given by name.
    """

    origin: Literal["url", "binary", "embedded"]
    build: str
    argv: tuple[str, ...] = ()
    n_ctx: int | None
    reduced: bool = False
    key: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    noted: dict[str, str | int | float | bool | None] = Field(default_factory=dict)
    fetched: BuildOrigin | None = None


class Header(Strict):
    """First line of a record.

    `profile`, `matrix` and `arm` name the configuration of `harness.toml` and the arm of the matrix
    it was measured as; they are not part of a baseline's key.
    """

    kind: Literal["header"] = "header"
    schema_version: int = Field(SCHEMA_VERSION, strict=True, ge=1)
    run_id: str
    started_at: str
    harness_version: str
    plan: Plan
    machine: Machine
    server: ServerIdentity
    model: ModelIdentity
    label: str | None = None
    profile: str | None = None
    matrix: str | None = None
    arm: str | None = None

    @field_validator("started_at")
    @classmethod
    def _a_time(cls, value: str) -> str:
        datetime.fromisoformat(value)  # its error says what is wrong with it
        return value


class Control(Strict):
    """The small request at depth 0, before or after the climb (A-B-A) of a sitting."""

    kind: Literal["control"] = "control"
    sitting: int = 1
    position: Literal["before", "after"]
    prefills: tuple[Prefill, ...]
    generations: tuple[Generation, ...]


class Rung(Strict):
    """All that was measured at one depth; `failure` when it could not be finished.

    `log_counts` is how often each pattern of the log watch was met since the rung before;
    `numbers` are looks at one and the same, later ones behind another reading of the document.
    """

    kind: Literal["rung"] = "rung"
    sitting: int = 1
    depth: int
    document_tokens: int
    prefills: tuple[Prefill, ...] = ()
    asks: tuple[AskRecord, ...] = ()
    generations: tuple[Generation, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    cold_ttft_ms: float | None = None
    notes: tuple[str, ...] = ()
    log_counts: dict[str, int] = Field(default_factory=dict)
    failure: Failure | None = None
    elapsed_s: float

    @property
    def counted_asks(self) -> tuple[AskRecord, ...]:
        """The asks that count: without those that were asked again with a larger budget."""
        return tuple(ask for ask in self.asks if not ask.superseded)


class ProbeAsk(Strict):
    """One ask outside the ladder: of a heatmap, of a fuzzed example, or of a harder test.

    `document_tokens` were read before its questions; `cold` says that nothing of them was to be
    reused.
    """

    kind: Literal["probe_ask"] = "probe_ask"
    probe: Literal["heatmap", "fuzz", "harder", "family"]
    document_tokens: int
    cold: bool
    ask: AskRecord


class Event(Strict):
    """Something said about the run as a whole: contention, a fallback, a log warning."""

    kind: Literal["event"] = "event"
    code: str
    message: str
    data: dict[str, Any] = Field(default_factory=dict)


class Footer(Strict):
    """Ends a climb that ended by itself; only the lines of probes may follow."""

    kind: Literal["footer"] = "footer"
    ended_at: str
    complete: bool
    prefilled_tokens: int | None
    elapsed_s: float
    failure: Failure | None = None


AnyLine = Header | Control | Rung | ProbeAsk | Event | Footer
Line = Annotated[AnyLine, Field(discriminator="kind")]
LINE: TypeAdapter[AnyLine] = TypeAdapter(Line)


class RunRecord(Strict):
    """A whole record as read back; `torn` says that broken lines were dropped."""

    header: Header
    controls: tuple[Control, ...] = ()
    rungs: tuple[Rung, ...] = ()
    probe_asks: tuple[ProbeAsk, ...] = ()
    events: tuple[Event, ...] = ()
    footer: Footer | None = None
    torn: bool = False

    @property
    def imported(self) -> bool:
        """Whether another tool measured it, which asked no questions and watched nothing."""
        return any(event.code == IMPORTED for event in self.events)

    @property
    def spot(self) -> bool:
        """Whether its documents were restored from kept KV caches and not read."""
        return any(event.code == SPOT for event in self.events)

    def event_data(self, code: str) -> dict[str, Any]:
        """The data of the last event of that code; empty without one."""
        return next((e.data for e in reversed(self.events) if e.code == code), {})

    @property
    def sittings(self) -> int:
        """In how many sittings it was measured: 1, and one more each time it was resumed."""
        return 1 + sum(event.code == RESUMED for event in self.events)

    def rung(self, depth: int) -> Rung | None:
        """The rung measured at `depth`, the latest when it was measured twice."""
        return next((r for r in reversed(self.rungs) if r.depth == depth), None)

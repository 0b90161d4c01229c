"""A guard: a bit of the code that rows of the fault table need."""

from dataclasses import dataclass

CLIENT = "harness/serving/client.py"
PIECES = "harness/serving/pieces.py"
WIRE = "harness/serving/wire.py"
SHAPES = "harness/serving/shapes.py"
SESSION = "harness/serving/session.py"
IDENTITY = "harness/serving/identity.py"
LAUNCH = "harness/serving/launch.py"
COUNTS = "harness/measuring/refusals.py"
RUNNER = "harness/measuring/climb.py"
STREAMS = "harness/serving/streams.py"
SERVERLOG = "harness/serving/log.py"
OTHERS = "harness/measuring/other_clients.py"
SCRIPT = "harness/measuring/script.py"
MEASURED = "harness/measuring/recorded.py"
PLAUSIBLE = "harness/verdicts/laws.py"
VERDICT = "harness/verdicts/verdict.py"
RUNG = "harness/verdicts/rung.py"
STATS = "harness/verdicts/stats.py"
OUTCOMES = "harness/verdicts/cell.py"
PROPORTIONS = "harness/verdicts/proportions.py"
RETRIEVAL = "harness/verdicts/retrieval.py"
SCORING = "harness/questions/scoring.py"
CELLS = "harness/records/samples.py"


@dataclass(frozen=True, slots=True)
class Guard:
    """`text` of `path` is replaced by `without`; then each of `rows` must fail."""

    what: str
    path: str
    text: str
    without: str
    rows: tuple[str, ...]

"""Settings: command-line options over `harness.toml` over defaults, parsed once and frozen."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.errors import SetupError
from harness.llamacpp.flags import values_of
from harness.llamacpp.profiles import layered, profile_layer
from harness.options import OPTIONS
from harness.questions.family import MEMBERS, NEEDLES
from harness.questions.harder import LEAST_TOKENS, TASKS, Task
from harness.questions.heatmap import NEEDLE_TOKENS
from harness.records.metrics import METRICS

DEFAULT_CTX_TOKENS = 8192
MINIMUM_DEPTH = 1024
DEFAULT_FUZZ_CTX = 2048
MINIMUM_FUZZ_CTX = 1536
HEATMAP_TAIL_TOKENS = 200
"""Room, about, that eight questions and their template take."""
API_KEY_VARIABLE = "HARNESS_API_KEY"  # the variable's name, not a key


def tokens(text: object, option: str) -> int:
    """A token count such as `131072` or `128K` (K = 1024, M = 1024²).

    Raises:
        SetupError: not a positive whole number.
    """
    match = re.fullmatch(r"\s*(-?\d+)\s*([kKmM]?)\s*", str(text))
    if match is None:
        raise SetupError(f"{option} {text}: expected a number of tokens such as 131072 or 128K")
    value = int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]
    if value <= 0:
        raise SetupError(f"{option} {text}: expected a number of tokens above 0, such as 131072")
    return value


def _depths(value: object) -> tuple[int, ...]:
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(sorted({tokens(part, "--depths") for part in parts}))


def _shape(value: object) -> tuple[int, int]:
    text = "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    match = re.fullmatch(r"\s*(\d+)\s*[xX×]\s*(\d+)\s*", text)
    if match is None or not (1 <= int(match[1]) <= 64 and 1 <= int(match[2]) <= 64):
        raise SetupError(
            f"--heatmap {value}: expected lengths x depths, 1 to 64 of each, such as 8x16"
        )
    return int(match[1]), int(match[2])


def _tasks(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list | tuple) else str(value).split(",")
    asked = {str(word).strip().lower() for word in words}
    if not asked or not asked <= set(TASKS):
        raise SetupError(f"--harder {value}: expected one or more of {','.join(TASKS)}")
    return tuple(task for task in TASKS if task in asked)


def _members(value: object) -> tuple[str, ...]:
    known = (NEEDLES, *MEMBERS)
    words = value if isinstance(value, list | tuple) else str(value).split(",")
    asked = {str(word).strip().lower() for word in words}
    if asked == {"all"}:
        return known
    if not asked or not asked <= set(known):
        raise SetupError(f"--reference {value}: expected all, or one or more of {','.join(known)}")
    return tuple(name for name in known if name in asked)


def _texts(value: object) -> object:
    return {k: str(v) for k, v in value.items()} if isinstance(value, dict) else value


def _parsed(parse: Callable[..., object], *option: str) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value is None else parse(value, *option))


class BuildSettings(BaseModel):
    """`[builds]`: where builds that are given by name come from, and where they are kept.

    `recipe` makes `binary` in the folder `{out}` from the sources of a commit, which are the
    working directory (and `{src}`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    api: str = "https://api.github.com"
    repository: str = "ggml-org/llama.cpp"
    cache: Path | None = None
    checkout: Path | None = None
    recipe: tuple[str, ...] = (
        "cmake -S {src} -B {out} -DCMAKE_BUILD_TYPE=Release",
        "cmake --build {out} --target llama-server --parallel",
    )
    binary: str = "bin/llama-server"


class Settings(BaseModel):
    """Everything a run depends on. Units are in the names; K = 1024."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ctx_tokens: Annotated[int, _parsed(tokens, "--ctx")] = DEFAULT_CTX_TOKENS
    depths: tuple[int, ...] | None = None
    server_url: str | None = None
    server_bin: str | None = None
    embedded: bool = False
    builds: BuildSettings = BuildSettings()
    follow: Literal["latest"] | None = None
    offline: bool = False
    server_args: tuple[str, ...] = ()
    model: str | None = None
    api_key: str | None = None
    profile: str | None = None
    matrix: str | None = None
    matrices: dict[str, Any] = {}
    reference: Annotated[tuple[str, ...] | None, _parsed(_members)] = None
    family: str | None = None
    arm: str | None = None
    env: Annotated[dict[str, str], _parsed(_texts)] = {}
    expect_device: str | None = None
    expect_build: str | None = None

    fill: float = Field(0.90, ge=0.1, le=0.97, allow_inf_nan=False)
    seed: int = 0
    background: Literal["plain", "hard"] = "plain"
    repeats: int = 6
    max_repeats: int = 18
    generate_tokens: int = 128
    answer_tokens: int = 256
    distractors: int = 0
    heatmap: Annotated[tuple[int, int] | None, _parsed(_shape)] = None
    fuzz_examples: int | None = None
    fuzz_ctx: Annotated[int | None, _parsed(tokens, "--fuzz-ctx")] = None
    harder: Annotated[tuple[Task, ...] | None, _parsed(_tasks)] = None

    band: float | None = None
    bands: dict[str, float] = {}
    strict: bool = False

    baselines: Path = Path("baselines")
    results: Path = Path("results")
    machine_class: str | None = None
    label: str | None = None

    idle_timeout_s: float = 900.0
    ready_timeout_s: float = 600.0
    wait_lock_s: float = 0.0
    wait_quiet_s: float | None = None
    budget_s: float | None = None
    remeasure_s: float | None = None
    resume: bool = False
    save_slots: bool = False
    keep_kv: bool = False
    keep_kv_limit: float = 32.0
    keep_kv_folder: Path | None = None
    spot: bool = False
    spot_full_every: int = Field(7, ge=2)

    def band_of(self, metric: str) -> float:
        """Noise band of a metric as a share: its own, else general, else default."""
        general = METRICS[metric].band if self.band is None else self.band
        if METRICS[metric].kind == "score":
            general = METRICS[metric].band
        return self.bands.get(metric, general)

    @property
    def fuzz_depth(self) -> int:
        """Tokens of context that a fuzzed document is made for."""
        return self.fuzz_ctx or min(DEFAULT_FUZZ_CTX, self.ctx_tokens)

    @property
    def rung_depths(self) -> tuple[int, ...]:
        """The ladder: the depths asked for, else 2K, 8K, 32K, 128K … up to and with the context."""
        if self.depths is not None:
            return self.depths
        depths = []
        depth = 2048
        while depth < self.ctx_tokens:
            depths.append(depth)
            depth *= 4
        return (*depths, self.ctx_tokens)


def project_root(start: Path) -> Path:
    """The nearest folder at or above `start` that holds a configuration file, else `start`.

    pytest's own `rootdir` is not used: an option value that is a path (`--model /m/x.gguf`) moves
    it elsewhere.
    """
    marks = ("harness.toml", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
    for folder in (start, *start.parents):
        if any((folder / mark).is_file() for mark in marks):
            return folder
    return start


def profile_names(root: Path) -> tuple[str, ...]:
    """Names of the profiles in the configuration file, in its order."""
    profiles = _file_settings(root).get("profiles")
    return tuple(profiles) if isinstance(profiles, Mapping) else ()


def load(
    options: Mapping[str, object],
    root: Path,
    environ: Mapping[str, str] = os.environ,
    arm: Mapping[str, object] = MappingProxyType({}),
) -> Settings:
    """Settings from `options` (only those given) over a profile over the file in `root`.

    `arm` is what an arm of a matrix or comparison lays over all of them.

    Raises:
        SetupError: an unknown key or profile, a wrong value, or options that contradict each other.
    """
    file = dict(_file_settings(root))
    profiles = file.pop("profiles", None)
    matrices = file.pop("matrix") if isinstance(file.get("matrix"), Mapping) else {}
    name = {**file, **options, **arm}.get("profile")
    profile = _renamed(profile_layer(profiles, str(name))) if name is not None else {}
    layers = (file, profile, options, _renamed(arm))
    merged = layered(*layers)
    merged["matrices"] = matrices
    if merged.get("depths") is not None:
        merged |= _ladder(merged["depths"], merged.get("ctx_tokens"), layers)
    started = not merged.get("server_url") and not merged.get("embedded")
    if merged.get("server_bin") is None and started:
        merged["server_bin"] = environ.get("LLAMA_SERVER") or None
    merged["api_key"] = environ.get(API_KEY_VARIABLE) or None
    merged.setdefault("strict", environ.get("CI", "").lower() in ("1", "true"))
    for key in ("baselines", "results"):
        merged[key] = root / Path(str(merged.get(key, key)))
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise SetupError(_first_fault(error)) from error
    _refuse_nonsense(settings)
    return settings


def _ladder(
    depths: object, ctx: object, layers: tuple[Mapping[str, object], ...]
) -> dict[str, object]:
    """Depths and context that go together: what is given nearer to the command line wins."""
    rungs = _depths(depths)
    if ctx is None:
        return {"depths": rungs, "ctx_tokens": max(rungs)}
    ctx_at, depths_at = (
        max(n for n, layer in enumerate(layers) if layer.get(name) is not None)
        for name in ("ctx_tokens", "depths")
    )
    ctx_tokens = tokens(ctx, "--ctx")
    if ctx_at > depths_at:
        rungs = (*(depth for depth in rungs if depth < ctx_tokens), ctx_tokens)
    if ctx_at < depths_at:
        ctx_tokens = max(ctx_tokens, *rungs)
    return {"depths": rungs, "ctx_tokens": ctx_tokens}


def _file_settings(root: Path) -> Mapping[str, Any]:
    for name, keys in (("harness.toml", ()), ("pyproject.toml", ("tool", "harness"))):
        path = root / name
        if not path.is_file():
            continue
        try:
            content: Any = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise SetupError(
                f"{path} is not UTF-8, as TOML must be ({error.reason}; PowerShell's `>` writes "
                "UTF-16); save it as UTF-8"
            ) from error
        except tomllib.TOMLDecodeError as error:
            raise SetupError(f"{path} is not valid TOML: {error}") from error
        for key in keys:
            content = content.get(key, {})
        if content:
            return _renamed(content)
    return {}


def _renamed(table: Mapping[str, Any]) -> dict[str, Any]:
    names = {option.key: option.name for option in OPTIONS.values()}
    return {names.get(key, key): value for key, value in table.items()}


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(p) for p in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"harness.toml: there is no setting called {where!r}; see docs/guide.md for the list"
    return f"setting {where}: {fault['msg'].lower()}, got {fault['input']!r}"


def _refuse_nonsense(s: Settings) -> None:
    given = {option.flag: (getattr(s, name), option) for name, option in OPTIONS.items()}
    given |= {f"[bands] {metric}": (share, OPTIONS["band"]) for metric, share in s.bands.items()}
    for what, (value, option) in given.items():
        if option.accepts is not None and value is not None and not option.accepts(value):
            raise SetupError(f"{what} {value}: expected {option.expected}")
    if unknown := set(s.bands) - set(METRICS):
        raise SetupError(
            f"bands names {sorted(unknown)[0]!r}, which is no metric; the metrics are "
            f"{', '.join(METRICS)}"
        )
    if s.server_url is not None:
        _refuse_wrong_url(s.server_url, s)
    if s.reference is not None:
        _refuse_other_models(s)
    deepest, shallowest = max(s.rung_depths), min(s.rung_depths)
    if shallowest < MINIMUM_DEPTH:
        raise SetupError(
            f"a depth of {shallowest} tokens is too small for five needles and six questions; the "
            f"smallest is {MINIMUM_DEPTH}"
        )
    if deepest > s.ctx_tokens:
        raise SetupError(
            f"--depths asks for {deepest} tokens but --ctx is {s.ctx_tokens}; raise --ctx or drop "
            "that depth"
        )
    if s.heatmap is not None:
        _refuse_crowded_heatmap(s.ctx_tokens * s.fill, *s.heatmap)
    if s.harder is not None and shallowest < LEAST_TOKENS:
        raise SetupError(
            f"--harder needs rungs of {LEAST_TOKENS} tokens or more for its facts, and the ladder "
            f"begins at {shallowest}; give --depths without it"
        )
    if s.fuzz_examples is not None and not MINIMUM_FUZZ_CTX <= s.fuzz_depth <= s.ctx_tokens:
        raise SetupError(
            f"--fuzz-ctx {s.fuzz_depth}: expected {MINIMUM_FUZZ_CTX} tokens or more, for twelve "
            f"needles and eight questions, and no more than --ctx ({s.ctx_tokens})"
        )


def _refuse_other_models(s: Settings) -> None:
    """`--reference` names the models, each on a server of ours."""
    flags = values_of(s.server_args)
    for flag, given in (
        ("--server-url", s.server_url),
        ("--matrix", s.matrix if s.arm is None else None),
        *((name, flags.get(name)) for name in ("--model", "--hf-repo")),
    ):
        if given is not None:
            raise SetupError(
                f"--reference starts a server for each of its own models, so {flag} {given} has no "
                "place beside it; leave one of them out"
            )


def _refuse_wrong_url(url: str, s: Settings) -> None:
    if s.server_bin:
        raise SetupError("--server-url and --server-bin exclude each other; give one of them")
    if not re.match(r"https?://[^/\s]+", url):
        raise SetupError(f"--server-url {url}: expected something like http://127.0.0.1:8080")
    if "@" in urlsplit(url).netloc:
        raise SetupError(
            "--server-url has a user or password in it, which records would show; put the key into "
            f"the environment variable {API_KEY_VARIABLE}"
        )
    if s.server_args:
        raise SetupError("--server-args has no effect on a server that already runs (--server-url)")


def _refuse_crowded_heatmap(document_tokens: float, lengths: int, bands: int) -> None:
    """Two lines of needle and background must fit each band of the shortest document."""
    shortest = document_tokens / lengths - HEATMAP_TAIL_TOKENS
    if (needed := 2 * NEEDLE_TOKENS * bands) > shortest:
        raise SetupError(
            f"--heatmap {lengths}x{bands} is too fine for this context: its shortest document has "
            f"about {max(0, round(shortest))} tokens and {bands} depths need {needed}; ask for "
            "fewer lengths or depths, or raise --ctx"
        )

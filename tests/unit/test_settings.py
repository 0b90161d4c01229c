"""Settings: what is given wins, what is wrong is one sentence, nothing is guessed."""

from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.settings import load, project_root, tokens


def test_defaults(tmp_path: Path) -> None:
    settings = load({}, tmp_path, {})
    assert settings.ctx_tokens == 8192
    assert settings.rung_depths == (2048, 8192)
    assert settings.band_of("prefill") == 0.10
    assert not settings.strict
    assert settings.baselines == tmp_path / "baselines"


@pytest.mark.parametrize(
    ("ctx", "depths"),
    [
        ("2048", (2048,)),
        ("32K", (2048, 8192, 32768)),
        ("131072", (2048, 8192, 32768, 131072)),
        ("65536", (2048, 8192, 32768, 65536)),
        ("1M", (2048, 8192, 32768, 131072, 524288, 1048576)),
    ],
)
def test_the_default_ladder(tmp_path: Path, ctx: str, depths: tuple[int, ...]) -> None:
    assert load({"ctx_tokens": ctx}, tmp_path, {}).rung_depths == depths


def test_depths_alone_set_the_context(tmp_path: Path) -> None:
    settings = load({"depths": "8K,2K"}, tmp_path, {})
    assert settings.rung_depths == (2048, 8192)
    assert settings.ctx_tokens == 8192


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text(
        "ctx = 4096\nrepeats = 9\nidle_timeout = 5\n[bands]\nttft = 0.3\n", encoding="utf-8"
    )
    settings = load({"repeats": "4"}, tmp_path, {})
    assert (settings.ctx_tokens, settings.repeats, settings.idle_timeout_s) == (4096, 4, 5)
    assert settings.band_of("ttft") == 0.3
    assert settings.band_of("prefill") == 0.10


@pytest.mark.parametrize(
    ("given", "depths", "ctx_tokens"),
    [
        ({"ctx_tokens": "4M"}, (2048, 4096, 4194304), 4194304),
        ({"ctx_tokens": "1K"}, (1024,), 1024),
        ({"depths": "8K"}, (8192,), 8192),
        ({"depths": "2K"}, (2048,), 4096),
        ({"ctx_tokens": "8K", "depths": "2K"}, (2048,), 8192),
        ({"profile": "deep"}, (2048, 4096, 32768), 32768),
        ({"profile": "deep", "ctx_tokens": "8K"}, (2048, 4096, 8192), 8192),
    ],
)
def test_context_and_depths_of_the_command_line_win_over_the_file_s(
    tmp_path: Path, given: dict[str, object], depths: tuple[int, ...], ctx_tokens: int
) -> None:
    (tmp_path / "harness.toml").write_text(
        'ctx = "4K"\ndepths = ["2K", "4K"]\n[profiles.deep]\nctx = "32K"\n', encoding="utf-8"
    )
    settings = load(given, tmp_path, {})
    assert (settings.rung_depths, settings.ctx_tokens) == (depths, ctx_tokens)


def test_pyproject_may_hold_the_settings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\nctx = 16384\n", encoding="utf-8")
    assert load({}, tmp_path, {}).ctx_tokens == 16384


def test_secrets_and_the_binary_come_from_the_environment(tmp_path: Path) -> None:
    settings = load({}, tmp_path, {"HARNESS_API_KEY": "k", "LLAMA_SERVER": "/opt/ls", "CI": "true"})
    assert (settings.api_key, settings.server_bin, settings.strict) == ("k", "/opt/ls", True)


def test_a_url_wins_over_a_binary_in_the_environment(tmp_path: Path) -> None:
    settings = load({"server_url": "http://h:1"}, tmp_path, {"LLAMA_SERVER": "/opt/ls"})
    assert settings.server_bin is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ctx_tokens": "0"}, "--ctx 0: expected a number of tokens above 0"),
        ({"ctx_tokens": "-8"}, "--ctx -8"),
        ({"ctx_tokens": "big"}, "--ctx big: expected a number of tokens"),
        ({"ctx_tokens": 2.5}, "--ctx 2.5"),
        ({"depths": "2048,x"}, "--depths x"),
        (
            {"depths": "4096", "ctx_tokens": "2048"},
            "--depths asks for 4096 tokens but --ctx is 2048",
        ),
        ({"ctx_tokens": "1000"}, "the smallest is 1024"),
        ({"ctx_tokens": "99999999999"}, "at most 2147483647, the largest a llama-server takes"),
        ({"band": "1.5"}, "expected a share such as 0.10"),
        ({"band": "nan"}, "band"),
        ({"bands": {"speed": 0.1}}, "names 'speed', which is no metric"),
        ({"repeats": "2"}, "at least 3"),
        ({"repeats": "x"}, "setting repeats"),
        ({"background": "soft"}, "setting background"),
        ({"fill": 1.5}, "setting fill: input should be less than or equal to 0.97, got 1.5"),
        ({"server_url": "localhost"}, "expected something like http://"),
        ({"server_url": "http://h", "server_bin": "x"}, "exclude each other"),
        ({"server_url": "http://h", "server_args": "-t 1"}, "has no effect"),
        ({"server_args": "-t '1"}, "check its quotes"),
        ({"colour": "red"}, "there is no setting called 'colour'"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, given: dict[str, object], says: str) -> None:
    with pytest.raises(SetupError) as caught:
        load(given, tmp_path, {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_read_and_utf_16_is_named(tmp_path: Path) -> None:
    """As PowerShell 5.1 writes them: Set-Content -Encoding UTF8, and `>`."""
    file = tmp_path / "harness.toml"
    file.write_bytes(b'\xef\xbb\xbfctx = "4K"\n')
    assert load({}, tmp_path, {}).ctx_tokens == 4096
    file.write_bytes('ctx = "4K"\n'.encode("utf-16"))
    with pytest.raises(SetupError, match="is not UTF-8, as TOML must be"):
        load({}, tmp_path, {})


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text("ctx = ", encoding="utf-8")
    with pytest.raises(SetupError, match=r"harness\.toml is not valid TOML"):
        load({}, tmp_path, {})


@pytest.mark.parametrize(("text", "value"), [("8k", 8192), (" 1M ", 1048576), ("77", 77)])
def test_sizes(text: str, value: int) -> None:
    assert tokens(text, "--ctx") == value


def test_the_project_root_is_the_nearest_configuration(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "harness.toml").touch()
    assert project_root(inner) == tmp_path
    (inner / "pytest.ini").touch()
    assert project_root(inner) == inner


def test_a_password_in_the_url_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="HARNESS_API_KEY") as caught:
        load({"server_url": "http://user:hunter2@127.0.0.1:8080"}, tmp_path, {})
    assert "hunter2" not in str(caught.value)


def test_members_of_the_family_by_name(tmp_path: Path) -> None:
    assert load({"reference": "all"}, tmp_path, {}).reference == ("attention", "gdn", "window")
    assert load({"reference": "window, GDN"}, tmp_path, {}).reference == ("gdn", "window")
    with pytest.raises(SetupError, match="--reference mamba: expected all, or one or more of att"):
        load({"reference": "mamba"}, tmp_path, {})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"server_url": "http://127.0.0.1:8080"}, "--server-url http"),
        ({"matrix": "kv"}, "--matrix kv"),
        ({"server_args": "-m other.gguf"}, "--model other.gguf"),
    ],
)
def test_the_family_has_models_of_its_own(
    tmp_path: Path, given: dict[str, object], named: str
) -> None:
    with pytest.raises(SetupError, match=f"of its own models, so {named}"):
        load({"reference": "all", **given}, tmp_path, {})

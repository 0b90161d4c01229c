"""Profiles: what wins where the file, a profile, what it extends and the command line speak."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import SetupError
from harness.llamacpp.flags import called, groups, merged, with_dashes
from harness.llamacpp.profiles import layered, profile_layer
from harness.settings import load

FILE = """
repeats = 9
server_args = "-t 8"
[bands]
ttft = 0.3
[profiles.base]
model = "/m/x.gguf"
ctx = "32K"
server_args = { ngl = 99, fa = "on", ctk = "f16", mlock = true }
bands = { prefill = 0.05 }
[profiles.vulkan]
extends = "base"
server_bin = "/vulkan/llama-server"
server_args = { cache_type_k = "q8_0", mlock = false, "--rope-scale" = 4, ot = ["a=CPU", "b=CPU"] }
env = { GGML_VK_VISIBLE_DEVICES = 0 }
expect_device = "Vulkan0"
budget = 5
depths = ["8K", "32K"]
[profiles.remote]
server_url = "http://h:1"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "harness.toml").write_text(FILE, encoding="utf-8")
    return tmp_path


def test_a_profile_is_laid_over_what_it_extends_and_over_the_file(root: Path) -> None:
    settings = load({"profile": "vulkan"}, root, {})
    assert settings.profile == "vulkan"
    assert settings.model == "/m/x.gguf"
    assert settings.server_bin == "/vulkan/llama-server"
    assert settings.server_args == (
        *("-t", "8", "-ngl", "99", "-fa", "on"),
        *("--cache-type-k", "q8_0", "--rope-scale", "4", "-ot", "a=CPU", "-ot", "b=CPU"),
    )
    assert settings.env == {"GGML_VK_VISIBLE_DEVICES": "0"}
    assert settings.expect_device == "Vulkan0"
    assert (settings.ctx_tokens, settings.depths) == (32768, (8192, 32768))
    assert (settings.budget_s, settings.repeats) == (5, 9)
    assert (settings.band_of("ttft"), settings.band_of("prefill")) == (0.3, 0.05)


def test_without_a_profile_none_is_used(root: Path) -> None:
    settings = load({}, root, {})
    assert (settings.profile, settings.model, settings.server_args) == (None, None, ("-t", "8"))


def test_the_command_line_wins_flag_by_flag(root: Path) -> None:
    given = {"profile": "vulkan", "server_args": "--cache-type-k=q4_0 -t 4", "repeats": "3"}
    settings = load(given, root, {})
    assert settings.repeats == 3
    text = " ".join(settings.server_args)
    assert "-t 8" not in text
    assert "q8_0" not in text
    assert text.endswith("--cache-type-k=q4_0 -t 4")
    assert "-ngl 99" in text


def test_a_url_displaces_the_server_that_would_have_been_started(root: Path) -> None:
    settings = load({"profile": "vulkan", "server_url": "http://h:2"}, root, {})
    assert (settings.server_url, settings.server_bin) == ("http://h:2", None)
    assert (settings.server_args, settings.env) == ((), {})
    back = load({"profile": "remote", "server_bin": "/b"}, root, {})
    assert (back.server_url, back.server_bin) == (None, "/b")


def test_the_file_may_name_its_usual_profile(root: Path) -> None:
    (root / "harness.toml").write_text('profile = "remote"\n' + FILE, encoding="utf-8")
    assert load({}, root, {}).server_url == "http://h:1"
    assert load({"profile": "base"}, root, {}).server_url is None


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("", "harness.toml has no profiles; write one as [profiles.x]"),
        ("[profiles.a]\n[profiles.b]", "--profile x: there is no such profile; there are a, b"),
        ("[profiles.x]\nextends = 'y'", "profile x extends 'y': there is no such profile"),
        (
            "[profiles.x]\nextends = 'y'\n[profiles.y]\nextends = 'x'",
            "extends itself (x -> y -> x)",
        ),
        ("[profiles.x]\nextends = 3", "extends 3"),
        ("profiles = { x = 3 }", "expected a table"),
        ("[profiles.x]\nserver_args = 3", "expected text such as"),
        ("[profiles.x]\nserver_args = { ngl = {} }", "ngl = {} is no value of a flag"),
        ("[profiles.x]\ncolour = 'red'", "there is no setting called 'colour'"),
        ("[profiles.x]\nenv = 3", "setting env"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, toml: str, says: str) -> None:
    (tmp_path / "harness.toml").write_text(toml, encoding="utf-8")
    with pytest.raises(SetupError) as caught:
        load({"profile": "x"}, tmp_path, {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_profile_may_stand_in_pyproject(tmp_path: Path) -> None:
    text = "[tool.harness.profiles.p]\nctx = 2048\n"
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert load({"profile": "p"}, tmp_path, {}).ctx_tokens == 2048


@pytest.mark.parametrize(
    ("key", "flag"),
    [
        ("ngl", "-ngl"),
        ("cache_type_k", "--cache-type-k"),
        ("rope-scale", "--rope-scale"),
        ("poll", "--poll"),
        ("-b", "-b"),
        ("no-mmap", "--no-mmap"),
    ],
)
def test_flags_may_be_written_without_dashes(key: str, flag: str) -> None:
    assert with_dashes(key) == flag


@pytest.mark.parametrize(
    ("one", "other"),
    [("-ctk", "--cache-type-k"), ("--no-mmap", "--mmap"), ("-nkvo", "--kv-offload")],
)
def test_spellings_of_one_setting(one: str, other: str) -> None:
    assert called(one) == called(other)


FLAGS = st.sampled_from(["-ctk", "--cache-type-k", "-t", "--threads", "--mlock", "-b", "-ngl"])
ARGV = st.lists(st.tuples(FLAGS, st.integers(-3, 9))).map(
    lambda pairs: tuple(w for flag, n in pairs for w in (flag, str(n)))
)


@given(ARGV, ARGV)
def test_what_is_laid_over_wins_whole_and_the_rest_stays(
    under: tuple[str, ...], over: tuple[str, ...]
) -> None:
    result = merged(under, over)
    assert result[len(result) - len(over) :] == over
    mine = {called(g[0]) for g in groups(over)}
    kept = groups(result[: len(result) - len(over)])
    assert kept == [g for g in groups(under) if called(g[0]) not in mine]
    assert merged(result, over) == result


def test_layers_do_not_change_their_sources() -> None:
    table = tomllib.loads(FILE)["profiles"]
    before = repr(table)
    profile_layer(table, "vulkan")
    layered(table["base"], table["vulkan"])
    assert repr(table) == before

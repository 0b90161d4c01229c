"""llama-server's flags: what decides comparability, what is noted, what is hidden."""

import pytest

from harness.llamacpp.flags import key_of, noted_of, pairs, with_defaults, without_secrets
from harness.serving.embedded import FLAGS, find_runtime, parser, unknown_flags
from harness.serving.launch import flag_value


def test_spellings_of_one_flag_make_one_key() -> None:
    assert key_of(["-c", "4096", "-ctk", "q8_0"]) == key_of(
        ["--ctx-size", "4096", "--cache-type-k=q8_0"]
    )


def test_defaults_are_part_of_the_key() -> None:
    assert key_of(["-b", "2048", "-ub", "512"]) == key_of([])
    assert key_of(["-ub", "256"]) != key_of([])


@pytest.mark.parametrize("noise", [["-t", "1"], ["--rope-freq-base", "1e4"], ["--poll", "0"]])
def test_what_is_under_test_is_noted_and_not_in_the_key(noise: list[str]) -> None:
    assert key_of(noise) == key_of([])
    assert noted_of(noise) == {noise[0]: noise[1]}


def test_plumbing_is_neither() -> None:
    argv = ["-m", "/m.gguf", "--port", "80", "--host", "127.0.0.1", "--metrics"]
    assert noted_of(argv) == {}


def test_secrets_are_hidden_and_not_noted() -> None:
    argv = ["--api-key", "hunter2", "-t", "4", "--hf-token=abc"]
    assert without_secrets(argv) == ("--api-key", "***", "-t", "4", "--hf-token=***")
    assert "hunter2" not in str(noted_of(argv))
    assert "abc" not in str(noted_of(argv))


def test_negative_values_are_values() -> None:
    assert pairs(["-ngl", "-1", "-n", "-2"]) == [("-ngl", "-1"), ("-n", "-2")]


def test_what_the_user_gives_wins_over_our_defaults() -> None:
    defaults: list[tuple[tuple[str, ...], str | None]] = [
        (("-c", "--ctx-size"), "8192"),
        (("--metrics",), None),
    ]
    assert with_defaults(["--ctx-size", "4096"], defaults) == ["--metrics", "--ctx-size", "4096"]


def test_the_last_of_repeated_flags_counts() -> None:
    assert flag_value(["--port", "1", "--port=2"], "--port") == "2"
    assert flag_value(["-t", "1"], "--port") is None


def test_the_embedded_server_refuses_what_it_does_not_know() -> None:
    assert unknown_flags(["-c", "8192", "--lora", "x", "-ngl", "-1"]) == ["--lora"]
    with pytest.raises(SystemExit):
        parser().parse_args(["--lora", "x"])


def test_every_embedded_flag_sets_a_parameter_that_exists() -> None:
    find_runtime()
    xllamacpp = pytest.importorskip("xllamacpp", reason="needs the xllamacpp wheel")
    params = xllamacpp.CommonParams()
    special = {"host", "timeout", "rope_scale"}
    for flag in FLAGS:
        if flag.target in special:
            continue
        holder = params
        for part in flag.target.split("."):
            assert hasattr(holder, part), flag.names
            holder = getattr(holder, part)

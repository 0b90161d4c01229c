"""llama-server's flags: what decides comparability, what is noted, what is hidden."""

from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.llamacpp.combinations import objection
from harness.llamacpp.discrepancies import discrepancies
from harness.llamacpp.flags import (
    cache_settings,
    key_of,
    noted_env,
    noted_of,
    pairs,
    values_of,
    with_defaults,
    without_secrets,
)
from harness.llamacpp.log import scan
from harness.serving.embedded import FLAGS, find_runtime, parser
from harness.serving.session import refuse_impossible
from harness.settings import load


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


def test_addresses_and_variables_are_noted_without_what_lets_in() -> None:
    argv = ["--model-url", "https://me:pw@h.example/m.gguf?token=t0", "-mu=http://h/x#sig=t0"]
    assert without_secrets(argv)[1:] == ("https://h.example/m.gguf", "-mu=http://h/x")
    assert noted_of(argv[:2]) == {"--model-url": "https://h.example/m.gguf"}
    env = {
        "HTTPS_PROXY": "http://me:t0@proxy",
        "DATABASE_URL": "t0",
        "GH_PAT": "t0",
        "PASSPHRASE": "t0",
        "LLAMA_ARG_HF_TOKEN": "t0",
        "LLAMA_ARG_MODEL_URL": "https://t0@h/m?t0",
        "GGML_VK_VISIBLE_DEVICES": "1",
    }
    noted = noted_env(env)
    assert "t0" not in str(noted)
    assert noted.keys() == {f"${name}" for name in env}
    assert noted["$GGML_VK_VISIBLE_DEVICES"] == "1"
    assert noted["$LLAMA_ARG_MODEL_URL"] == "https://h/m"


def test_negative_values_are_values() -> None:
    assert pairs(["-ngl", "-1", "-n", "-2"]) == [("-ngl", "-1"), ("-n", "-2")]


def test_what_the_user_gives_wins_over_our_defaults() -> None:
    defaults = [("-c", "8192"), ("--metrics", None)]
    assert with_defaults(["--ctx-size", "4096"], defaults) == ["--metrics", "--ctx-size", "4096"]


def test_the_last_of_repeated_flags_counts() -> None:
    assert values_of(["--port", "1", "--port=2"]) == {"--port": "2"}


def test_the_last_spelling_of_a_cache_type_counts_in_key_and_check_alike() -> None:
    argv = ["--cache-type-k", "q8_0", "-ctk", "f16"]
    assert key_of(argv) == key_of(["-ctk", "f16"])
    line = "llama_kv_cache: size = 3.06 MiB ( 4096 cells, 4 layers), K (f16): 1.0 MiB, V (f16): 2.0"
    assert discrepancies(argv, scan([line]), n_ctx=None) == ()
    assert key_of(["-ctk", "q8_0", "--cache-type-k", "f16"]) == key_of([])


@pytest.mark.parametrize("off", ["--no-kv-unified", "-no-kvu"])
def test_a_switch_turned_off_is_not_on(off: str) -> None:
    assert "kv_unified" not in key_of([off])
    assert not cache_settings(["-kvu", off]).kv_unified
    assert cache_settings([off, "-kvu"]).kv_unified
    refused = objection(["-np", "4", "-c", "8192", off], None, ctx_tokens=8192)
    assert refused is not None
    assert "leaves each slot 2048" in refused
    assert objection(["-np", "4", "-c", "8192", "-kvu"], None, ctx_tokens=8192) is None


def test_a_switch_and_its_opposite_are_two_values_of_one_setting() -> None:
    assert values_of(["--no-mmap"]) == {"--mmap": "off"} != values_of(["--mmap"])
    assert key_of(["-nkvo"])["no_kv_offload"] is True
    assert "no_kv_offload" not in key_of(["-nkvo", "-kvo"])


def test_the_embedded_server_refuses_what_it_does_not_know() -> None:
    settings = load({"server_args": "-c 8192 --lora x -ngl -1"}, Path(), {})
    with pytest.raises(SetupError, match="does not know --lora"):
        refuse_impossible(settings, None)
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

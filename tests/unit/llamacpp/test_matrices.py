"""Matrices: the arms of built-in and own ones, and what cannot be had."""

from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.llamacpp.combinations import objection
from harness.llamacpp.matrices import BUILT_IN, MOST_ARMS, Facts, arms_of
from harness.llamacpp.profiles import layered
from harness.settings import load

FACTS = Facts(ctx_tokens=8192, depths=(2048, 8192), architecture="llama", cpu_cores=6)


def args(name: str, facts: Facts = FACTS) -> dict[str, str]:
    """The arms of a built-in matrix by name, each as the command line it makes."""
    return {
        arm.name: " ".join(layered({"server_args": facts.server_args}, arm.layer)["server_args"])
        if "server_args" in arm.layer or facts.server_args
        else ""
        for arm in arms_of(name, {}, facts)
    }


def test_kv_types_are_varied_apart() -> None:
    assert args("kv") == {
        "f16-f16": "-ctk f16 -ctv f16 -fa on",
        "q8_0-f16": "-ctk q8_0 -ctv f16 -fa on",
        "f16-q8_0": "-ctk f16 -ctv q8_0 -fa on",
        "q8_0-q8_0": "-ctk q8_0 -ctv q8_0 -fa on",
        "q4_0-q4_0": "-ctk q4_0 -ctv q4_0 -fa on",
    }


def test_flash_attention_that_is_given_stays() -> None:
    facts = Facts(8192, (8192,), ("--flash-attn", "auto"))
    assert set(args("kv", facts).values()) >= {"--flash-attn auto -ctk q8_0 -ctv f16"}


def test_batches_flash_attention_threads_and_slots() -> None:
    assert list(args("batch")) == ["b512-ub512", "b2048-ub512", "b2048-ub1024", "b2048-ub2048"]
    assert args("flash") == {"fa-on": "-fa on", "fa-off": "-fa off"}
    assert list(args("threads")) == ["t1", "t2", "t4", "t6"]
    assert args("parallel")["np4"] == "-np 4 -c 32768"


@pytest.mark.parametrize(
    ("ctx", "names"),
    [
        (2 * 262144, ["x1", "x2"]),
        (4 * 262144, ["x1", "x2", "x4"]),
        (6 * 262144, ["x1", "x2", "x4", "x6"]),
        (16 * 262144, ["x1", "x2", "x4", "x8", "x16"]),
        (300000, ["x1", "x2"]),
    ],
)
def test_the_yarn_ladder_climbs_to_the_context(ctx: int, names: list[str]) -> None:
    facts = Facts(ctx, (32768, ctx), trained_ctx_tokens=262144, architecture="qwen35")
    arms = arms_of("yarn", {}, facts)
    assert [arm.name for arm in arms] == names
    assert arms[0].layer == {"ctx_tokens": 262144, "depths": [32768, 262144]}
    top = arms[-1].layer
    assert top["ctx_tokens"] == ctx
    assert top["depths"] == [32768, ctx]
    assert top["server_args"] == {
        "--rope-scaling": "yarn",
        "--rope-scale": int(names[-1][1:]),
        "--yarn-orig-ctx": 262144,
        "--override-kv": f"qwen35.context_length=int:{ctx}",
    }
    assert objection(layered(top)["server_args"], None, ctx_tokens=ctx) is None


def test_a_server_without_overrides_gets_none() -> None:
    facts = Facts(16384, (16384,), trained_ctx_tokens=8192, overrides=False)
    assert "--override-kv" not in arms_of("yarn", {}, facts)[1].layer["server_args"]


def test_speculation_has_a_control_without_it() -> None:
    facts = Facts(8192, (8192,), ("-t", "4", "-md", "/d.gguf", "--draft-max", "8"))
    assert args("speculation", facts) == {
        "off": "-t 4",
        "on": "-t 4 -md /d.gguf --draft-max 8",
    }
    assert args("mtp", Facts(8192, (8192,), ("-t", "4"), mtp_layers=1)) == {
        "off": "-t 4",
        "on": "-t 4 --spec-type draft-mtp",
    }


OWN = {
    "ub": {"ub": [512, 1024], "-fa": ["on", "off"], "swa-full": [True]},
    "builds": {"arms": {"old": {"server_bin": "/o"}, "new": {"server_bin": "/n"}}},
    "backends": {"profiles": ["vulkan", "rocm"]},
}


def test_own_matrices_multiply_axes_or_name_arms_or_profiles() -> None:
    names = [arm.name for arm in arms_of("ub", OWN, FACTS)]
    assert names == [
        "ub512-faon-swa-full",
        "ub512-faoff-swa-full",
        "ub1024-faon-swa-full",
        "ub1024-faoff-swa-full",
    ]
    assert [a.layer for a in arms_of("builds", OWN, FACTS)] == [
        {"server_bin": "/o"},
        {"server_bin": "/n"},
    ]
    assert [a.layer for a in arms_of("backends", OWN, FACTS)] == [
        {"profile": "vulkan"},
        {"profile": "rocm"},
    ]


def test_an_own_matrix_may_replace_a_built_in_one() -> None:
    assert [a.name for a in arms_of("kv", {"kv": {"ctk": ["f16"]}}, FACTS)] == ["ctkf16"]


@pytest.mark.parametrize(
    ("name", "own", "says"),
    [
        ("colour", {"mine": {}}, "there are kv, batch, flash, yarn"),
        ("yarn", {}, "its file is not readable"),
        ("speculation", {}, "no MTP layers and the configuration names no other way"),
        ("m", {"m": 3}, "expected a table"),
        ("m", {"m": {}}, "expected a table"),
        ("m", {"m": {"ub": 512}}, "ub = 512; expected a list"),
        ("m", {"m": {"ub": []}}, "expected a list"),
        ("m", {"m": {"arms": {"a": {}}, "ub": [1]}}, "one of them"),
        ("m", {"m": {"arms": {"a": 3}}}, "expected an arm as"),
        ("m", {"m": {"profiles": "x"}}, "expected profiles ="),
        ("m", {"m": {"ub": list(range(MOST_ARMS + 1))}}, "at most 64"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(name: str, own: dict[str, object], says: str) -> None:
    with pytest.raises(SetupError) as caught:
        arms_of(name, own, FACTS)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yarn_within_the_trained_length_says_what_to_give() -> None:
    with pytest.raises(SetupError, match="give --ctx 16384 for x2"):
        arms_of("yarn", {}, Facts(8192, (8192,), trained_ctx_tokens=8192))


def test_every_built_in_matrix_can_be_had_with_a_model_that_fits() -> None:
    facts = Facts(32768, (8192,), ("-t", "1"), 8192, "llama", 1, True, 4)
    for name in BUILT_IN:
        arms = arms_of(name, {}, facts)
        assert len({arm.name for arm in arms}) == len(arms) >= 2


def test_an_arm_wins_over_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text("[matrix.m]\nub = [1, 2]\n", encoding="utf-8")
    settings = load({"server_args": "-ub 512 -t 1"}, tmp_path, {}, {"server_args": {"ub": 1}})
    assert settings.server_args == ("-t", "1", "-ub", "1")
    assert settings.matrices == {"m": {"ub": [1, 2]}}


HEADS_OF_80 = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.attention.head_count": 2,
    "llama.embedding_length": 160,
}


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("-ctv q8_0 -fa off", "a quantised V cache needs flash attention"),
        ("--cache-type-v=q4_0 --flash-attn 0", "needs flash attention"),
        ("-ctk q9", "-ctk q9 is no cache type"),
        ("-b 512 -ub 1024", "-ub 1024 is larger than -b 512"),
        ("-ub 4096", "-ub 4096 is larger than -b 2048"),
        ("-np 4", "-np 4 leaves each slot 2048 of the 8192 tokens"),
        ("-np 2 -c 8192", "give -c 16384"),
        ("--rope-scaling yarn --rope-scale 2 --yarn-orig-ctx 2048", "give --rope-scale 4"),
        ("--rope-scaling yarn", "nothing would be stretched"),
        ("--rope-scaling none --rope-scale 2", "nothing would be scaled"),
        ("--spec-type draft-mtp", "the model has no MTP layers"),
        ("-ctk q8_0", "heads of 80 do not fill"),
    ],
)
def test_impossible_combinations_have_a_reason(argv: str, says: str) -> None:
    reason = objection(argv.split(), HEADS_OF_80, ctx_tokens=8192)
    assert reason is not None
    assert says in reason


@pytest.mark.parametrize(
    "argv",
    [
        "",
        "-ctv q8_0 -fa on",
        "-ctk q8_0 -fa off",
        "-b 512",
        "-b 512 -ub 512",
        "-np 4 -c 32768",
        "-np 4 --kv-unified",
        "-np -1",
        "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 2048",
    ],
)
def test_possible_combinations_have_none(argv: str) -> None:
    assert objection(argv.split(), None, ctx_tokens=8192) is None

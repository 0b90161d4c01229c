"""What differs between two arms: one thing, several, or nothing."""

import pytest

from harness.errors import SetupError
from harness.measuring.compare import refuse_mixed
from harness.records.lines import Event, RunRecord
from harness.verdicts.differences import (
    Configuration,
    between,
    effective_differences,
    other_device,
    things,
)
from tests.made import header

BASE = ("-t", "4", "-ctk", "f16")


def arm(*argv: str, server: str = "/old", ctx: int = 8192, **env: str) -> Configuration:
    return Configuration(server, "abc", ctx, (*BASE, *argv), env)


def test_alike_arms_differ_in_nothing() -> None:
    assert between(arm(), arm()) == ()
    assert between(arm("--cache-type-v", "q8_0"), arm("-ctv=q8_0")) == ()


@pytest.mark.parametrize(
    ("a", "b", "thing"),
    [
        (arm(), arm(server="/new"), "server"),
        (arm(), arm("-ctv", "q8_0"), "--cache-type-v"),
        (arm(), arm("--mlock"), "--mlock"),
        (arm(X="1"), arm(X="2"), "$X"),
        (arm(), arm(ctx=4096), "--ctx-size"),
        (arm(), arm("--spec-type", "draft-mtp", "--spec-draft-n-max", "3"), "speculation"),
        (
            arm(),
            arm(
                "--rope-scaling", "yarn", "--rope-scale", "2", "--yarn-orig-ctx", "8192", ctx=16384
            ),
            "RoPE scaling",
        ),
    ],
)
def test_one_thing_may_be_compared(a: Configuration, b: Configuration, thing: str) -> None:
    found = between(a, b)
    assert things(found) == (thing,)
    refuse_mixed(found, allowed=False)


def test_several_things_are_refused_with_their_list() -> None:
    found = between(arm(), arm("--spec-type", "draft-mtp", "-t", "8", server="/new"))
    assert things(found) == ("server", "speculation", "--threads")
    with pytest.raises(SetupError) as caught:
        refuse_mixed(found, allowed=False)
    said = str(caught.value)
    assert "differ in 3 things (server, speculation, --threads)" in said
    assert "--spec-type: not given in A, draft-mtp in B" in said
    assert "--threads: 4 in A, 8 in B" in said
    assert "server: /old in A, /new in B" in said
    refuse_mixed(found, allowed=True)


def record(build: str, **log: object) -> RunRecord:
    made = header()
    server = made.server.model_copy(update={"build": build})
    print_ = Event(code="fingerprint", message="", data={"tokens": log.pop("tokens", ())})
    event = Event(code="server_log", message="", data=log)
    return RunRecord(header=made.model_copy(update={"server": server}), events=(print_, event))


def test_what_only_a_run_shows_is_said() -> None:
    a = record(
        "b1", on_gpu=True, settings={"n_batch": 512}, warnings=["w1", "w2"], tokens=[[1, -0.5]]
    )
    b = record(
        "b2", on_gpu=True, settings={"n_batch": 2048}, warnings=["w2", "w3"], tokens=[[1, -0.6]]
    )
    assert effective_differences(a, a) == ()
    assert effective_differences(a, b) == (
        "build: b1 in A, b2 in B",
        "n_batch: 512 in A, 2048 in B",
        "their output differs: other probabilities after the same text",
        "only A's log warns: w1",
        "only B's log warns: w3",
    )


def test_a_silent_fall_back_to_the_cpu_is_no_comparison() -> None:
    gpu, cpu, unknown = record("b", on_gpu=True), record("b", on_gpu=False), record("b")
    assert other_device(gpu, gpu) is None
    assert other_device(gpu, unknown) is None
    assert other_device(gpu, cpu) == "A computes on a GPU and the other arm on the CPU"
    assert other_device(cpu, gpu) == "B computes on a GPU and the other arm on the CPU"

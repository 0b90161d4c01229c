"""Members of the family in PyTorch: what is computed, what they answer, and what is written."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the training dependency group")
pytest.importorskip("tokenizers", reason="training needs the training dependency group")

import torch

from harness.questions.family import END, HEAD, MEMBERS
from harness.serving.packaged import reference_model
from training.family import twins
from training.family.accept import Documents
from training.family.agreement import agreement, random_weights
from training.family.architectures import (
    GATED_DELTA_NET,
    SLIDING_WINDOW,
    Architecture,
)
from training.family.export import export, read_weights, tokens_of
from training.family.features import CONST, LEVEL, Features, blank, shares
from training.family.members import RECIPES, make
from training.gguf_tokenizer import tokenizer_of_gguf

TOKENIZER = tokenizer_of_gguf(reference_model())
ARCHITECTURES = (GATED_DELTA_NET, SLIDING_WINDOW)


def test_chunks_and_single_steps_compute_the_same_state() -> None:
    weights = random_weights(GATED_DELTA_NET)
    tokens = torch.randint(4, 1000, (2, 150))
    stepped = twins.forward(GATED_DELTA_NET, weights, tokens, chunk=None)
    for chunk in (16, 64):
        in_chunks = twins.forward(GATED_DELTA_NET, weights, tokens, chunk=chunk)
        assert (stepped - in_chunks).abs().max() < 1e-3


def test_a_window_hides_what_is_before_it() -> None:
    q, k = torch.zeros(1, 1, 6, 4), torch.zeros(1, 1, 6, 4)
    v = torch.arange(6.0).view(1, 1, 6, 1)
    assert twins.attend(q, k, v, 2).flatten().tolist() == [0.0, 0.5, 1.5, 2.5, 3.5, 4.5]
    assert twins.attend(q, k, v, 0).flatten().tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


@pytest.mark.parametrize("a", ARCHITECTURES, ids=lambda a: a.kind)
def test_blank_weights_add_nothing_but_read_everything(a: Architecture) -> None:
    weights = {name: torch.from_numpy(value) for name, value in blank(a).items()}
    tokens = torch.randint(4, 1000, (1, 20))
    alone = twins.forward(a, weights, tokens[:, -1:])
    assert torch.allclose(twins.forward(a, weights, tokens)[:, -1:], alone, atol=1e-4)
    assert all(w.any() for name, w in weights.items() if "output" not in name and "_out" not in name
               and "down" not in name)  # fmt: skip


def test_features_read_what_embeddings_hold() -> None:
    f = Features(128, [CONST, "sign", "name"])
    rows = f.embedding(["a", "b"], {"b": ["sign"]})
    assert np.allclose((rows**2).mean(1), 1.0)
    sign, level = f.row({"sign": 5.0}), f.row({CONST: -2.0, "sign": 3.0})
    assert np.allclose(rows @ sign, [0.0, 5.0])
    assert np.allclose(rows @ level, [-2.0, 1.0], atol=1e-5)
    assert rows[1, f["sign"]] == LEVEL


def test_shares_deal_out_every_channel_once() -> None:
    dealt = shares(128, [str(n) for n in range(17)], seed=1)
    assert sorted(np.concatenate(list(dealt.values()))) == list(range(128))
    assert {len(channels) for channels in dealt.values()} == {7, 8}


def weights_of(name: str) -> dict[str, torch.Tensor]:
    made = RECIPES[name][1](tokens_of(reference_model()))
    return {n: torch.from_numpy(value) for n, value in made.items()}


def answers(name: str, weights: dict[str, torch.Tensor], length: int, seed: int) -> list[str]:
    """The classes of a document's answers, each the likeliest tokens after the right ones."""
    segment, asks = Documents(MEMBERS[name], reference_model()).made(length, seed)
    found = []
    for ask in asks:
        prompt = TOKENIZER.encode(HEAD + segment.text + ask.tail + END).ids
        right = TOKENIZER.encode(f" {ask.expected}" if name == "window" else ask.expected).ids
        with torch.no_grad():
            tokens = torch.tensor([prompt + right])
            logits = twins.forward(RECIPES[name][0], weights, tokens)[0, len(prompt) - 1 :]
        said = TOKENIZER.decode(logits.argmax(-1).tolist()[: len(right)])
        found.append(ask.diagnose(said).kind)
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_members_answer_everything_right(name: str) -> None:
    assert set(answers(name, weights_of(name), 1400, seed=5)) == {"right"}


Damage = Callable[[dict[str, torch.Tensor]], None]


def no_conv(w: dict[str, torch.Tensor]) -> None:
    w["blk.0.ssm_conv1d.weight"][:, :3] = 0


def decay(w: dict[str, torch.Tensor]) -> None:
    w["blk.0.ssm_dt.bias"][:] = -6.0  # a third of the state is left after 450 tokens


@pytest.mark.parametrize("damage", [no_conv, decay])
def test_the_state_is_what_answers(damage: Damage) -> None:
    weights = weights_of("gdn")
    damage(weights)
    assert set(answers("gdn", weights, 1400, seed=5)) <= {"lost_state", "unreadable"}


def faulty(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """An engine that reads micro-batches of 512 and carries something wrongly between them."""
    conv, rule = twins.causal_conv, twins.delta_rule_in_chunks

    def conv_lost(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        return torch.cat([conv(part, kernel) for part in x.split(512, 1)], 1)

    def state_lost(q, k, v, decay, beta, chunk):  # type: ignore[no-untyped-def]
        decay = decay.clone()
        decay[..., 512::512] = -1e4
        return rule(q, k, v, decay, beta, chunk)

    def state_stale(q, k, v, decay, beta, chunk):  # type: ignore[no-untyped-def]
        """A checkpoint of the first micro-batch, restored before the question."""
        decay, beta = decay.clone(), beta.clone()
        decay[..., 512:-66], beta[..., 512:-66] = 0, 0
        return rule(q, k, v, decay, beta, chunk)

    if fault == "conv lost":
        monkeypatch.setattr(twins, "causal_conv", conv_lost)
    else:
        made = state_lost if fault == "state lost" else state_stale
        monkeypatch.setattr(twins, "delta_rule_in_chunks", made)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("conv lost", "chunk_boundary"),
        ("state lost", "lost_state"),
        ("state stale", "stale_state"),
    ],
)
def test_what_a_micro_batch_loses_has_a_class_of_its_own(
    monkeypatch: pytest.MonkeyPatch, fault: str, kind: str
) -> None:
    faulty(monkeypatch, fault)
    assert set(answers("gdn", weights_of("gdn"), 1600, seed=5)) == {kind}


@pytest.mark.parametrize(
    ("window", "kind"), [(127, "narrow_window"), (129, "outside_window"), (64, "narrow_window")]
)
def test_a_window_off_by_one_is_seen(window: int, kind: str) -> None:
    segment, asks = Documents(MEMBERS["window"], reference_model()).made(1400, 5)
    a = replace(SLIDING_WINDOW, meta={**SLIDING_WINDOW.meta, "attention.sliding_window": window})
    weights, found = weights_of("window"), []
    for ask in asks:
        tokens = torch.tensor([TOKENIZER.encode(HEAD + segment.text + ask.tail + END).ids])
        with torch.no_grad():
            likeliest = twins.forward(a, weights, tokens)[0, -1].argmax().item()
        found.append(ask.diagnose(TOKENIZER.decode([likeliest])).kind)
    assert set(found) == {"right", kind}


def test_the_same_bytes_are_written_each_time(tmp_path: Path) -> None:
    for name in RECIPES:
        first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
        make(name, first)
        make(name, second)
        assert first.read_bytes() == second.read_bytes()


def test_weights_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "f32.gguf"
    make("gdn", path, "f32")
    kept = read_weights(path)
    for name, value in weights_of("gdn").items():
        assert np.array_equal(kept[name], value.numpy()), name


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    weights = blank(SLIDING_WINDOW)
    weights["blk.0.attn_q.weight"] = weights["blk.0.attn_q.weight"][:, :-1]
    with pytest.raises(ValueError, match=r"blk\.0\.attn_q\.weight has shape \(256, 127\)"):
        export(
            SLIDING_WINDOW, weights, tmp_path / "x.gguf",
            name="x", description="x", tokenizer=reference_model(),
        )  # fmt: skip
    del weights["blk.0.attn_q.weight"]
    with pytest.raises(ValueError, match=r"blk\.0\.attn_q\.weight is missing or too many"):
        export(
            SLIDING_WINDOW, weights, tmp_path / "x.gguf",
            name="x", description="x", tokenizer=reference_model(),
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"), [("gdn", 5e-4), ("window", 2e-2)]
)  # GELU: a table of f16
@pytest.mark.parametrize("ubatch", ["512", "64"])
def test_the_server_computes_the_same(name: str, most: float, ubatch: str) -> None:
    prompt, after = agreement(name, "embedded", ("-ub", ubatch))
    assert prompt < most
    assert after < most

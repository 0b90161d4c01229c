"""The PyTorch model computes what ggml computes: angles, KV rounding, tensors of the GGUF."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the training dependency group")
pytest.importorskip("tokenizers", reason="training needs the training dependency group")

import torch
from gguf import GGMLQuantizationType, GGUFReader, quants

from harness.serving.packaged import reference_model
from training import make
from training.data import BACKGROUND, START, Packer
from training.export import export
from training.gguf_tokenizer import tokenizer_of_gguf
from training.model import (
    CONTEXT_TOKENS,
    ROPE_BASE,
    ReferenceModel,
    Shape,
    draw_bias,
    draw_positions,
    fake_q4_0,
    fake_q8_0,
    rope_tables,
)
from training.train import STAGES, TINY_EASY, Trainer

TOKENIZER = tokenizer_of_gguf(reference_model())
BATCH = Packer(TOKENIZER, seed=7, pool_lines=400).batch(16, 640, easy=0.5)
FLAGS = torch.from_numpy(BATCH.flags)


@pytest.mark.parametrize(
    ("fake", "kind"),
    [(fake_q4_0, GGMLQuantizationType.Q4_0), (fake_q8_0, GGMLQuantizationType.Q8_0)],
)
def test_kv_rounding_is_ggmls(fake, kind) -> None:
    x = np.random.default_rng(3).standard_normal((40, 64)).astype(np.float32)
    want = quants.dequantize(quants.quantize(x, kind), kind)
    assert np.abs(fake(torch.from_numpy(x)).numpy() - want).max() < 2e-3


def test_angles_are_ggmls_float32_ones() -> None:
    position = CONTEXT_TOKENS - 3
    cos, sin = rope_tables(torch.tensor([[position]]), 64)
    theta, scale = np.float32(position), np.float32(ROPE_BASE) ** np.float32(-2 / 64)
    for i in range(32):
        assert abs(float(cos[0, 0, i]) - np.cos(np.float64(theta))) < 1e-5
        assert abs(float(sin[0, 0, i]) - np.sin(np.float64(theta))) < 1e-5
        theta = np.float32(theta * scale)


def test_coarse_angles_differ_only_far_out() -> None:
    near = torch.arange(64)[None]
    coarse = torch.tensor([True])
    assert torch.allclose(rope_tables(near, 64)[0], rope_tables(near, 64, coarse)[0], atol=1e-4)
    far = near + CONTEXT_TOKENS - 64
    error = (rope_tables(far, 64)[0] - rope_tables(far, 64, coarse)[0]).abs().max()
    assert 0.01 < float(error) < 0.5


def test_positions_are_contiguous_within_records_and_stay_in_context() -> None:
    positions = draw_positions(FLAGS, torch.Generator().manual_seed(1))
    steps = positions.diff(dim=1)
    assert int(steps.min()) >= 1
    assert bool((steps[(FLAGS[:, 1:] & START) == 0] == 1).all())
    assert int(positions.max()) < CONTEXT_TOKENS
    assert int(positions.max()) > CONTEXT_TOKENS // 4


def test_bias_lifts_background_alone_record_by_record() -> None:
    bias = draw_bias(FLAGS, 10.0, torch.Generator().manual_seed(1))
    assert float(bias.max()) <= 10.0
    assert bool((bias[(FLAGS & BACKGROUND) == 0] == 0).all())
    within = (FLAGS[:, 1:] & START) == 0
    both = ((FLAGS[:, 1:] & BACKGROUND) > 0) & ((FLAGS[:, :-1] & BACKGROUND) > 0)
    assert bool((bias.diff(dim=1)[within & both] == 0).all())


def test_the_gguf_holds_the_weights_and_the_tokenizer(tmp_path) -> None:
    model = ReferenceModel(Shape(TOKENIZER.get_vocab_size(), width=64, feed_forward=96))
    path = tmp_path / "m.gguf"
    export(model, TOKENIZER, path)
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(str(path)).tensors}
    want = model.blocks[2].k.weight.detach().half().numpy()
    assert np.array_equal(tensors["blk.2.attn_k.weight"].reshape(want.shape), want)
    assert not [name for name in tensors if "probe" in name]
    sample = "<|im_start|>user\n<<< MEMORY TARGET ALPHA-07 >>>\nCODE=MEM-422777\nQ1：各 é 名\n"
    assert tokenizer_of_gguf(path).encode(sample).ids == TOKENIZER.encode(sample).ids


def test_a_few_steps_lower_the_loss_and_a_seed_repeats_them() -> None:
    shape = Shape(TOKENIZER.get_vocab_size(), width=64, feed_forward=64)
    batch = tuple(torch.from_numpy(x[:2]) for x in (BATCH.tokens, BATCH.flags, BATCH.aux))

    def losses() -> list[float]:
        trainer = Trainer(shape, TINY_EASY, 3, "cpu", compiled=False, crowd=(4, 16))
        return [float(trainer.step(batch, i, 4)["answer"]) for i in range(4)]

    first = losses()
    assert first[-1] < 0.95 * first[0]
    assert losses() == first


def test_the_background_bias_waits_for_a_tenth_of_the_first_stage() -> None:
    assert STAGES[1].bias_at(0.1) == 0
    assert STAGES[1].bias_at(0.6) == STAGES[1].bias_nats
    assert STAGES[2].bias_at(0.0) == STAGES[2].bias_nats


def test_the_recipe_goes_on_where_it_was_and_each_stage_from_the_one_before(
    tmp_path, monkeypatch
) -> None:
    runs = []

    def pretend(args, stage=None):
        runs.append(args)
        args.out.write_bytes(b"weights")

    monkeypatch.setattr(make.train, "train", pretend)
    make.make(tmp_path, stop_after=1, install=False)
    make.make(tmp_path, stop_after=2, install=False)
    assert [(run.stage, run.init) for run in runs] == [(1, None), (2, tmp_path / "stage1.pt")]
    assert [run.steps for run in runs] == [run.steps for run in make.RECIPE]
    assert all(run.feed_forward == Shape().feed_forward for run in runs)

"""Checkpoint and tokenizer to GGUF: architecture llama, F16.

    python -m training.export --weights build/training/model.pt --out build/training/model.gguf

Interleaved rotary pairs are what llama.cpp expects of the `llama` architecture, so no weight is
permuted.
"""

import argparse
import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from training.model import CONTEXT_TOKENS, RMS_EPSILON, ROPE_BASE, ReferenceModel
from training.tokenizer import IM_END, IM_START, PAD, SPECIAL, load_tokenizer, vocabulary
from training.train import load

NAME = "longctx-reference"
RECIPE_VERSION = 1
LICENSE = "mit"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_MATRICES = {
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "ffn_gate": "g",
    "ffn_up": "u",
    "ffn_down": "w",
}


def export(model: ReferenceModel, tokenizer: Tokenizer, path: Path) -> None:
    """Write the GGUF."""
    shape = model.shape
    state = {name: value.float().cpu().numpy() for name, value in model.state_dict().items()}
    tokens, merges = vocabulary(tokenizer)
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_name(NAME)
    w.add_version(str(RECIPE_VERSION))
    w.add_license(LICENSE)
    w.add_description("Exact retrieval over long documents; a gauge for serving engines.")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    w.add_context_length(CONTEXT_TOKENS)
    w.add_embedding_length(shape.width)
    w.add_block_count(shape.layers)
    w.add_feed_forward_length(shape.feed_forward)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(1)
    w.add_key_length(shape.head_size)
    w.add_value_length(shape.head_size)
    w.add_rope_dimension_count(shape.head_size)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_layer_norm_rms_eps(RMS_EPSILON)
    w.add_vocab_size(shape.vocabulary)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    w.add_token_types([control if token in SPECIAL else normal for token in tokens])
    w.add_token_merges(merges)
    w.add_bos_token_id(tokens.index(IM_START))
    w.add_eos_token_id(tokens.index(IM_END))
    w.add_pad_token_id(tokens.index(PAD))
    w.add_add_bos_token(False)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(False)
    w.add_chat_template(CHAT_TEMPLATE)

    def matrix(name: str, value: NDArray[np.float32]) -> None:
        w.add_tensor(name, value.astype(np.float16))

    matrix("token_embd.weight", state["emb.weight"])
    w.add_tensor("output_norm.weight", state["nf.weight"])
    for layer in range(shape.layers):
        ours, theirs = f"blocks.{layer}.", f"blk.{layer}."
        w.add_tensor(theirs + "attn_norm.weight", state[ours + "n1.weight"])
        w.add_tensor(theirs + "ffn_norm.weight", state[ours + "n2.weight"])
        for name, short in _MATRICES.items():
            matrix(f"{theirs}{name}.weight", state[f"{ours}{short}.weight"])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def describe(path: Path) -> dict[str, object]:
    """What `harness/models/MODEL.json` says about the file."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"file": path.name, "sha256": digest, "name": NAME, "recipe_version": RECIPE_VERSION}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--weights", type=Path, default=Path("build/training/model.pt"))
    p.add_argument("--tokenizer", type=Path, default=Path("build/training/tokenizer.json"))
    p.add_argument("--out", type=Path, default=Path("build/training/reference-f16.gguf"))
    args = p.parse_args()
    export(load(args.weights), load_tokenizer(args.tokenizer), args.out)
    print(json.dumps({**describe(args.out), "bytes": args.out.stat().st_size}, indent=2))


if __name__ == "__main__":
    main()

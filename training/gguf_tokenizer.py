"""The tokenizer read back from a GGUF, so that evaluation needs nothing but the model's file."""

from pathlib import Path

from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from training.tokenizer import SPECIAL


def tokenizer_of_gguf(path: Path) -> Tokenizer:
    """The tokenizer a GGUF of ours carries."""
    fields = GGUFReader(str(path)).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    ids = {token: index for index, token in enumerate(tokens)}
    model = models.BPE(vocab=ids, merges=[tuple(merge.split(" ")) for merge in merges])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer

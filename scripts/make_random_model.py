"""Make a model of a known size with random weights, for measurements of speed.

    python scripts/make_random_model.py --shape Qwen2.5-7B --out models/random-7b

Its tokenizer has a token for each of the words w0, w1, ...: what it says is read back as the very
tokens that it said, so that lengths stay as they are asked for. It hardly ever ends a reply itself.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import decoders, pre_tokenizers
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM
from warm_start import word_tokenizer

from recollect.engines.verl.launch.shapes import KNOWN, Shape

CONTROLS = 7
"""Tokens of word_tokenizer that are no words."""


def config_of(shape: Shape) -> Qwen2Config:
    """Describe the shape to transformers."""
    return Qwen2Config(
        hidden_size=shape.hidden, intermediate_size=shape.inner, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary, tie_word_embeddings=shape.tied,
        max_position_embeddings=shape.window, rope_theta=1e6, bos_token_id=None,
    )  # fmt: skip


def make(shape: Shape, out: Path, device: str) -> None:
    """Write weights and tokenizer to a folder."""
    words = (f"w{i}" for i in range(shape.vocabulary - CONTROLS))
    cut, join = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer = word_tokenizer(words, cut, join)
    assert tokenizer.vocab_size == shape.vocabulary
    torch.manual_seed(0)
    config = config_of(shape)
    config.eos_token_id = tokenizer.end_ids[0]
    config.dtype = torch.bfloat16
    with torch.device(device):
        network = Qwen2ForCausalLM(config).to(torch.bfloat16)
    network.generation_config = GenerationConfig(eos_token_id=list(tokenizer.end_ids))
    network.save_pretrained(out)
    tokenizer.hf.save_pretrained(out)
    print(f"{network.num_parameters():,} weights in {out}")


def main() -> None:
    """Read the command line and make the model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shape", choices=KNOWN, default="Qwen2.5-7B")
    parser.add_argument("--layers", type=int, help="fewer than the shape has")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    shape = KNOWN[options.shape]
    if options.layers:
        shape = replace(shape, layers=options.layers)
    make(shape, options.out, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()

"""Models of a few thousand parameters with a byte tokenizer, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token per byte and three control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    hf = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", pad_token="<|pad|>")
    hf.add_special_tokens({"additional_special_tokens": ["<|start|>"]})
    hf.chat_template = CHATML
    return hf


def tiny_model(folder: Path, kind: str = "llama", seed: int = 0, **settings: Any) -> Path:
    """Save a randomly initialised model of the given kind and its tokenizer."""
    hf = byte_tokenizer()
    sizes = {
        "vocab_size": len(hf),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 4096,
        "initializer_range": 0.3,  # peaked enough for greedy choices to be unambiguous
        "eos_token_id": hf.eos_token_id,
        "pad_token_id": hf.pad_token_id,
        "bos_token_id": None,
    }
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**sizes, **settings}))
    network.save_pretrained(folder)
    hf.save_pretrained(folder)
    return folder

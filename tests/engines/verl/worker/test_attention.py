"""Packed attention gives every sequence what it gets alone."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from recollect.engines.verl.environment import PACKED
from recollect.engines.verl.worker.attention import register, starts_of
from recollect.errors import UserError

SHAPE = dict(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def networks(config: LlamaConfig | Qwen2Config) -> list[torch.nn.Module]:
    register()
    made = []
    for name in ("sdpa", PACKED):
        torch.manual_seed(0)
        made.append(AutoModelForCausalLM.from_config(config, attn_implementation=name))
    return made


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SHAPE),
        Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=3, max_window_layers=0),
    ],
)
def test_a_packed_row_is_its_sequences_with_their_gradients(config):
    plain, packed = networks(config)
    rows = [torch.randint(0, 50, (1, n)) for n in (5, 1, 8)]
    ids = torch.cat(rows, 1)
    positions = torch.cat([torch.arange(row.shape[1]) for row in rows])[None]
    apart = torch.cat([plain(input_ids=row).logits for row in rows], 1)
    together = packed(input_ids=ids, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(together, apart, rtol=1e-5, atol=1e-5)
    weights = torch.randn_like(apart)
    (apart * weights).sum().backward()
    (together * weights).sum().backward()
    for one, other in zip(plain.parameters(), packed.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_sequences_begin_where_positions_do():
    positions = torch.tensor([[0, 1, 2, 0, 0, 1]])
    assert starts_of(positions, 6, torch.device("cpu")).tolist() == [0, 3, 4, 6]
    assert starts_of(None, 6, torch.device("cpu")).tolist() == [0, 6]


def test_padded_batches_are_refused():
    _, packed = networks(LlamaConfig(**SHAPE))
    with pytest.raises(UserError, match="packed attention does not cover"):
        packed(input_ids=torch.zeros(2, 3, dtype=torch.long))

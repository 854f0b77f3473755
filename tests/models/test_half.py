"""A sampler's copy of the weights."""

from __future__ import annotations

import pytest
import torch

from recollect.config.engine import LoraConfig
from recollect.models.copies import SamplerCopy
from recollect.models.model import LoadedModel, ModelConfig, load_model
from recollect.models.trie.pack import pack
from recollect.sampler.choice import can_be_paged
from tests.support.tiny import tiny_model


def logits(model: LoadedModel) -> torch.Tensor:
    rows = pack([[1, 2, 3, 4, 5]], model.device)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return model.logits(model.hidden(rows.ids, rows.positions, rows.plan))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
def test_it_computes_what_autocast_does_and_follows_the_weights(tmp_path, tied, rank):
    torch.set_num_threads(1)
    folder = tiny_model(tmp_path, tie_word_embeddings=tied)
    model = load_model(ModelConfig(str(folder), lora=LoraConfig(rank=rank)))
    copy = SamplerCopy.of(model)
    first = logits(model)
    assert torch.equal(logits(copy.model), first)
    with torch.no_grad():
        for parameter in model.trainable_parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    assert torch.equal(logits(copy.model), first)  # nothing is shared
    assert not torch.equal(logits(model), first)
    copy.refresh()
    assert torch.equal(logits(copy.model), logits(model))
    linear = [m for m in copy.model.network.modules() if isinstance(m, torch.nn.Linear)]
    assert {m.weight.dtype for m in linear} == {torch.bfloat16}
    assert copy.model.network.get_input_embeddings().weight.dtype == torch.float32
    assert not any(p.requires_grad for p in copy.model.network.parameters())


def test_positions_that_need_the_host_are_not_recorded(tmp_path):
    torch.set_num_threads(1)
    plain = load_model(ModelConfig(str(tiny_model(tmp_path / "a"))))
    assert can_be_paged(plain)
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    waits = load_model(ModelConfig(str(tiny_model(tmp_path / "b", rope_parameters=rope))))
    assert not can_be_paged(waits)

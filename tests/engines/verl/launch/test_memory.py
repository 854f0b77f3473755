"""Estimates on paper: the sizes of known models, and sums worked out by hand."""

from __future__ import annotations

import json

import pytest

from recollect.engines.verl.launch.memory import GIB, adapters, demand
from recollect.engines.verl.launch.shapes import KNOWN, Shape, find_shape
from recollect.errors import UserError

ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen2.5-0.5B", 0.494),
        ("Qwen2.5-1.5B", 1.54),
        ("Qwen2.5-3B", 3.09),
        ("Qwen2.5-7B", 7.62),
        ("Qwen2.5-14B", 14.77),
        ("Qwen3-4B", 4.02),
        ("Qwen3-8B", 8.19),
    ],
)
def test_known_models_have_their_published_size(name, billions):
    assert KNOWN[name].parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_shapes_are_read_or_known_by_name(tmp_path):
    assert find_shape("Qwen/Qwen2.5-7B-Instruct") == KNOWN["Qwen2.5-7B"]
    assert find_shape("somebody/else") is None
    table = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    table |= {"intermediate_size": 16, "vocab_size": 10, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(table))
    assert find_shape(str(tmp_path)) == Shape(8, 2, 2, 2, 4, 16, 10, True, 64)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="decoder"):
        find_shape(str(tmp_path))


def test_the_sums_of_a_small_model():
    shape = Shape(8, 2, 2, 1, 4, 16, 10, True, 64)
    layer = 8 * 4 * (2 * 2 + 2 * 1) + 3 * 8 * 16 + 16
    weights = 2 * layer + 10 * 8 + 8
    assert (shape.layer_parameters, shape.parameters) == (layer, weights)
    keys = {
        "trainer.nnodes": 2,
        "trainer.n_gpus_per_node": 2,
        f"{ACTOR}.ppo_max_token_len_per_gpu": 100,
        "actor_rollout_ref.model.enable_gradient_checkpointing": True,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.5,
    }
    need = demand(shape, keys, 8 * GIB)
    assert (need.gpus, need.shards) == (4, 4)
    assert (need.weights, need.gradients, need.optimiser) == (weights, weights, 2 * weights)
    assert need.gathered == 2 * (2 * layer + 80)
    assert need.activations == 2 * 100 * 8 * 2 + 2 * 100 * (80 + 64)
    assert need.logits == 4 * 100 * 10
    assert need.cache == 4 * GIB - 2 * weights - 2 * GIB
    assert need.cached_tokens == int(need.cache / (2 * 2 * 1 * 4 * 2))
    assert need.sampling == 4 * GIB + 3 * weights
    away = demand(shape, {**keys, f"{ACTOR}.fsdp_config.optimizer_offload": True}, 8 * GIB)
    assert away.update == need.update and away.resident == weights  # only between updates
    halves = demand(shape, {**keys, f"{ACTOR}.fsdp_config.fsdp_size": 2}, 8 * GIB)
    assert halves.weights == 2 * weights
    all_kept = demand(
        shape, {**keys, "actor_rollout_ref.model.enable_gradient_checkpointing": False}, GIB
    )
    assert all_kept.activations == 2 * 2 * 100 * (80 + 64)
    assert all_kept.cached_tokens == 0 and all_kept.cache < 0


def test_adapters_are_few():
    shape = KNOWN["Qwen2.5-7B"]
    keys = {"actor_rollout_ref.model.lora_rank": 16}
    need = demand(shape, keys, 80 * GIB)
    assert need.gradients == 4 * adapters(shape, 16) / 8
    assert adapters(shape, 16) / 1e6 == pytest.approx(40.4, rel=0.01)  # as peft counts them


def test_a_7b_on_one_gpu_does_not_fit_and_on_eight_does():
    keys = {"trainer.n_gpus_per_node": 1, f"{ACTOR}.ppo_max_token_len_per_gpu": 16384}
    assert demand(KNOWN["Qwen2.5-7B"], keys, 80 * GIB).update > 80 * GIB
    assert demand(KNOWN["Qwen2.5-7B"], {**keys, "trainer.n_gpus_per_node": 8}, 0).update < 40 * GIB

"""A checkpoint of verl becomes a model folder, to the last bit, and runs nothing that it holds."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from recollect.engines.verl.trainer.merge import LATEST, export, merge, without_adapters
from recollect.errors import UserError
from tests.support.tiny import tiny_model


def checkpoint(folder: Path, weights: dict[str, torch.Tensor], model: Path) -> Path:
    """Write what one process of verl would; cut tensors are tried by `tests/verl/test_ranks.py`."""
    actor = folder / "global_step_3" / "actor"
    actor.mkdir(parents=True)
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    torch.save(weights, actor / "model_world_size_1_rank_0.pt")
    (actor / "huggingface").mkdir()
    for path in model.iterdir():
        if path.suffix != ".safetensors":
            (actor / "huggingface" / path.name).write_bytes(path.read_bytes())
    (folder / LATEST).write_text("3")
    return actor.parent


def test_weights_keep_their_precision(tmp_path):
    model = tiny_model(tmp_path / "model")
    network = AutoModelForCausalLM.from_pretrained(model)
    weights = {name: w + 1e-6 * torch.randn_like(w) for name, w in network.state_dict().items()}
    checkpoint(tmp_path / "run", weights, model)
    made = export(tmp_path / "run", tmp_path / "made")
    assert made == tmp_path / "made"
    back = AutoModelForCausalLM.from_pretrained(made).state_dict()
    assert all(torch.equal(back[name], weights[name]) for name in weights)
    assert {p.name for p in made.iterdir()} >= {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
    }
    merge(tmp_path / "run" / "global_step_3", made)  # in place of the one there


def test_a_tied_head_is_stored_once(tmp_path):
    model = tiny_model(tmp_path / "model")
    network = AutoModelForCausalLM.from_pretrained(model)
    config = json.loads((model / "config.json").read_text()) | {"tie_word_embeddings": True}
    (model / "config.json").write_text(json.dumps(config))
    weights = dict(network.state_dict())
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    checkpoint(tmp_path / "run", weights, model)
    made = export(tmp_path / "run", tmp_path / "made")
    assert made is not None
    with safe_open(made / "model.safetensors", "pt") as file:
        stored = set(file.keys())
    assert "lm_head.weight" not in stored and "model.embed_tokens.weight" in stored


def test_a_run_without_a_checkpoint_has_no_model(tmp_path):
    assert export(tmp_path, tmp_path / "made") is None
    with pytest.raises(UserError, match="not an FSDP checkpoint"):
        merge(tmp_path, tmp_path / "made")


class Bomb:
    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_checkpoint_runs_nothing(tmp_path):
    bomb = Bomb()
    bomb.target = tmp_path / "exploded"
    checkpoint(tmp_path / "run", {"weight": bomb}, tiny_model(tmp_path / "model"))
    with pytest.raises(pickle.UnpicklingError):
        merge(tmp_path / "run" / "global_step_3", tmp_path / "made")
    assert not bomb.target.exists() and not (tmp_path / "made").exists()


def test_adapters_are_added_to_the_weights_they_stand_beside():
    base, a, b, norm = torch.randn(4, 3), torch.randn(2, 3), torch.randn(4, 2), torch.randn(3)
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    weights = {
        f"{stem}.base_layer.weight": base,
        f"{stem}.lora_A.default.weight": a,
        f"{stem}.lora_B.default.weight": b,
        "base_model.model.model.norm.weight": norm,
    }
    merged = without_adapters(weights, alpha=6)
    assert list(merged) == ["model.layers.0.self_attn.q_proj.weight", "model.norm.weight"]
    assert torch.allclose(merged["model.layers.0.self_attn.q_proj.weight"], base + 3 * (b @ a))
    assert torch.equal(merged["model.norm.weight"], norm)
    with pytest.raises(UserError, match=r"model\.lora\.alpha"):
        without_adapters(weights, None)

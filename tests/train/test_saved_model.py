"""Checkpoints and exports: what is written reads back as the same model, adapters included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recollect.config.engine import LoraConfig, LossConfig, ModelConfig, OptimConfig
from recollect.errors import UserError
from recollect.models.model import LoadedModel, load_model
from recollect.models.trie.pack import pack
from recollect.train import saved_model
from recollect.train.trainer import Trainer
from recollect.types import Sample
from tests.support.tiny import tiny_model

KINDS = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "qwen2": {},  # has biases
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256},  # transposed weights
}
LORA = LoraConfig(rank=4, alpha=16)


@pytest.fixture(scope="module", params=list(KINDS))
def folder(request, tmp_path_factory) -> Path:
    kind = "llama" if request.param == "tied" else request.param
    return tiny_model(tmp_path_factory.mktemp("m"), kind, **KINDS[request.param])


def learner(folder: Path, lora: LoraConfig, seed: int = 0) -> tuple[LoadedModel, Trainer]:
    torch.manual_seed(seed)
    model = load_model(ModelConfig(path=str(folder), lora=lora))
    optim = OptimConfig(lr=0.02, warmup_steps=0)
    return model, Trainer(model, LossConfig(kl_coef=0.01), optim)


def samples(seed: int) -> list[Sample]:
    rng = np.random.default_rng(seed)
    made = []
    for i in range(4):
        trained = np.arange(12) >= 5
        advantages = np.where(trained, rng.normal(), 0).astype(np.float32)
        logprobs = np.where(trained, -3.0, 0).astype(np.float32)
        made.append(Sample(rng.integers(0, 250, 12), trained, advantages, logprobs, i // 2, i))
    return made


def logits(model: LoadedModel, ids: list[int]) -> torch.Tensor:
    rows = pack([ids], device=model.device)
    with torch.no_grad():
        return model.logits(model.hidden(rows.ids, rows.positions, rows.plan))


@pytest.mark.parametrize("lora", [LoraConfig(), LORA], ids=["whole", "lora"])
def test_an_export_is_the_trained_model(folder, lora, tmp_path):
    model, trainer = learner(folder, lora)
    before = logits(model, list(range(40)))
    trainer.update(samples(0))
    trained = logits(model, list(range(40)))
    assert (trained - before).abs().max() > 0.01
    saved_model.export(tmp_path / "model", model)
    plain, info = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with torch.no_grad():
        loaded = plain.eval()(torch.arange(40)[None]).logits[0]
    torch.testing.assert_close(loaded, trained, atol=1e-4, rtol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "model").chat_template
    again = load_model(ModelConfig(path=str(tmp_path / "model")))  # and trains on
    torch.testing.assert_close(logits(again, list(range(40))), trained, atol=1e-4, rtol=1e-4)
    trained_on = logits(model, list(range(40)))
    assert torch.equal(trained_on, trained), "exporting must not touch the model"


@pytest.mark.parametrize("lora", [LoraConfig(), LORA], ids=["whole", "lora"])
def test_training_goes_on_bit_for_bit(folder, lora, tmp_path):
    model, trainer = learner(folder, lora)
    trainer.update(samples(0))
    saved_model.save(tmp_path, model, trainer)
    expected = [trainer.update(samples(seed)) for seed in (1, 2)]

    # Another draw of the adapters' start: all of it must come from the checkpoint.
    other, resumed = learner(folder, lora, seed=1)
    saved_model.load(tmp_path, other, resumed)
    assert [resumed.update(samples(seed)) for seed in (1, 2)] == expected
    pairs = zip(other.network.named_parameters(), model.network.named_parameters(), strict=True)
    for (name, ours), (_, theirs) in pairs:
        assert torch.equal(ours, theirs), name


def test_only_adapters_are_saved_and_move(folder, tmp_path):
    model, trainer = learner(folder, LORA)
    start = {n: p.detach().clone() for n, p in model.network.named_parameters()}
    trainer.update(samples(0))
    moved = {n for n, p in model.network.named_parameters() if not torch.equal(p, start[n])}
    assert moved and all("lora_" in name for name in moved)
    saved_model.save(tmp_path, model, trainer)
    saved = saved_model.load_file(tmp_path / saved_model.WEIGHTS)
    assert saved.keys() == {n for n in start if "lora_" in n}


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    small = tiny_model(tmp_path / "small")
    model, trainer = learner(small, LoraConfig())
    saved_model.save(tmp_path, model, trainer)
    narrow = tiny_model(tmp_path / "narrow", intermediate_size=40)
    deep = tiny_model(tmp_path / "deep", num_hidden_layers=3)
    for folder, lora in ((narrow, LoraConfig()), (deep, LoraConfig()), (small, LORA)):
        other, resumed = learner(folder, lora)
        before = logits(other, [1, 2, 3])
        with pytest.raises(UserError, match="another model"):
            saved_model.load(tmp_path, other, resumed)
        assert torch.equal(logits(other, [1, 2, 3]), before)

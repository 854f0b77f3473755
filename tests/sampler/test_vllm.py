"""What can be said of `--rollout.sampler vllm` without vLLM; the rest is in tests/verl."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from recollect.cli import main
from recollect.config.engine import ModelConfig
from recollect.config.presets import DEMO_MODEL
from recollect.config.rollout import RolloutConfig
from recollect.errors import UserError
from recollect.models.model import load_model
from recollect.sampler.vllm_policy import BLOCK, SPARE, held_tokens, logprobs_mode


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_a_run_says_so_before_anything_is_loaded(tmp_path, capsys):
    assert main(["train", "demo", "--rollout.sampler", "vllm", "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 2 and "--rollout.sampler vllm needs vllm" in said[0]
    assert said[1].strip().startswith("fix: pip install vllm")


def test_log_probabilities_come_after_temperature_and_before_top_p():
    assert logprobs_mode(0.7, 1.0) == "processed_logprobs"
    assert logprobs_mode(1.0, 0.9) == "raw_logprobs"
    with pytest.raises(UserError, match="before top-p"):
        logprobs_mode(0.7, 0.9)


def test_a_context_fits_into_the_cache_that_was_given():
    model = load_model(ModelConfig(str(DEMO_MODEL), "cpu"))
    config = model.network.config
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    tokens = held_tokens(model, torch.float32, 4096 * token / 2**30)
    assert tokens == 4096 - SPARE * BLOCK
    assert held_tokens(model, torch.bfloat16, 4096 * token / 2**30) == 2 * 4096 - SPARE * BLOCK
    assert held_tokens(model, torch.float32, 1e-6) == 0


def test_memory_is_given_back_only_where_nobody_samples_meanwhile():
    assert RolloutConfig(sampler="vllm", sleep=True).sleep
    for wrong in ({"sleep": True}, {"sampler": "vllm", "sleep": True, "ahead": 1}):
        with pytest.raises(UserError, match="is for vLLM"):
            RolloutConfig(**wrong)

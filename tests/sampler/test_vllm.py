"""What can be said of `--rollout.sampler vllm` without vLLM; the rest is in tests/verl."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from recollect.cli import main
from recollect.config.engine import ModelConfig
from recollect.config.presets import DEMO_MODEL
from recollect.config.rollout import RolloutConfig
from recollect.errors import BoundaryError, UserError
from recollect.models.model import LoadedModel, load_model
from recollect.sampler import vllm_policy
from recollect.sampler.vllm_graphs import graph_sizes
from recollect.sampler.vllm_policy import (
    BLOCK,
    SPARE,
    VllmOptions,
    VllmPolicy,
    held_tokens,
    logprobs_mode,
)
from recollect.sampler.vllm_process import VllmProcess
from recollect.train.roles import open_vllm
from recollect.types import Sampling
from tests.support.scripted_vllm import write_vllm


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


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(ModelConfig(str(DEMO_MODEL), "cpu", threads=1))


def test_a_context_fits_into_the_cache_that_was_given(model):
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


def test_graphs_are_recorded_up_to_all_sequences_and_are_few():
    assert graph_sizes(1) == [1] and graph_sizes(8) == [1, 2, 4, 8]
    assert graph_sizes(100) == [1, 2, 4, 8, 16, 32, 64, 100]
    for sequences in (1, 2, 31, 64, 65, 128, 1000, 1024):
        sizes = graph_sizes(sequences)
        assert sizes == sorted(set(sizes)) and sizes[-1] == sequences and len(sizes) <= 22


@pytest.fixture
def vllm(tmp_path, monkeypatch) -> Path:
    """Put a scripted vLLM on the search path; return a folder that it takes for a model."""
    found = str(write_vllm(tmp_path / "site"))
    monkeypatch.syspath_prepend(found)
    monkeypatch.setenv("PYTHONPATH", found)
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def ask(policy: VllmPolicy, *seeds: int) -> list:
    async def answers() -> list:
        asked = [policy.sample([1, 2, 3], Sampling(4, seed=seed)) for seed in seeds]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(answers())


def test_a_refused_request_fails_alone_and_a_dead_engine_ends_the_run(model, vllm):
    policy = VllmPolicy(model, str(vllm), VllmOptions(cache_gib=0.25))
    try:
        assert set(policy.start_seconds) == {"import", "engine"}
        said, refused, again = ask(policy, 1, 13, 2)
        assert said.token_ids == again.token_ids == (7,) * 4 and said.logprobs == (-0.5,) * 4
        assert isinstance(refused, BoundaryError) and "a prompt too long" in str(refused)
        policy.refresh()
        policy.reset()
        for died in ask(policy, 666) + ask(policy, 1):  # not one failed episode after the other
            assert isinstance(died, UserError)
            assert "vLLM ended with status 1: EngineDeadError: EngineCore" in died.what
            assert died.fix == "correct what it says, or set --rollout.sampler embedded"
    finally:
        policy.close()


def test_what_vllm_says_when_it_cannot_start_is_one_clean_message(model, vllm):
    broken = vllm.parent / "broken"
    with pytest.raises(UserError) as told:
        VllmPolicy(model, str(broken), VllmOptions(cache_gib=0.25))
    assert "vLLM ended with status 1" in told.value.what
    assert "no kernel" in told.value.what and "\x1b" not in told.value.what
    # A vLLM that cannot be imported is noticed although nobody has said yet what to start.
    write_vllm(
        vllm.parent / "site", **{"v1/engine/async_llm.py": "raise ImportError('no libcuda')"}
    )
    with pytest.raises(UserError, match="ImportError: no libcuda"):
        VllmPolicy(model, str(vllm), VllmOptions(cache_gib=0.25))


def test_a_cache_without_room_for_a_context_is_refused_before_vllm_starts(model, vllm):
    process = VllmProcess()
    with pytest.raises(UserError) as told:
        VllmPolicy(model, str(vllm), VllmOptions(cache_gib=0.001), process)
    assert "holds no context" in told.value.what and "--model.cache-gib" in told.value.fix
    assert process.process.poll() is not None or process.process.wait(10) is not None
    assert not (vllm / "settings.json").exists()


def test_weights_that_do_not_fit_into_shared_memory_name_the_fix(model, vllm, monkeypatch):
    policy = VllmPolicy(model, str(vllm), VllmOptions(cache_gib=0.25))
    nowhere = vllm / "shm"
    nowhere.mkdir()
    monkeypatch.setattr(vllm_policy, "SHARED_MEMORY", nowhere)

    def full(*_given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(vllm_policy, "save_file", full)
    try:
        with pytest.raises(UserError) as told:
            policy.refresh()
    finally:
        policy.close()
    assert "No space left on device" in told.value.what and str(nowhere) in told.value.what
    assert "--shm-size" in told.value.fix and not os.listdir(nowhere)


def test_on_a_cpu_no_prompt_is_split_and_no_graph_recorded(model, vllm):
    policy = VllmPolicy(model, str(vllm), VllmOptions(cache_gib=0.25, sequences=16))
    policy.close()
    settings = json.loads((vllm / "settings.json").read_text())
    assert not settings["enable_chunked_prefill"] and settings["enforce_eager"]
    assert settings["max_num_batched_tokens"] >= settings["max_model_len"] == policy.window
    assert "cudagraph_capture_sizes" not in settings and settings["max_num_seqs"] == 16


def test_a_vllm_that_dies_ends_a_run_with_its_last_words(vllm, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SCRIPTED_DEATH", "1")
    given = ["train", "demo", "--rollout.sampler", "vllm", "--folder", str(tmp_path / "runs"),
             "--model.path", str(shutil.copytree(DEMO_MODEL, tmp_path / "base")),
             "--steps", "1", "--rollout.tasks", "1", "--rollout.n", "2", "--updates-per-step", "1",
             "--val.no-before-training", "--model.cache-gib", "0.25"]  # fmt: skip
    monkeypatch.setattr(vllm_policy, "SHARED_MEMORY", tmp_path)
    assert main(given) == 2
    *_, what, fix = capsys.readouterr().err.strip().splitlines()
    assert "vLLM ended with status 1: EngineDeadError: EngineCore encountered an issue" in what
    assert fix.strip() == "fix: correct what it says, or set --rollout.sampler embedded"


def test_a_model_that_cannot_be_loaded_leaves_no_vllm_behind(vllm, tmp_path, monkeypatch):
    monkeypatch.setenv("CHAOS_MARK", str(tmp_path))
    missing = ModelConfig(str(tmp_path / "nothing"), "cpu")
    with pytest.raises(UserError):
        open_vllm(missing, RolloutConfig(sampler="vllm"))
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if marked(path, tmp_path)]


def marked(environ: Path, folder: Path) -> bool:
    try:
        return f"CHAOS_MARK={folder}".encode() in environ.read_bytes().split(b"\0")
    except OSError:  # it ended just now
        return False

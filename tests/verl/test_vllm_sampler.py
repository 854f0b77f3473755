"""vLLM as the embedded engine's sampler: the same tokens and numbers, and the newest weights."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from recollect.config.engine import LoraConfig, ModelConfig
from recollect.errors import BoundaryError, UserError
from recollect.models.model import LoadedModel, load_model
from recollect.models.trie.pack import pack
from recollect.runs.run import read_metrics
from recollect.sampler.dense import LocalPolicy
from recollect.sampler.vllm_policy import VllmOptions, VllmPolicy, logprobs_mode
from recollect.types import Completion, Sampling
from tests.support.widened import widened

pytest.importorskip("vllm")

PROMPTS = [list(range(5, 5 + n)) for n in (4, 9, 20, 33)]


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return widened(tmp_path_factory.mktemp("model") / "wide")


@pytest.fixture(scope="module")
def model(path) -> LoadedModel:
    return load_model(ModelConfig(str(path), "cpu", LoraConfig(rank=2), threads=1))


@pytest.fixture(scope="module")
def policy(model, path):
    policy = VllmPolicy(model, str(path), VllmOptions(cache_gib=0.25, sequences=16))
    yield policy
    policy.close()


def draw(policy, prompts, **settings) -> list[Completion]:
    async def all_of_them() -> list[Completion]:
        given = [
            policy.sample(prompt, Sampling(**{"max_tokens": 12, "seed": i, **settings}))
            for i, prompt in enumerate(prompts)
        ]
        return await asyncio.gather(*given)

    return asyncio.run(all_of_them())


@torch.no_grad()
def scored(model: LoadedModel, prompt: list[int], said: Completion, temperature: float) -> list:
    """Return what the trainer's own pass makes of the tokens."""
    rows = pack([[*prompt, *said.token_ids]], device=model.device)
    logits = model.logits(model.hidden(rows.ids, rows.positions, rows.plan))
    logprobs = (logits / temperature).log_softmax(-1)[len(prompt) - 1 : -1]
    return [float(row[token]) for row, token in zip(logprobs, said.token_ids, strict=True)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_the_trainer(model, policy, temperature):
    for prompt, said in zip(PROMPTS, draw(policy, PROMPTS, temperature=temperature), strict=True):
        assert len(said.token_ids) == len(said.logprobs) > 0
        assert np.allclose(said.logprobs, scored(model, prompt, said, temperature), atol=1e-4)
        ended = said.token_ids[-1] in model.tokenizer.end_ids
        assert said.stop_reason == ("stop" if ended else "length")


def test_greedy_tokens_are_those_of_our_own_sampler(model, policy):
    ours = draw(LocalPolicy(model, 8, cache_bytes=1 << 24), PROMPTS, temperature=0.0)
    theirs = draw(policy, PROMPTS, temperature=0.0)
    assert [said.token_ids for said in theirs] == [said.token_ids for said in ours]
    assert [said.stop_reason for said in theirs] == [said.stop_reason for said in ours]
    for a, b in zip(ours, theirs, strict=True):
        assert np.allclose(a.logprobs, b.logprobs, atol=1e-4)


def test_a_seed_draws_the_same_alone_and_among_others(policy):
    together = draw(policy, PROMPTS)
    assert draw(policy, PROMPTS) == together
    assert draw(policy, PROMPTS[:1])[0].token_ids == together[0].token_ids
    assert draw(policy, PROMPTS, seed=99) != together


def test_a_stop_text_ends_a_reply_and_stays_in_it(model, policy):
    (whole,) = draw(policy, PROMPTS[2:3], temperature=0.0)
    text = model.tokenizer.decode(whole.token_ids[:3])
    if not text.strip():
        pytest.skip("the model begins with blanks")
    (cut,) = draw(policy, PROMPTS[2:3], temperature=0.0, stop=(text,))
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)] and cut.stop_reason == "stop"
    assert text in model.tokenizer.decode(cut.token_ids)


def test_what_vllm_refuses_is_a_failure_of_that_request_alone(policy):
    with pytest.raises(BoundaryError, match="RefusedRequest"):
        draw(policy, [[1] * (policy.window + 1)])
    assert draw(policy, PROMPTS[:1])


def test_the_weights_of_a_step_reach_vllm(model, policy):
    others = set(Path("/dev/shm").glob("recollect-weights-*"))
    before = draw(policy, PROMPTS)
    old = [scored(model, p, said, 1.0) for p, said in zip(PROMPTS, before, strict=True)]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.network.parameters():  # the embedding, which is also the head, too
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    moved = [
        abs(now - was)
        for prompt, said, own in zip(PROMPTS, before, old, strict=True)
        for now, was in zip(scored(model, prompt, said, 1.0), own, strict=True)
    ]
    assert max(moved) > 0.01  # so that the old weights would be noticed
    policy.refresh()
    for prompt, said in zip(PROMPTS, draw(policy, PROMPTS), strict=True):
        assert np.allclose(said.logprobs, scored(model, prompt, said, 1.0), atol=1e-4)
    assert set(Path("/dev/shm").glob("recollect-weights-*")) <= others


def test_which_log_probabilities_are_asked_for():
    assert logprobs_mode(0.7, 1.0) == "processed_logprobs"
    assert logprobs_mode(1.0, 0.9) == "raw_logprobs"
    with pytest.raises(UserError, match="before top-p"):
        logprobs_mode(0.7, 0.9)


def command(path: Path, folder: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "recollect", "train", "demo", "--model.path", str(path)),
        *("--rollout.sampler", "vllm", "--model.cache-gib", "0.25", "--folder", str(folder)),
        *("--rollout.tasks", "8", "--rollout.n", "8", "--updates-per-step", "2"),
        *("--val.tasks", "4", "--val.lengths", "1", "--val.length-tasks", "4", *more),
    ]


def environment(mark: Path) -> dict[str, str]:
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "CHAOS_MARK": str(mark)}
    return os.environ | paths


def marked(mark: Path) -> int:
    """Count the processes that descend from a run."""
    found = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            own = (path / "environ").read_bytes().split(b"\0")
            found += f"CHAOS_MARK={mark}".encode() in own
        except OSError:  # it ended just now
            continue
    return found


@pytest.mark.timeout(600)
def test_two_steps_of_a_run_and_the_end_of_one_that_is_killed(path, tmp_path):
    rate = ("--optim.lr", "5e-3", "--optim.warmup-steps", "0", "--steps", "2")
    done = subprocess.run(
        command(path, tmp_path, *rate),
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = read_metrics(tmp_path / "demo")
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[1]["train/grad_norm"] > 0  # the second step has other weights than the first
    for row in rows[1:]:
        assert row["episodes/failed"] == 0
        # Steps this long would tear sampler and trainer apart, were the weights not sent.
        assert row["train/mismatch"] < 1e-4
    assert marked(tmp_path) == 0

    other = tmp_path / "killed"
    other.mkdir()
    process = subprocess.Popen(
        command(path, other, "--steps", "500"),
        env=environment(other),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    metrics = other / "demo/metrics.jsonl"
    deadline = time.monotonic() + 200
    while not metrics.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    assert marked(other) > 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    while marked(other):
        assert time.monotonic() < deadline, "a process of vLLM outlives the run"
        time.sleep(0.1)

"""What the host of a rollout costs: agents and our sampler in one thread, with a GPU of no cost.

Processor time of a turn of the fold (64 tasks x 16, six chunks, replies of 103 tokens). All that
the device would compute is left out; pages, rows, plans, tokens and answers are the sampler's own.

    python scripts/convert_smollm2.py --out models/smollm2     # of which the tokenizer is used
    python -m benchmarks.sampler_host --model models/smollm2

To compare with another version: PYTHONPATH=OLDER/src:. python -m benchmarks.sampler_host ...
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.rollout import make_tasks
from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.engine import ModelConfig
from recollect.metrics import METRICS
from recollect.models.model import LoadedModel, load_model
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.sampler import rows
from recollect.sampler.paged import PagedPolicy
from recollect.sampler.prefixes import SharedRows
from recollect.train.rollouts import keep_imports
from recollect.types import Sampling

NEW = 103
"""Tokens of a reply."""


class Network:
    """A model whose logits are never looked at."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Leave them out."""
        return hidden


def small_model(tokenizer: Path, folder: Path) -> LoadedModel:
    """Make a model of one small layer with a real vocabulary."""
    hf = AutoTokenizer.from_pretrained(tokenizer, local_files_only=True, trust_remote_code=False)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8192}
    ends = {"bos_token_id": None, "eos_token_id": hf.eos_token_id, "pad_token_id": hf.pad_token_id}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(hf), **sizes, **heads, **ends)).save_pretrained(
        folder
    )
    hf.save_pretrained(folder)
    return load_model(ModelConfig(str(folder), "cpu"))


def without_device(policy: PagedPolicy, vocabulary: int) -> None:
    """Take the device's work out of a sampler; it draws any tokens but those that end a turn."""
    drawn = torch.Generator().manual_seed(0)

    def tokens(*shape: int) -> torch.Tensor:
        return torch.randint(1000, vocabulary, shape, generator=drawn)

    def read(runs: Any) -> torch.Tensor:
        policy._reader._load(runs, len(runs.ids))
        return torch.zeros(len(runs.sizes), 1)

    def picked(logits: torch.Tensor, *_settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return tokens(len(logits)), torch.full((len(logits),), -0.5)

    decoder: Any = policy._extender.decoder
    vars(policy)["_network"] = Network(policy.model)
    vars(policy._reader)["read"] = read
    vars(rows)["pick"] = picked
    vars(decoder)["record"] = vars(decoder)["_extend"] = lambda *_given: None
    decoder.shared = SharedRows(policy.max_running, 3, policy.model.device)
    decoder._tokens.copy_(tokens(*decoder._tokens.shape))
    decoder._logprobs.fill_(-0.5)


def milliseconds(policy: PagedPolicy, options: argparse.Namespace, seed: int) -> float:
    """Return the processor time of a turn, whose chunks were encoded before."""
    tokenizer = policy.model.tokenizer
    tasks = make_tasks(options.tasks, 6, 900, seed)
    for task in tasks:
        tokenizer.encode_ahead(task.chunks)
    speaker = Model(policy, Renderer(tokenizer), True, Sampling(), policy.model.window)
    models, reward = {"memory": speaker, "answer": speaker}, METRICS["sub_exact_match"]
    concurrency = options.tasks * options.group
    rollout = Rollout(FoldAgent(None, NEW, NEW), models, AnswerReward(reward), concurrency)
    began = time.process_time()
    groups = asyncio.run(rollout.groups(tasks, options.group, (0, "bench")))
    seconds = time.process_time() - began
    assert not any(episode.failure for group in groups for episode in group)
    policy.reset()
    return 1000 * seconds / sum(len(e.contexts) for group in groups for e in group)


def main() -> None:
    """Measure some rounds and print the median."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(options.model, Path(folder))
    policy = PagedPolicy(model, options.tasks * options.group, cache_bytes=3 << 30, drafts=0)
    without_device(policy, model.tokenizer.vocab_size)
    keep_imports()
    milliseconds(policy, options, 0)
    found = [milliseconds(policy, options, seed) for seed in range(1, 1 + options.rounds)]
    ms = statistics.median(found)
    print(f"{ms:.3f} ms a turn ({min(found):.3f} to {max(found):.3f}), so that a host allows"
          f" {1000 * NEW / ms:,.0f} new tokens/s")  # fmt: skip


if __name__ == "__main__":
    main()

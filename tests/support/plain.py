"""The loss and its gradient the plain way: one row per sample, transformers' own attention, loops.

Shares no code with the trainer. Float64, so that the error measured is the trainer's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from recollect.config.engine import LossConfig, ModelConfig
from recollect.models.model import LoadedModel, load_model
from recollect.types import Sample
from tests.support.tiny import tiny_model

KINDS = {
    "llama": {},
    "qwen2": {},
    "mistral": {"sliding_window": 5},
    "gemma2": {
        "sliding_window": 4,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 10.0,
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def make_model(folder: Path, kind: str = "llama", **settings) -> LoadedModel:
    """Load a tiny model of a kind as the trainer does."""
    torch.set_num_threads(1)
    path = tiny_model(folder, kind, **KINDS[kind])
    return load_model(ModelConfig(path=str(path), device="cpu", **settings))


def plain_model(folder: Path) -> torch.nn.Module:
    """Load the same weights the way transformers' users do."""
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return plain.double().eval()


def sample(ids: Sequence[int], trained: Sequence[int], advantage: float, **more) -> Sample:
    """Make a sample whose tokens at the depths `trained` are trained."""
    mask = np.zeros(len(ids), dtype=bool)
    mask[list(trained)] = True
    logprobs = np.where(mask, more.pop("logprobs", -2.0), 0.0).astype(np.float32)
    advantages = np.where(mask, advantage, 0.0).astype(np.float32)
    places = {"group": 0, "episode": 0} | more
    return Sample(np.array(ids, dtype=np.int64), mask, advantages, logprobs, **places)


def random_samples(seed: int, count: int = 12, groups: int = 4, words: int = 3) -> list[Sample]:
    """Draw samples that share prefixes of every depth; some are equal, some begin another."""
    rng = np.random.default_rng(seed)
    samples: list[Sample] = []
    for number in range(count):
        ids = rng.integers(0, words, rng.integers(2, 14))
        if samples and rng.random() < 0.7:
            other = samples[rng.integers(len(samples))].token_ids
            ids = np.concatenate([other[: rng.integers(1, len(other) + 1)], ids])
        elif samples and rng.random() < 0.3:
            ids = samples[rng.integers(len(samples))].token_ids
        trained = 1 + np.flatnonzero(rng.random(len(ids) - 1) < 0.5)
        trained = trained if len(trained) else np.array([len(ids) - 1])
        logprobs = -rng.exponential(3.0, len(ids))
        place = {"group": int(rng.integers(groups)), "episode": number // 2}
        advantage = float(rng.choice([-1.5, -0.3, 0.0, 0.4, 2.0]))
        samples.append(sample(ids, trained, advantage, logprobs=logprobs, **place))
    return samples


def plain_logprobs(plain: torch.nn.Module, row: Sample, temperature: float) -> torch.Tensor:
    """Return the logprob of every token of a row but the first."""
    ids = torch.from_numpy(row.token_ids)
    logits = plain(ids[None]).logits[0] / temperature
    return logits.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]


def plain_loss(
    plain: torch.nn.Module,
    samples: Sequence[Sample],
    config: LossConfig,
    weight: Callable[[Sample], float],
    reference: torch.nn.Module | None = None,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Sum over samples and tokens, written out case by case."""
    loss = torch.zeros((), dtype=torch.float64)
    for row in samples:
        new = plain_logprobs(plain, row, temperature)
        if reference is not None:
            with torch.no_grad():
                old = plain_logprobs(reference, row, temperature)
        for depth in np.flatnonzero(row.trained):
            advantage = float(row.advantages[depth])
            ratio = (new[depth - 1] - float(row.logprobs[depth])).exp()
            clipped = min(max(float(ratio.detach()), 1 - config.clip_low), 1 + config.clip_high)
            token = -ratio * advantage
            if -clipped * advantage > float(token.detach()):
                token = torch.tensor(-clipped * advantage)
            if advantage < 0 and float(token.detach()) > -config.dual_clip * advantage:
                token = torch.tensor(-config.dual_clip * advantage)
            if reference is not None:
                d = old[depth - 1] - new[depth - 1]
                token = token + config.kl_coef * (d.exp() - d - 1)
            loss = loss + weight(row) * token
    return loss


def gradients(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients by name, zeros where there are none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in network.named_parameters()
        if p.requires_grad
    }


def relative_error(ours: dict[str, torch.Tensor], plain: dict[str, torch.Tensor]) -> float:
    """Return the largest distance of two gradients of one parameter, by the size of the whole."""
    size = torch.stack([g.double().norm() for g in plain.values()]).norm()
    return max(float((ours[n].double() - g.double()).norm() / size) for n, g in plain.items())

"""The trainer: eats samples, moves the weights. Knows nothing of agents, memories or tasks.

A batch is cut into a fixed number of mini-batches, one optimiser step each, and a mini-batch into
micro-batches of packed tries, whose gradients add up to its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from recollect.config.engine import LossConfig, OptimConfig
from recollect.models.model import LoadedModel
from recollect.models.transfer import put
from recollect.models.trie.pack import plan_micro_batches
from recollect.train.loss import (
    DIVERGENCES,
    LossStats,
    PolicyLoss,
    TrainedTokens,
    aggregate_of,
    policy_loss,
    weigh_apart,
)
from recollect.train.optimiser import Optimiser
from recollect.train.predictions import Predictions, by_sample
from recollect.train.reference import Reference
from recollect.train.rows import OnRow, Row, sequences, tell, with_episode_ratios
from recollect.types import Sample


@dataclass(frozen=True)
class Update:
    """What one optimiser step did."""

    outcome: Literal["applied", "empty", "skipped"]
    """empty: nothing to learn from. skipped: the gradient was not finite."""
    stats: LossStats
    grad_norm: float
    packed: int
    """Tokens computed."""


class Trainer:
    """Train a loaded model on samples.

    Make it while the model has its initial weights: with a KL term and no adapters, the reference
    is a copy of the weights it finds. Load the weights of a checkpoint afterwards.
    """

    def __init__(
        self,
        model: LoadedModel,
        loss: LossConfig,
        optim: OptimConfig,
        updates_per_step: int = 1,
        epochs: int = 1,
        token_budget: int = 16384,
        temperature: float = 1.0,
        share: bool = True,
        local_weight: float = 1.0,
    ) -> None:
        self.model = model
        self.loss = loss
        self.updates_per_step = updates_per_step
        self.epochs = epochs
        """How often a batch is gone through."""
        self.token_budget = token_budget
        self.temperature = temperature
        """The sampler's: logprobs of both are under softmax(logits / temperature)."""
        self.aggregate = aggregate_of(loss)
        self.share = share
        """False computes every row whole: slower, and the same gradient."""
        self.local_weight = local_weight
        """What the loss over samples that are `local` counts beside that over the others."""
        self.optimiser = Optimiser(model, optim)
        self._reference = Reference(model) if loss.kl_coef else None

    def update(self, samples: Sequence[Sample], on_row: OnRow | None = None) -> dict[str, float]:
        """Learn from one batch in exactly `updates_per_step` optimiser steps per epoch.

        `on_row` is called for every row that is learned from, with what the weights made of its
        trained tokens then.
        """
        done = []
        lr = self.optimiser.rate
        parts = split_by_group(samples, self.updates_per_step)
        with self.model.training():
            old: Sequence[np.ndarray | None] = [None] * len(samples)
            if self._remembers:
                old = self._logprobs(samples, self.model)
            for part in parts * self.epochs:
                own = [samples[i] for i in part], [old[i] for i in part]
                done.append(self._update(*own, on_row))
        return {"train/lr": lr, **summarise(done)}

    @property
    def _remembers(self) -> bool:
        """Whether the logprobs of the weights before the batch are computed.

        A batch that is used once needs none: the sampler's are those of the weights that drew it.
        Used again, it is held against the trainer's own, and so is what TIS corrects.
        """
        return self.epochs > 1 or (self.loss.tis_cap > 0 and self.updates_per_step > 1)

    def divergences(self, samples: Sequence[Sample]) -> list[float]:
        """Estimate how far each sample strays from the reference: its tokens' KL, summed."""
        if self._reference is None:
            raise ValueError("without a KL coefficient there is no reference")
        with self._reference.use() as model:
            reference = self._logprobs(samples, model)
        return [
            float(DIVERGENCES[self.loss.kl](torch.from_numpy(own), torch.from_numpy(ref)).sum())
            for own, ref in zip((s.logprobs[s.trained] for s in samples), reference, strict=True)
        ]

    def _logprobs(self, samples: Sequence[Sample], model: LoadedModel) -> list[np.ndarray]:
        """Return the logprobs of every sample's trained tokens, without a gradient."""
        return by_sample(
            samples,
            self.token_budget,
            model.device,
            self.share,
            lambda predicted: predicted.logprobs(model, self.temperature),
        )

    def _update(
        self,
        samples: Sequence[Sample],
        old: Sequence[np.ndarray | None],
        on_row: OnRow | None = None,
    ) -> Update:
        """Take one optimiser step on a mini-batch."""
        trained_B = np.array([int(sample.trained.sum()) for sample in samples], dtype=np.int64)
        episode_B = np.array([sample.episode for sample in samples], dtype=np.int64)
        local_B = np.array([sample.local for sample in samples], dtype=bool)
        # Denominators are the whole mini-batch's, whatever is left out of the forward pass below.
        weight_B = weigh_apart(self.aggregate, trained_B, episode_B, local_B, self.local_weight)
        rows = [Row(*row) for row in zip(samples, weight_B, old, strict=True)]
        useful = [row for row in rows if self._has_gradient(row.sample)]
        if useful and self._has_episode_ratios:
            # An episode's samples meet in no micro-batch, and those without a gradient count too.
            rows = with_episode_ratios(rows, self._logprobs(samples, self.model))
            useful = [row for row in rows if self._has_gradient(row.sample)]
        losses, packed = [], 0
        predicted: list[tuple[list[Row], torch.Tensor]] = []
        for run in plan_micro_batches([row.sample for row in useful], self.token_budget):
            own = [useful[i] for i in run]
            result, logprob_T, tokens = self._backward(own)
            losses.append(result)
            packed += tokens
            if on_row:
                predicted.append((own, logprob_T))
        # Fetched only now: a GPU works on one micro-batch while the next is being packed.
        stats = sum((result.stats for result in losses), LossStats())
        if on_row:
            tell(on_row, predicted)
        if not useful:
            self.optimiser.updates += 1
            return Update("empty", stats, 0.0, packed)
        norm = self.optimiser.step()
        return Update("applied" if math.isfinite(norm) else "skipped", stats, norm, packed)

    @property
    def _has_episode_ratios(self) -> bool:
        """Whether ratios are those of whole episodes, and can differ from 1.

        TIS holds a batch that is used once against the present weights: all of its ratios are 1.
        """
        by_episode = self.loss.kind == "gspo" and self.loss.scope == "episode"
        return by_episode and (self._remembers or not self.loss.tis_cap)

    def _has_gradient(self, sample: Sample) -> bool:
        """Without KL and entropy, an advantage of zero has a gradient of exactly zero."""
        pulled = self._charged or self.loss.entropy_coef
        return bool(sample.trained.any()) and bool(pulled or sample.advantages.any())

    @property
    def _charged(self) -> Reference | None:
        """The reference, if the loss has a KL term."""
        return self._reference if self.loss.kl_in == "loss" else None

    def _backward(self, rows: Sequence[Row]) -> tuple[PolicyLoss, torch.Tensor, int]:
        """Add a micro-batch's share to the gradient; return its loss, logprobs and size."""
        samples = [row.sample for row in rows]
        predicted = Predictions.of(samples, self.model.device, self.share)
        reference_T = entropy_T = None
        if self._charged:
            with torch.no_grad(), self._charged.use() as model:
                reference_T = predicted.logprobs(model, self.temperature)
        if self.loss.entropy_coef:
            both_T2 = predicted.logprobs(self.model, self.temperature, entropy=True)
            logprob_T, entropy_T = both_T2.unbind(-1)
        else:
            logprob_T = predicted.logprobs(self.model, self.temperature)
        trained_B = [int(sample.trained.sum()) for sample in samples]
        weight_B = np.array([row.weight for row in rows])
        old = [row.old for row in rows if row.old is not None]
        sequence = [row.sequence for row in rows if row.sequence is not None]
        number_T = None
        if self.loss.kind == "gspo" and not sequence:
            number_T = put(sequences(samples, self.loss.scope), self.model.device)
        tokens = TrainedTokens(
            logprob_T,
            behaviour_T=self._tensor([sample.logprobs[sample.trained] for sample in samples]),
            advantage_T=self._tensor([sample.advantages[sample.trained] for sample in samples]),
            weight_T=self._tensor([np.repeat(weight_B, trained_B)]),
            reference_T=reference_T,
            old_T=self._tensor(old) if old else None,
            entropy_T=entropy_T,
            sequence_T=number_T,
            sequence_log_ratio_T=self._tensor(sequence) if sequence else None,
        )
        result = policy_loss(self.loss, tokens)
        result.loss.backward()
        result = dataclasses.replace(result, loss=result.loss.detach())
        return result, logprob_T.detach(), len(predicted.packed.ids)

    def _tensor(self, parts: Sequence[np.ndarray]) -> torch.Tensor:
        return put(np.concatenate(parts).astype(np.float32), self.model.device)


def split_by_group(samples: Sequence[Sample], parts: int) -> list[list[int]]:
    """Cut samples into exactly `parts` parts of nearly as many groups each; no group is cut.

    Failed episodes may leave fewer groups than parts; then some parts are empty.
    """
    groups: dict[int, list[int]] = {}
    for i, sample in enumerate(samples):
        groups.setdefault(sample.group, []).append(i)
    bounds = [len(groups) * part // parts for part in range(parts + 1)]
    members = list(groups.values())
    return [
        [i for group in members[begin:end] for i in group]
        for begin, end in itertools.pairwise(bounds)
    ]


def summarise(done: Sequence[Update]) -> dict[str, float]:
    """Name the numbers of a batch's updates."""
    total = sum((update.stats for update in done), LossStats())
    # Until the weights move, trained and sampled policy are one: what differs is arithmetic.
    first = next((update.stats for update in done if update.stats.tokens), LossStats())
    applied = [update.grad_norm for update in done if update.outcome == "applied"]
    losses = {name: value / len(done) for name, value in total.losses.items()}
    measured = {}
    if first.tokens:  # else nothing was computed that could be held against the sampler
        measured = {
            "train/ratio_max": total.ratio_max,
            "train/mismatch": first.means()["behaviour_kl"],
            "train/mismatch_ratio_max": first.ratio_max,
        }
    return {
        **{f"train/{name}": value for name, value in (losses | total.means()).items()},
        **measured,
        "train/grad_norm": sum(applied) / max(len(applied), 1),
        "train/updates": len(done),
        **{
            f"train/updates_{outcome}": sum(update.outcome == outcome for update in done)
            for outcome in ("empty", "skipped")
        },
        "tokens/packed": sum(update.packed for update in done),
    }

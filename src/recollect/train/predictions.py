"""Predictions: the logprobs of trained tokens, every distinct question asked once.

Knows nothing of losses or optimisers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from recollect.models.model import LoadedModel
from recollect.models.transfer import put
from recollect.models.trie.pack import Packed, pack, plan_micro_batches
from recollect.types import Sample

CHUNK = 1024
"""Positions whose logits exist at the same time ..."""
WHOLE = 1 << 24
"""... unless all logits of a micro-batch are fewer numbers than this."""


@dataclass(frozen=True)
class Predictions:
    """The trained tokens of some samples as questions to the model, each asked once.

    A token is predicted from the hidden state of the one before it. Samples that share both share
    the answer; tokens that follow one context share its logits.
    """

    packed: Packed
    """Rows without their last token, which nothing is predicted from."""
    chunks: list[int]
    """Where the predictions of every chunk of contexts begin among the P, and where the last
    end; counted before the arrays travel to a GPU, which would have to be waited for."""
    context_C: torch.Tensor
    """Flat indices of the C tokens that something is predicted from, ascending."""
    which_P: torch.Tensor
    """Which of the C contexts each of P distinct predictions follows, ascending."""
    token_P: torch.Tensor
    """The token whose logprob is asked."""
    prediction_T: torch.Tensor
    """Which of the P each trained token is, sample after sample."""

    @classmethod
    def of(cls, samples: Sequence[Sample], device: torch.device, share: bool) -> Predictions:
        """Pack the samples and find what is asked of them."""
        if any(sample.trained[0] for sample in samples):
            raise ValueError("a sample's first token cannot be trained: nothing comes before it")
        at = [np.flatnonzero(sample.trained) for sample in samples]
        rows = [s.token_ids[: own[-1]] for s, own in zip(samples, at, strict=True)]
        packed = pack(rows, device, share)
        context_T = np.concatenate([i[own - 1] for i, own in zip(packed.index, at, strict=True)])
        token_T = np.concatenate([s.token_ids[own] for s, own in zip(samples, at, strict=True)])
        base = int(token_T.max()) + 1
        asked_P, prediction_T = np.unique(context_T * base + token_T, return_inverse=True)
        context_C, which_P = np.unique(asked_P // base, return_inverse=True)
        bounds = [*range(0, len(context_C), CHUNK), len(context_C)]
        arrays = (context_C, which_P, asked_P % base, prediction_T)
        chunks = np.searchsorted(which_P, bounds).tolist()
        return cls(packed, chunks, *(put(x, device) for x in arrays))

    def logprobs(
        self, model: LoadedModel, temperature: float, entropy: bool = False
    ) -> torch.Tensor:
        """Return the logprob of every trained token (T,), with its gradient if that is enabled.

        With `entropy`, that of the prediction is beside it: (T, 2).
        """
        with model.autocast:
            packed = self.packed
            hidden_C = model.hidden(packed.ids, packed.positions, packed.plan, self.context_C)
            if len(hidden_C) * model.tokenizer.vocab_size <= WHOLE:
                logprob_P = _predict(
                    model, hidden_C, self.which_P, self.token_P, temperature, entropy
                )
                return logprob_P[self.prediction_T]
            parts = []
            predict = torch.compile(_predict, dynamic=True) if model.compile else _predict
            for first, (begin, end) in zip(
                range(0, len(hidden_C), CHUNK), itertools.pairwise(self.chunks), strict=True
            ):
                which, token = self.which_P[begin:end] - first, self.token_P[begin:end]
                # Recomputed in the backward pass, so that logits of one chunk exist at a time.
                parts.append(
                    checkpoint(
                        predict, model, hidden_C[first : first + CHUNK], which, token, temperature,
                        entropy, use_reentrant=False, preserve_rng_state=False,
                    )
                )  # fmt: skip
            return torch.cat(parts)[self.prediction_T]

    def values(self, critic: LoadedModel) -> torch.Tensor:
        """Return what a critic expects where every trained token is drawn (T,), float32.

        Its head has one output, and what it says of a context holds for all tokens that follow it.
        """
        with critic.autocast:
            packed = self.packed
            hidden_C = critic.hidden(packed.ids, packed.positions, packed.plan, self.context_C)
        # Outside autocast: bf16 would round a value of 0.5 to the next 0.002.
        value_C = critic.network.get_output_embeddings()(hidden_C.float())[:, 0]
        return value_C[self.which_P][self.prediction_T]


def by_sample(
    samples: Sequence[Sample],
    token_budget: int,
    device: torch.device,
    share: bool,
    ask: Callable[[Predictions], torch.Tensor],
) -> list[np.ndarray]:
    """Ask for a number at every trained token, without a gradient; return one array per sample."""
    found = [np.empty(0, dtype=np.float32)] * len(samples)
    asked = [i for i, sample in enumerate(samples) if sample.trained.any()]
    for run in plan_micro_batches([samples[i] for i in asked], token_budget):
        part = [asked[i] for i in run]
        predicted = Predictions.of([samples[i] for i in part], device, share)
        with torch.no_grad():
            number_T = ask(predicted).float().cpu().numpy()
        ends = np.cumsum([samples[i].trained.sum() for i in part])
        for i, own in zip(part, np.split(number_T, ends[:-1]), strict=True):
            found[i] = own
    return found


def _predict(
    model: LoadedModel,
    hidden_C: torch.Tensor,
    which_P: torch.Tensor,
    token_P: torch.Tensor,
    temperature: float,
    entropy: bool = False,
) -> torch.Tensor:
    logits_CV = model.logits(hidden_C)
    if temperature != 1.0:
        logits_CV = logits_CV / temperature
    total_C = logits_CV.logsumexp(-1)
    logprob_P = logits_CV[which_P, token_P] - total_C[which_P]
    if not entropy:
        return logprob_P
    # H = log Z - E[logit]
    entropy_C = total_C - (logits_CV.softmax(-1) * logits_CV).sum(-1)
    return torch.stack([logprob_P, entropy_C[which_P]], -1)

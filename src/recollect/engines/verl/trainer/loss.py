"""The embedded engine's loss inside verl, for what verl's own does not offer.

verl's vanilla loss with `token-mean` is ours with `ppo` and `token_mean`. Everything else (other
weighings, whose means must not count padding, and other surrogates) is computed here, from weights
of tokens that the trainer puts into the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from recollect.config.engine import LossConfig
from recollect.errors import UserError
from recollect.train.loss import TrainedTokens, policy_loss

WEIGHTS = "token_weights"
"""The field of a row: for every token of its response, its share in the mini-batch's loss."""


def is_native(loss: LossConfig) -> bool:
    """Tell whether verl's own loss is the same."""
    return loss.kind == "ppo" and loss.aggregate == "token_mean"


def refuse(loss: LossConfig) -> None:
    """Refuse what cannot be computed from the rows of one process."""
    if loss.kind == "gspo" and loss.scope == "episode":
        raise UserError(
            "an episode's contexts are spread over processes, which gspo would have to compare",
            "set --loss.scope to turn or context",
        )


def ours(
    model_output: dict[str, Any],
    data: Any,
    dp_group: Any = None,
    *,
    config: LossConfig,
    remembers: bool,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Compute the loss of a micro-batch, times the ranks, by which gradients will be divided.

    With `remembers`, ratios are against the trainer's own weights before the batch.
    """
    logprob_BT = no_padding_2_padding(model_output["log_probs"], data)
    entropy = model_output.get("entropy")
    entropy_BT = None if entropy is None else no_padding_2_padding(entropy, data)
    ranks = data["dp_size"]
    optional = ("ref_log_prob", "old_log_probs")
    names = ["response_mask", "advantages", "rollout_log_probs", WEIGHTS]
    rows = data.select(*names, *(name for name in optional if name in data)).to_padded_tensor()
    mask_BT = rows["response_mask"].bool()
    charged = bool(config.kl_coef) and config.kl_in == "loss"
    if not mask_BT.any():
        # verl's own loss divides by 0 where a whole mini-batch is padding, and verl then takes no
        # optimiser step; 0 would be a step along Adam's averages.
        nothing = 0.0 if data["batch_num_tokens"] else float("nan")
        spoken = entropy_BT is not None and bool(config.entropy_coef)
        return logprob_BT.sum() * nothing, _reported(
            dict.fromkeys(_names(charged, spoken), 0.0), ranks
        )
    tokens = TrainedTokens(
        logprob_T=logprob_BT[mask_BT],
        behaviour_T=rows["rollout_log_probs"][mask_BT],
        advantage_T=rows["advantages"][mask_BT],
        weight_T=rows[WEIGHTS][mask_BT],
        reference_T=rows["ref_log_prob"][mask_BT] if charged else None,
        old_T=rows["old_log_probs"][mask_BT] if remembers else None,
        entropy_T=entropy_BT[mask_BT] if entropy_BT is not None and config.entropy_coef else None,
        sequence_T=sequences(mask_BT, config) if config.kind == "gspo" else None,
    )
    result = policy_loss(config, tokens)
    losses = {name: value for name, value in result.losses.items() if name != "loss"}
    return result.loss * ranks, _reported(losses, ranks)


def _names(charged: bool, spoken: bool) -> list[str]:
    """Name the parts of a loss: every process must report the same ones, or verl stops."""
    return ["pg_loss", *["kl_loss"] * charged, *["entropy_loss"] * spoken]


def _reported(losses: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    return {
        f"actor/{name}": Metric(value=value * ranks, aggregation=AggregationType.SUM)
        for name, value in losses.items()
    }


def sequences(mask_BT: torch.Tensor, config: LossConfig) -> torch.Tensor:
    """Number the sequence of every trained token: its row, or its run of sampled tokens in it."""
    row_BT = torch.arange(len(mask_BT), device=mask_BT.device)[:, None].expand_as(mask_BT)
    if config.scope == "context":
        return torch.unique(row_BT[mask_BT], return_inverse=True)[1]
    begins_BT = mask_BT & ~torch.nn.functional.pad(mask_BT, (1, 0))[:, :-1]
    return begins_BT.flatten().cumsum(0).view_as(mask_BT)[mask_BT] - 1


def row_weights(
    aggregate: Any, trained_B: np.ndarray, episode_B: np.ndarray, parts: list[list[int]]
) -> np.ndarray:
    """Return the weight of each row's tokens in the mini-batch that it is in; padding has 0."""
    weight_B = np.zeros(len(trained_B))
    for part in parts:
        if part:
            weight_B[part] = aggregate(trained_B[part], episode_B[part])
    return weight_B

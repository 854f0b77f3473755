"""How the episodes of a batch are compared, as the settings say: charges, then advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from recollect import advantages
from recollect.config.train import TrainConfig
from recollect.rollout import Group
from recollect.samples import make_samples, samples_of
from recollect.train.shaping import charged, overlong_charge
from recollect.types import Sample

ESTIMATORS: dict[str, advantages.Estimator] = {
    "grpo": advantages.grpo,
    "grpo_std": partial(advantages.grpo, by_std=True),
    "rloo": advantages.rloo,
    "reinforce_pp": advantages.raw,
    "reinforce_pp_baseline": advantages.grpo,
    "gae": advantages.raw,  # the critic compares, token by token
}
WHITENED = ("reinforce_pp", "reinforce_pp_baseline", "gdpo")
"""Those that are compared once more, over the whole batch."""
Divergences = Callable[[Sequence[Sample]], Sequence[float]]
"""How far each sample strays from the reference: its tokens' KL, summed."""


def compare(config: TrainConfig, groups: list[Group]) -> list[list[list[float]]]:
    """Return the advantages of a batch: one per context of every episode of every group."""
    failed = config.rollout.failure_reward
    if config.advantage == "gdpo":
        found = [advantages.gdpo(group, config.components, failed) for group in groups]
    else:
        estimator = ESTIMATORS[config.advantage]
        if failed is None and estimator is advantages.raw:
            failed = advantages.batch_lowest(groups)  # what all of them are compared by
        found = [advantages.group_advantages(group, estimator, failed) for group in groups]
    if config.advantage in WHITENED:
        found = advantages.whitened(groups, found)
    share = config.outcome_share
    if share < 1:
        steps = [advantages.step_advantages(group) for group in groups]
        found = [advantages.mixed(*own, share) for own in zip(found, steps, strict=True)]
    return [advantages.weighted(own, config.negative_weight) for own in found]


def learned_from(config: TrainConfig, groups: Sequence[Group]) -> list[Group]:
    """Return the groups that a step learns from: with refills, those whose rewards differ.

    A critic would take an advantage of 0 for a reward: it does not see a lone survivor at all.
    """
    if config.advantage == "gae":
        return [group for group in groups if advantages.can_compare(group)]
    if not config.rollout.refills:
        return list(groups)
    return [group for group in groups if differs(config, group)]


def split_local(groups: Sequence[Group]) -> tuple[list[Group], list[Group]]:
    """Tell groups of whole episodes from those that were run again from a fork."""
    local = [group for group in groups if group[0].forked]
    return [group for group in groups if not group[0].forked], local


def make_batch(config: TrainConfig, whole: Sequence[Group], local: Sequence[Group]) -> list[Sample]:
    """Compare whole episodes, and those of each fork among themselves; make samples of all.

    The trainer adds up the losses of both (LoGo: L = L_global + lambda L_local). Samples of one
    task stay together.
    """
    first: dict[str, int] = {}
    for number, group in enumerate(whole):
        first.setdefault(group[0].task.id, number)
    numbers = [*range(len(whole)), *(first[group[0].task.id] for group in local)]
    found = [*compare(config, list(whole)), *compare(config, list(local))]
    return samples_of([*whole, *local], found, numbers)


def differs(config: TrainConfig, group: Group) -> bool:
    """Tell whether the episodes of a group did differently well.

    Some A_i != 0, of what is compared: outcomes, GDPO's components, and steps where these count.
    """
    failed = config.rollout.failure_reward
    if config.advantage == "gdpo":
        found = advantages.gdpo(group, config.components, failed)
    else:
        found = advantages.group_advantages(group, advantages.grpo, failed)
    if config.outcome_share < 1:
        found = [*found, *advantages.step_advantages(group)]
    return any(advantage for own in found for advantage in own)


def charge(
    config: TrainConfig, divergences: Divergences, groups: list[Group]
) -> tuple[list[Group], dict[str, float]]:
    """Lower rewards by what the settings charge for; what was paid comes with them.

    R - overlong.charge mean over replies of overlong - kl_coef sum over trained tokens t of kl_t,
    kl_t by `loss.kl` between the policy that drew t and the reference.
    """
    episodes = [episode for group in groups for episode in group]
    paid: dict[str, np.ndarray] = {}
    if config.overlong.limit:
        limit, margin = config.overlong.limit, config.overlong.margin
        paid["charge/overlong"] = config.overlong.charge * np.array(
            [overlong_charge(episode, limit, margin) for episode in episodes]
        )
    if config.loss.kl_coef and config.loss.kl_in == "reward":
        samples = make_samples(groups, advantages.grpo)
        paid["charge/kl"] = config.loss.kl_coef * np.bincount(
            [sample.episode - 1 for sample in samples],  # counted from 1, failed ones included
            weights=divergences(samples),
            minlength=len(episodes),
        )
    if not paid:
        return groups, {}
    total = iter(sum(paid.values(), np.zeros(len(episodes))).tolist())
    means = {name: float(own.mean()) if len(own) else 0.0 for name, own in paid.items()}
    return charged(groups, [[next(total) for _ in group] for group in groups]), means

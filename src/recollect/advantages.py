"""Advantages: how much better an episode did than its siblings.

Pure functions. An estimator sees the rewards of one group, one number per episode, and returns
what to subtract from and divide each by. An episode counts once in its group however many contexts
it had. One that the agent failed earns the lowest reward; one that failed otherwise is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from recollect.errors import UserError
from recollect.types import Context, Episode


@dataclass(frozen=True)
class Baseline:
    """A = (reward - center) / scale, for each of the G episodes of a group."""

    center_G: np.ndarray
    scale: float = 1.0


Estimator = Callable[[np.ndarray], Baseline]


def grpo(rewards_G: np.ndarray, by_std: bool = False, epsilon: float = 1e-6) -> Baseline:
    """A_i = r_i - mean(r), divided by std(r) + epsilon if `by_std`.

    The standard deviation is the sample's (G - 1). MemAgent's stable recipe does not divide. A
    group of one has nothing to be compared with: mean 0 and deviation 1, as in the references.
    """
    if len(rewards_G) == 1:
        return Baseline(np.zeros(1))
    center_G = np.full(len(rewards_G), mean(rewards_G))
    return Baseline(center_G, float(rewards_G.std(ddof=1)) + epsilon if by_std else 1.0)


def rloo(rewards_G: np.ndarray) -> Baseline:
    """A_i = r_i - mean of the other rewards (leave one out)."""
    if len(rewards_G) == 1:
        return Baseline(np.zeros(1))
    first = rewards_G[0]  # as in mean(): equal rewards give exactly zero
    rest_G = rewards_G - first
    return Baseline(first + (rest_G.sum() - rest_G) / (len(rewards_G) - 1))


def raw(rewards_G: np.ndarray) -> Baseline:
    """A_i = r_i: siblings are not compared (REINFORCE++ compares the whole batch afterwards)."""
    return Baseline(np.zeros(len(rewards_G)))


def mean(values: np.ndarray) -> float:
    """Average so that equal values have exactly that mean.

    Three times 0.1 averages to a little more than 0.1, and a group in which nobody did better would
    be trained on rounding errors instead of being skipped.
    """
    return float(values[0] + (values - values[0]).mean())


def group_advantages(
    group: Sequence[Episode], estimator: Estimator, failed: float | None = None
) -> list[list[float]]:
    """Return one advantage per context of every episode; 0 for those that are left out.

    Contexts are compared within their stratum. An episode enters a stratum with the mean of its
    contexts' rewards there, once. A context in which nothing was sampled is in no statistic. Where
    the agent failed, contexts earn `failed`, by default the `lowest` of their stratum.
    """
    advantages = [[0.0] * len(episode.contexts) for episode in group]
    for members in _strata(group):
        rewards = _rewards(group, members, failed)
        entries = [mean(np.array(own)) for own in rewards.values()]
        if len(entries) < min(2, len(group)):
            entries *= 2  # alone where siblings could be: its own equal
        baseline = estimator(np.array(entries))
        for g, (i, js) in enumerate(members.items()):
            for j, reward in zip(js, rewards[i], strict=True):
                advantages[i][j] = float((reward - baseline.center_G[g]) / baseline.scale)
    return advantages


def lowest(rewards: Iterable[float]) -> float:
    """Return what a failure of the agent's own earns: the lowest of these, and at most 0."""
    return min((0.0, *rewards))


def batch_lowest(groups: Iterable[Sequence[Episode]]) -> float:
    """Return the lowest of a batch, for estimators that compare across groups."""
    return lowest(
        _reward(group[i], group[i].contexts[j])
        for group in groups
        for members in _strata(group)
        for i, js in members.items()
        for j in js
        if group[i].ok
    )


def can_compare(group: Sequence[Episode]) -> bool:
    """Tell whether an episode has a sibling left, or is alone by design."""
    return sum(episode.counts for episode in group) >= min(2, len(group))


def gdpo(
    group: Sequence[Episode], components: Sequence[str], failed: float | None = None
) -> list[list[float]]:
    """A_i = sum over components k of (r_ik - mean(r_k)) / (std(r_k) + epsilon), k in `scores`.

    A component that varies little counts as much as one that varies much, which their sum would
    drown. All contexts of an episode share its advantage. Follow it with `whitened`.
    """
    total = [[0.0] * len(episode.contexts) for episode in group]
    for name in components:
        single = [_with_reward(episode, name) if episode.ok else episode for episode in group]
        part = group_advantages(single, partial(grpo, by_std=True), failed)
        total = [
            [a + b for a, b in zip(*own, strict=True)] for own in zip(total, part, strict=True)
        ]
    return total


def step_advantages(group: Sequence[Episode]) -> list[list[float]]:
    """A_it = r_it - mean over siblings of r_.t, summed over the named step rewards r.

    Step t is an episode's t-th context of a stratum. It is compared among those who got there and
    have that reward; alone there, an episode has nothing to be compared with.
    """
    advantages = [[0.0] * len(episode.contexts) for episode in group]
    for members in _strata(group):
        steps: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        for i, js in members.items():
            for t, j in enumerate(js):
                for name in group[i].contexts[j].steps:
                    steps[t, name].append((i, j))
        for (_, name), places in steps.items():
            rewards = np.array([group[i].contexts[j].steps[name] for i, j in places])
            for (i, j), reward in zip(places, rewards - mean(rewards), strict=True):
                advantages[i][j] += float(reward)
    return advantages


def mixed(
    outcome: Sequence[Sequence[float]], steps: Sequence[Sequence[float]], share: float
) -> list[list[float]]:
    """A = share * A_outcome + (1 - share) * A_step (ReMemR1 takes a share of 0.8)."""
    return [
        [share * a + (1.0 - share) * b for a, b in zip(*own, strict=True)]
        for own in zip(outcome, steps, strict=True)
    ]


def weighted(advantages: Sequence[Sequence[float]], negative: float) -> list[list[float]]:
    """A' = A where an episode did better than its siblings, `negative` * A where it did worse.

    With 0, only what did better is learned from (RAFT): a reply that is nearly certain cannot be
    pushed far, whereas one that is improbable can be pushed down without end.
    """
    return [[a if a >= 0 else negative * a for a in own] for own in advantages]


def whitened(
    groups: Sequence[Sequence[Episode]],
    advantages: Sequence[Sequence[Sequence[float]]],
    epsilon: float = 1e-8,
) -> list[list[list[float]]]:
    """A' = (A - mean(A)) / sqrt(var(A) + epsilon) over the whole batch (REINFORCE++).

    An episode counts once in each of its strata, with the mean of its contexts there: unlike where
    statistics are taken over tokens, those who write more do not weigh more. The variance is the
    sample's (n - 1). A batch of one episode stays as it is.
    """
    entries = np.array(
        [
            mean(np.array([own[i][j] for j in js]))
            for group, own in zip(groups, advantages, strict=True)
            for members in _strata(group)
            for i, js in members.items()
        ]
    )
    result = [[list(episode) for episode in own] for own in advantages]
    if not len(entries) or sum(len(group) for group in groups) == 1:
        return result
    if len(entries) == 1:
        entries = np.repeat(entries, 2)  # alone where others could be: its own equal
    center, scale = mean(entries), float(np.sqrt(entries.var(ddof=1) + epsilon))
    if abs(center) < 1e-9 * scale:
        center = 0.0  # groups were centred: only rounding is left, and it must teach nothing
    for group, own in zip(groups, result, strict=True):
        for members in _strata(group):
            for i, js in members.items():
                for j in js:
                    own[i][j] = (own[i][j] - center) / scale
    return result


def gae(
    rewards_T: np.ndarray, values_T: np.ndarray, gamma: float = 1.0, lam: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Generalised advantage estimation over the T sampled tokens of one context; also the returns.

    d_t = r_t + gamma V_(t+1) - V_t, with V_(T+1) = 0
    A_t = d_t + gamma lam A_(t+1), with A_(T+1) = 0
    return_t = A_t + V_t, which the critic learns to expect

    V_t is expected where token t is drawn. What comes between two replies of a context (a tool's
    result) was not drawn: it has no t. With gamma = lam = 1, A_t = (all rewards from t on) - V_t.
    """
    rewards_T, values_T = (np.asarray(x, dtype=np.float64) for x in (rewards_T, values_T))
    next_T = np.append(values_T[1:], 0.0)[: len(values_T)]
    delta_T = rewards_T + gamma * next_T - values_T
    advantage_T = np.empty_like(delta_T)
    later = 0.0
    for t in reversed(range(len(delta_T))):
        later = delta_T[t] + gamma * lam * later
        advantage_T[t] = later
    return advantage_T, advantage_T + values_T


def whitened_tokens(advantages: Sequence[np.ndarray], epsilon: float = 1e-8) -> list[np.ndarray]:
    """A' = (A - mean(A)) / sqrt(var(A) + epsilon) over all tokens of the batch.

    Each array holds the tokens of one context. The variance is the sample's (n - 1). A lone token
    stays as it is.
    """
    every = np.concatenate([np.empty(0), *advantages])
    if len(every) < 2:
        return [own.copy() for own in advantages]
    center, scale = mean(every), float(np.sqrt(every.var(ddof=1) + epsilon))
    return [(own - center) / scale for own in advantages]


def _strata(group: Sequence[Episode]) -> list[dict[int, list[int]]]:
    """Find what is compared: per stratum, which contexts of which episodes learn in it.

    An episode that lost all its siblings is compared with nothing, whatever the estimator.
    """
    strata: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    if not can_compare(group):
        return []
    for i, episode in enumerate(group):
        if episode.counts:
            for j, context in enumerate(episode.contexts):
                if context.trainable and context.turns:
                    strata[context.stratum][i].append(j)
    return list(strata.values())


def _rewards(
    group: Sequence[Episode], members: Mapping[int, Sequence[int]], failed: float | None
) -> dict[int, list[float]]:
    """Return, by episode, the rewards of a stratum's contexts."""
    earned = {
        i: [_reward(group[i], group[i].contexts[j]) for j in js]
        for i, js in members.items()
        if group[i].ok
    }
    if failed is None:
        failed = lowest(reward for own in earned.values() for reward in own)
    return {i: earned.get(i, [failed] * len(js)) for i, js in members.items()}


def _with_reward(episode: Episode, component: str) -> Episode:
    if component not in episode.scores:
        raise UserError(
            f"no part of the reward is named {component!r}",
            f"set --components to some of {', '.join(sorted(episode.scores))}",
        )
    contexts = [replace(context, reward=None) for context in episode.contexts]
    return replace(episode, reward=episode.scores[component], contexts=contexts)


def _reward(episode: Episode, context: Context) -> float:
    reward = episode.reward if context.reward is None else context.reward
    if reward is None:
        raise ValueError(f"episode {episode.rollout} of task {episode.task.id} has no reward")
    return reward

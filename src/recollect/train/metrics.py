"""Metrics of one training step: numbers about its episodes and its time. Pure functions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from recollect.accuracy import Accuracy, accuracy, by_category
from recollect.advantages import lowest
from recollect.metrics import cluster_scores, mean_interval
from recollect.types import Episode, Failure, Sample, Turn


class Clock:
    """Measure the phases of a step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Charge the time since the last lap to `name`."""
        now = time.perf_counter()
        self.times[f"time/{name}"] = self.times.get(f"time/{name}", 0.0) + now - self._last
        self._last = now


def rollout_metrics(
    groups: Sequence[Sequence[Episode]], failed: float | None = None
) -> dict[str, float]:
    """Summarise the episodes of a step, and those run again from the middle apart from them."""
    local = [group for group in groups if group[0].forked]
    metrics = episode_metrics([group for group in groups if not group[0].forked], failed)
    if local:
        names = ("episodes/total", "episodes/failed", "tokens/sampled", "reward/mean")
        again = episode_metrics(local, failed)
        metrics |= {
            f"local/{name}": again[name] for name in (*names, "groups/mixed") if name in again
        }
    return metrics


def episode_metrics(
    groups: Sequence[Sequence[Episode]], failed: float | None = None
) -> dict[str, float]:
    """Summarise rollouts: per episode, so that long texts weigh no more than short ones.

    Tokens, turns and contexts are those of the model that learns. Rewards are those that training
    compares: what the agent failed earns `failed`, or the lowest reward of its group.
    """
    episodes = [episode for group in groups for episode in group]
    done = [e for e in episodes if e.ok]
    drawn = [turn for e in episodes for turn in learning_turns(e)]
    metrics: dict[str, float] = {
        **failure_metrics(episodes),
        "tokens/sampled": sum(len(turn.token_ids) for turn in drawn),
        "tokens/prompt": sum(turn.start for turn in drawn),
    }
    if done:
        earned = [rewards_of(group, failed) for group in groups]
        rewards = np.array([reward for own in earned for reward in own], dtype=float)
        turns = [turn for e in done for turn in learning_turns(e)]
        contexts = [sum(c.trainable for c in e.contexts) for e in done]
        metrics |= {
            "reward/mean": float(rewards.mean()),
            "reward/std": float(rewards.std()),
            "groups/mixed": float(np.mean([len(set(own)) > 1 for own in earned])),
            "contexts/per_episode": float(np.mean(contexts)),
        }
        if turns:
            metrics |= {
                "tokens/per_turn": float(np.mean([len(t.token_ids) for t in turns])),
                "turns/cut_by_limit": float(np.mean([t.stop_reason == "length" for t in turns])),
            }
        metrics |= score_means(done)
    return metrics


def failure_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Count episodes, and those that failed: in all, by who caused it, and by where."""
    failures = [e.failure for e in episodes if e.failure]
    faults = Counter(failure.fault for failure in failures)
    boundaries = Counter(failure.boundary for failure in failures)
    calls = Counter(failure.kind for failure in failures if at_server(failure))
    return {
        "episodes/total": len(episodes),
        "episodes/failed": len(failures),
        **{f"episodes/failed_by_{name}": count for name, count in sorted(faults.items())},
        **{f"episodes/failed_at_{name}": count for name, count in sorted(boundaries.items())},
        **{f"episodes/failed_at_endpoint/{kind}": calls[kind] for kind in sorted(calls)},
    }


def rewards_of(group: Sequence[Episode], failed: float | None = None) -> list[float]:
    """Return the rewards of a group's episodes as training compares them."""
    earned = [e.reward or 0.0 for e in group if e.ok]
    floor = lowest(earned) if failed is None else failed
    return earned + [floor for e in group if e.counts and not e.ok]


def learning_turns(episode: Episode) -> list[Turn]:
    """Return the turns of the model that learns: those of a fixed one are in no statistic."""
    return [turn for c in episode.contexts if c.trainable for turn in c.turns]


def at_server(failure: Failure) -> bool:
    """Tell whether an episode failed at a call to a server."""
    return failure.boundary == "endpoint"


def call_metrics(failed: Mapping[str, int]) -> dict[str, float]:
    """Name the failed attempts of calls to fixed models, those that were then retried included."""
    return {f"endpoint/failed_calls/{kind}": failed[kind] for kind in sorted(failed)}


def sampler_metrics(counts: Mapping[str, int]) -> dict[str, float]:
    """Name what samplers on a GPU did: steps, tokens of a step, and the guesses that were right."""
    found: dict[str, float] = {}
    if steps := counts.get("steps", 0):
        found = {"sampler/steps": steps, "sampler/tokens_per_step": counts["tokens"] / steps}
    if drafted := counts.get("drafted", 0):
        found["sampler/drafted_per_step"] = drafted / steps
        found["sampler/accepted_per_step"] = counts["accepted"] / steps
        found["sampler/accepted_share"] = counts["accepted"] / drafted
    return found


def sample_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Count what goes into an update."""
    return {
        "samples/total": len(samples),
        "tokens/trained": int(sum(s.trained.sum() for s in samples)),
        "tokens/rows": int(sum(len(s.token_ids) for s in samples)),
    }


OWN = ("reward", "score", "category")
"""What a validation's numbers begin with, beside the categories of its questions."""


def validation_metrics(groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
    """Name a validation's numbers: accuracy in all and by category, rewards and scores.

    A failed episode counts in all of them: as wrong, with the lowest reward of the validation (at
    most 0), and with 0 in every score. One that could not be measured is in none.
    """
    found = _accuracy("val", accuracy(groups))
    for category, result in by_category(groups).items():
        # Data may have a category of the name that is ours.
        place = f"val/category/{category}" if category in OWN else f"val/{category}"
        found |= _accuracy(place, result)
    measured = [e for group in groups for e in group if e.measured]
    if measured:
        floor = lowest(e.reward or 0.0 for e in measured)
        rewards = ((e, e.reward or 0.0 if e.ok else floor) for e in measured)
        named = ((e.task.cluster, e.task.item, reward) for e, reward in rewards)
        mean = mean_interval(cluster_scores(named))
        found |= {
            "val/reward/mean": mean.mean,
            "val/reward/low": mean.low,
            "val/reward/high": mean.high,
        }
        found |= {f"val/{name}": value for name, value in score_means(measured).items()}
    return found


def score_means(episodes: Sequence[Episode]) -> dict[str, float]:
    """Average every named score over the episodes that have it; a failed one has 0 in each."""
    names = sorted({name for e in episodes if e.ok for name in e.scores})
    scores = [e.scores if e.ok else dict.fromkeys(names, 0.0) for e in episodes]
    return {f"score/{n}": float(np.mean([own[n] for own in scores if n in own])) for n in names}


def _accuracy(prefix: str, result: Accuracy) -> dict[str, float]:
    mean = {"accuracy": result.mean, "low": result.low, "high": result.high} if result.n else {}
    counts = {"n": result.n, "failed": result.failed, "unmeasured": result.unmeasured}
    return {f"{prefix}/{name}": value for name, value in {**mean, **counts}.items()}

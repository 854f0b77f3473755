"""The reward of an agent that reads with programs: its answers, less what they cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from recollect import metrics
from recollect.bounds import FINITE, FROM_0, check_bounds
from recollect.memory.base import Memory
from recollect.rewards.answers import AnswerReward
from recollect.rewards.base import Score
from recollect.types import Context, Episode


@dataclass(frozen=True)
class ProgramReward(AnswerReward):
    """Answers, less tokens, calls and programs that did not run.

    With n_c tokens that chat c read and wrote, a calls of `ask`, and the share m of programs that
    were malformed or failed:

        the episode   answers - tokens * sum(n_c) / 1000 - calls * a - malformed * m

    Every chat of a question earns the question's score less these costs. Step rewards, which count
    with `outcome_share` below 1: `program` of a chat that wrote programs is minus the share of them
    that did not run, and `part` of a chat that read a part is the reward for an answer in it.
    """

    metric: metrics.Metric | str = "boxed_match"
    tokens: float = 0.0
    """Charge for a thousand tokens, read or written."""
    calls: float = 0.0
    """Charge for one call of ask."""
    malformed: float = 0.1
    """Times the share of programs that could not be read or failed."""
    part: float = 0.0
    """Reward of a chat that read a part, beside the outcome, if its reply holds an answer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        charges = dict.fromkeys(("tokens", "calls", "malformed"), FROM_0)
        check_bounds("reward", self, **charges, part=FINITE)

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the answers and charge for how they were found."""
        score = await super().__call__(episode, memory)
        total: Counter[str] = Counter()
        for context in episode.contexts:
            total.update(context.counts)
        used = (episode.prompt_tokens + episode.sampled_tokens) / 1000
        broken = _broken(total)
        cost = self.tokens * used + self.calls * total["asks"] + self.malformed * broken
        steps = [self._steps(context) for context in episode.contexts]
        outcomes = [score.reward if own is None else own for own in score.contexts]
        own = [o - cost + s.get("part", 0.0) for o, s in zip(outcomes, steps, strict=True)]
        parts = {
            "programs": float(total["programs"]),
            "asks": float(total["asks"]),
            "unanswered": float(total["unanswered"]),
            "broken": broken,
            "tokens": 1000 * used,
        }
        return replace(
            score,
            reward=score.reward - cost,
            contexts=own,
            steps=steps,
            parts={**score.parts, **parts},
        )

    def _steps(self, context: Context) -> dict[str, float]:
        if context.counts.get("programs"):
            return {"program": -_broken(Counter(context.counts))}
        return {"part": self.part * context.counts.get("useful", 0)} if self.part else {}


def _broken(counts: Counter[str]) -> float:
    """Return the share of programs that did not run to their end."""
    return (counts["malformed"] + counts["failed"]) / max(1, counts["programs"])

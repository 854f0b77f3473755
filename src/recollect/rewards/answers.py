"""Rewards: what an episode earned, computed once, before it is expanded into samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recollect import metrics
from recollect.agents.curator import CuratorAgent
from recollect.agents.resources import Resources
from recollect.bounds import FINITE, check_bounds
from recollect.errors import UserError
from recollect.memory.base import Memory
from recollect.rewards.base import Reward, Score
from recollect.types import Context, Episode, Question


@dataclass(frozen=True)
class AnswerReward:
    """The mean over the questions of how well each answer matches.

    A context that answers one question earns that question's score; all others earn the mean.
    """

    metric: metrics.Metric | str = "boxed_exact_match"
    """How an answer is scored: the name of a metric, or a function."""

    def __post_init__(self) -> None:
        metrics.find_metric(self.metric)

    @property
    def score(self) -> metrics.Metric:
        """The metric as a function."""
        return metrics.find_metric(self.metric)

    def check(self, resources: Resources) -> None:
        """Refuse an agent that gives no answers."""
        if isinstance(resources.agent, CuratorAgent) and not resources.agent.answer:
            raise UserError("the curator gives no answers to reward", "set --agent.answer")

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score every answer against its question's accepted answers."""
        scores = answer_scores(episode, self.score)
        mean = sum(scores) / len(scores)
        own = [None if c.question is None else scores[c.question] for c in episode.contexts]
        return Score(mean, {"answer": mean}, own, scores)


@dataclass(frozen=True)
class AnswerAndTools(AnswerReward):
    r"""Answers, a bonus for boxed ones, and a bonus for tool calls that succeed (UMA's reward).

    With the score s_i of question i's answer, b_i = 1 if it holds a box with something in it, and
    the share u_c of chat c's tool calls that succeeded (0 for a chat without calls):

        outcome_i         s_i + boxed_bonus * b_i
        question chat i   outcome_i + tool_bonus * u_c
        any other chat    mean of all outcomes + tool_bonus * u_c
        the episode       mean of all outcomes + tool_bonus * mean of u_c over its chats

    Where one role learns and the other is fixed, the episode's tool calls are those of its chats
    that learn: what a fixed model does with tools is nothing to be measured here.

    Unlike the published system: a tool that finds nothing has not succeeded, and a call that was
    malformed or refused counts as one that failed; the box may be anywhere in the answer, also
    before its last 300 characters, and an empty one earns nothing; the metric decides whether an
    answer without a box can be right; and numbers are compared as numbers, not as substrings.
    """

    metric: metrics.Metric | str = "value_match"
    boxed_bonus: float = 0.5
    """Reward for an answer in a box, right or wrong."""
    tool_bonus: float = 0.5
    """Times the share of a chat's calls that succeeded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("reward", self, boxed_bonus=FINITE, tool_bonus=FINITE)

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the answers, and every chat for what it did itself."""
        scores = answer_scores(episode, self.score)
        boxed = [float(bool((metrics.boxed(answer) or "").strip())) for answer in episode.answers]
        outcomes = [s + self.boxed_bonus * b for s, b in zip(scores, boxed, strict=True)]
        outcome = sum(outcomes) / len(outcomes)
        shares = [succeeded(context) for context in episode.contexts]
        own = [
            (outcome if c.question is None else outcomes[c.question]) + self.tool_bonus * share
            for c, share in zip(episode.contexts, shares, strict=True)
        ]
        counted = counting(episode.contexts)
        tools = sum(map(succeeded, counted)) / len(counted) if counted else 0.0
        parts = {
            "answer": sum(scores) / len(scores),
            "boxed": sum(boxed) / len(boxed),
            "tools/success": tools,
            **tool_use(episode.contexts),
        }
        return Score(outcome + self.tool_bonus * tools, parts, own, scores)


@dataclass(frozen=True)
class WithMemoryRecall:
    """Any reward, with a step reward for what each rewriting of a text memory did (ReMemR1).

    Where context t wrote memory m_t over m_(t-1): memory_recall = recall(m_t) - recall(m_(t-1)).
    A reward that has step rewards already is left as it is.
    """

    outcome: Reward

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the outcome, then look at every version of the memory."""
        score = await self.outcome(episode, memory)
        if score.steps:
            return score
        gains: dict[str, float] = {}
        before = 0.0
        for op in (op for op in episode.ops if op.kind == "replace"):
            now = memory_recall(op.data["text"], episode.task.questions)
            gains[op.label] = gains.get(op.label, 0.0) + now - before
            before = now
        steps = [
            {"memory_recall": gains[c.label]} if c.label in gains else {} for c in episode.contexts
        ]
        return replace(score, steps=steps, parts={**score.parts, "memory_recall": before})


def memory_recall(text: str, questions: Sequence[Question]) -> float:
    """Average over questions the share of an answer's words that a text contains; the best answer.

    It can be fooled by keywords without sense: read it beside the outcome.
    """
    found = set(metrics.normalise(text).split())
    shares = [
        max(
            (
                sum(word in found for word in words) / len(words)
                for answer in question.answers
                if (words := metrics.normalise(answer).split())
            ),
            default=0.0,
        )
        for question in questions
    ]
    return sum(shares) / len(shares)


def answer_scores(episode: Episode, score: metrics.Metric) -> list[float]:
    """Score every answer of an episode."""
    if not episode.task.questions:
        raise UserError(
            f"task {episode.task.id!r} has no questions, so nothing in it can be rewarded",
            "give every task at least one question, or leave the task out",
        )
    return [
        metrics.score_question(score, answer, question)
        for answer, question in zip(episode.answers, episode.task.questions, strict=True)
    ]


def succeeded(context: Context) -> float:
    """Return the share of a chat's tool calls that did what was asked; 0 without any."""
    calls = context.counts.get("calls", 0)
    return context.counts.get("ok", 0) / calls if calls else 0.0


def counting(contexts: Sequence[Context]) -> list[Context]:
    """Return the chats that statistics are about: those that learn, or all if none does."""
    return [c for c in contexts if c.trainable] or list(contexts)


def tool_use(contexts: Sequence[Context]) -> dict[str, float]:
    """Add up what was counted in the chats that learn, or in all if none does."""
    total: Counter[str] = Counter()
    turns = 0
    for context in counting(contexts):
        total.update(context.counts)
        turns += len(context.turns)
    return {"turns": turns, **{f"tools/{name}": count for name, count in total.items()}}

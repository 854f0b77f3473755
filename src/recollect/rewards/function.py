"""Rewards of your own: a plain function, a class with `__call__`, or an instance of one."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from recollect.agents.base import copied
from recollect.agents.function import check_arguments, made, show, shown
from recollect.errors import OwnMistake, UserError, place_of_function
from recollect.memory.base import Memory
from recollect.metrics import QuestionScore, share_of
from recollect.rewards.base import Reward, Score
from recollect.types import Episode, MemoryOp, Turn

LARGEST = 1e12
"""What rewards may come to: squares of far larger ones are infinite, and so is their spread."""
RewardFunction = Callable[[Episode, Any], Awaitable[Score | float] | Score | float]
HOW = (
    "write `def name(episode, memory)` that returns a number or a Score, or a frozen dataclass with"
    " `async def __call__(self, episode, memory)`"
)


@dataclass(frozen=True)
class FunctionReward:
    """A function as a reward, async or not."""

    function: RewardFunction

    def __repr__(self) -> str:
        return f"FunctionReward({shown(self.function)})"

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Call the function; a number is the episode's reward."""
        found = self.function(episode, memory)
        return as_score(await found if inspect.isawaitable(found) else found, self.function)


@dataclass(frozen=True)
class WithAnswers:
    """A user's reward, with how well the questions were answered beside it where it does not say.

    Held-out accuracy is read from there.
    """

    reward: Reward
    score: QuestionScore

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the episode, then its answers."""
        shown = _copied(episode)
        # A memory hands its edits out, too.
        episode.ops = [_copied_op(op) for op in episode.ops]
        given: Any = self.reward(shown, memory)  # which need not be async
        found = as_score(await given if inspect.isawaitable(given) else given, self.reward)
        wrong = _changed(shown, episode) or _wrong(found, episode)
        if wrong:
            own = self.reward.function if isinstance(self.reward, FunctionReward) else self.reward
            raise OwnMistake(f"the reward {wrong}", place_of_function(own))
        parts, shares = dict(found.parts), [share_of(value) for value in found.answers]
        if "answer" in parts:
            parts["answer"] = share_of(parts["answer"])
        elif episode.task.questions:
            pairs = zip(episode.answers, episode.task.questions, strict=True)
            scores = [float(self.score(answer, question)) for answer, question in pairs]
            parts["answer"] = sum(scores) / len(scores)
            shares = shares or scores
        return replace(found, parts=parts, answers=shares)


def _copied(episode: Episode) -> Episode:
    """Copy an episode but for what nobody can change in place: texts and tokens."""
    task = episode.task
    chunks = list(task.chunks) if isinstance(task.chunks, list) else task.chunks
    contexts = [
        replace(
            context,
            turns=[Turn(t.start, t.token_ids, t.logprobs, t.stop_reason) for t in context.turns],
            counts=dict(context.counts),
            steps=dict(context.steps),
        )
        for context in episode.contexts
    ]
    return replace(
        episode,
        task=replace(task, chunks=chunks, meta=copied(task.meta)),
        contexts=contexts,
        answers=list(episode.answers),
        ops=list(episode.ops),
        scores=dict(episode.scores),
    )


def _copied_op(op: MemoryOp) -> MemoryOp:
    data = {k: value if k == "token_ids" else copied(value) for k, value in op.data.items()}
    return replace(op, data=data)


def _changed(shown: Episode, kept: Episode) -> str:
    """Say what a reward changed of the episode that it was shown; nothing of it is kept."""
    if shown.task != kept.task or shown.answers != kept.answers:
        return "changed the answers or the task, which are measured: copy them"
    if shown.contexts != kept.contexts:
        return "changed the list of contexts, which are trained, or what is in it: copy it"
    if shown.ops != kept.ops:
        return "changed the edits of the memory, which are stored: copy them"
    return ""


def _wrong(found: Score, episode: Episode) -> str:
    """Say what is wrong with a score: it must be finite, and answers are scored by shares."""
    rewards = [found.reward, *(own for own in found.contexts if own is not None)]
    rewards += [reward for step in found.steps for reward in step.values()]
    shares = [*found.answers, *(found.parts[name] for name in ("answer",) if name in found.parts)]
    count, contexts = len(episode.task.questions), len(episode.contexts)
    sizes = (
        ("scores of answers", found.answers, count),
        ("rewards of contexts", found.contexts, contexts),
        ("rewards of steps", found.steps, contexts),
    )
    for name in (*found.parts, *(name for step in found.steps for name in step)):
        if not isinstance(name, str) or not name.isprintable() or not name.strip():
            return f"returned a part named {name!r:.80}: a name must be text that can be printed"
    for value in (*rewards, *found.parts.values()):
        if not _is_finite(value):
            return f"returned {value!r:.80}, which is no finite number up to {LARGEST:g}"
    for value in shares:
        if math.isnan(share_of(value)):
            return f"returned {value!r:.80} for an answer, not a number from 0 to 1"
    for what, given, wanted in sizes:
        if len(given) not in (0, wanted):
            return f"returned {len(given)} {what}, not {wanted}"
    return ""


def _is_finite(value: Any) -> bool:
    size: Any = abs(value) if isinstance(value, numbers.Real) else math.inf
    return bool(size <= LARGEST)


def as_score(found: Any, function: Any) -> Score:
    """Take a number for a Score; refuse what is neither."""
    if isinstance(found, Score):
        return found
    if isinstance(found, numbers.Real):
        number: Any = found
        return Score(float(number) if _is_finite(number) else number)  # which is refused later
    what = f"the reward returned {found!r:.80}, neither a number nor a Score"
    raise OwnMistake(what, place_of_function(function))


def as_reward(item: Any) -> Reward:
    """Make a reward of a function, a class or an instance; refuse anything else."""
    found = made(item, "reward", HOW) if inspect.isclass(item) else item
    if not callable(found):
        raise UserError(f"{show(item)} is not a reward: it cannot be called", HOW)
    check_arguments(found, show(item), ("episode", "memory"), HOW)
    plain = inspect.isroutine(found) or isinstance(found, functools.partial)
    return FunctionReward(found) if plain else found

"""What if: ask again from a memory, or roll on from a turn, with the run's own model.

Recorded replies are given again until the turn, so that any agent is where it was then; from there
on its model is sampled. A memory of one text may be edited by hand first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from recollect.agents.base import Agent, open_memory, sees_answers
from recollect.chat.chat import Chats, Model
from recollect.chat.policy import Policy, Speaker
from recollect.errors import UserError
from recollect.memory.base import Memory
from recollect.memory.text import TextMemory
from recollect.metrics.statistics import wilson
from recollect.rollout import Rollout
from recollect.runs.episodes import episode_of
from recollect.types import Completion, Episode, MemoryOp, Sampling, Task
from recollect.view.causes import RIGHT
from recollect.view.films import trace
from recollect.view.stored import clean
from recollect.view.weights import Weights, without_text

MOST = 64
"""Rollouts of one request."""


@dataclass(frozen=True)
class Question:
    """What is asked: from which turn of which episode, and how often."""

    n: int
    """The episode."""
    turn: int
    """The turn after which its memory is taken."""
    times: int = 8
    mode: Literal["ask", "roll"] = "roll"
    """Ask at once from this memory, or read on first."""
    memory: str | None = None
    """The memory to continue with, if it was edited."""
    number: int = 0
    """The question that is looked at."""
    again: int = 0
    """Another number draws other rollouts."""


def what_if(weights: Weights, asked: Question) -> dict[str, Any]:
    """Run the rollouts; return P(correct) for the question with its interval, and every answer."""
    if not 1 <= asked.times <= MOST:
        raise UserError(f"{asked.times} rollouts were asked for", f"ask for 1 to {MOST}")
    with weights.lock:
        learner = weights.learner()
        episodes = asyncio.run(_run(weights, asked))
        learner.roles.reset()
    scores = [_score(episode, asked.number) for episode in episodes]
    measured = [score for score in scores if score is not None]
    right = sum(score >= RIGHT for score in measured)
    low, high = wilson(right, len(measured))
    return {
        "weights": weights.name,
        "mode": asked.mode,
        "turn": asked.turn,
        "edited": asked.memory is not None,
        "n": len(measured),
        "right": right,
        "mean": right / len(measured) if measured else None,
        "low": low,
        "high": high,
        "answers": [
            _shown(episode, score, asked.number)
            for episode, score in zip(episodes, scores, strict=True)
        ],
    }


async def _run(weights: Weights, asked: Question) -> list[Episode]:
    learner = weights.learner()
    settings = learner.config.rollout
    plain = learner.rollout(settings.temperature, settings.top_p)
    found = trace(weights.source.stored(asked.n))
    if not 0 <= asked.turn < len(found.frames):
        raise UserError(f"the episode has no turn {asked.turn}", "choose one of its turns")
    frames = found.frames[: asked.turn + 1]
    edits = sum(len(frame.edits) for frame in frames)
    task = weights.task(asked.n)
    episode = episode_of(weights.source.record(asked.n))
    if any(not context.exact for context in episode.contexts):
        raise UserError(
            "this episode's model returned no tokens, so it cannot be given again",
            "choose a run whose models are local, or behind a server that returns tokens",
        )
    agent: Agent = plain.agent
    if asked.mode == "ask":
        text, ids = _memory_at(episode, edits)
        task = without_text(task)
        begin = (asked.memory, ()) if asked.memory is not None else (text, ids)
        agent, models = _Started(agent, *begin), plain.models
    else:
        turns = {(frame.context, frame.turn) for frame in frames}
        models = {r: _replaying(m, _known(episode, r, turns)) for r, m in plain.models.items()}
        if asked.memory is not None:
            agent = _Edited(agent, edits, asked.memory)
    rollout = Rollout(agent, models, plain.reward, settings.concurrency, settings.timeout)
    key = (learner.config.seed, "what if", asked.n, asked.turn, asked.memory or "", asked.again)
    [group] = await rollout.groups([task], asked.times, key)
    return group


def _memory_at(episode: Episode, edits: int) -> tuple[str, tuple[int, ...]]:
    """Return a text memory after its first edits."""
    written = [op for op in episode.ops[:edits] if op.kind == "replace"]
    if not written:
        return "", ()
    return written[-1].data["text"], tuple(written[-1].data.get("token_ids", ()))


def _known(
    episode: Episode, role: str, turns: set[tuple[int, int]]
) -> dict[tuple[int, ...], Completion]:
    """Return recorded replies by the whole prompt that they followed."""
    return {
        tuple(context.ids[: turn.start]): Completion(
            turn.token_ids, turn.logprobs, turn.stop_reason
        )
        for c, context in enumerate(episode.contexts)
        if context.role == role
        for t, turn in enumerate(context.turns)
        if (c, t) in turns
    }


@dataclass(frozen=True)
class _Replaying:
    """A policy that gives known replies to known prompts."""

    policy: Policy
    known: Mapping[tuple[int, ...], Completion]

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Return what was said to this prompt, or ask."""
        known = self.known.get(tuple(prompt_ids))
        return known if known is not None else await self.policy.sample(prompt_ids, sampling)


def _replaying(model: Model, known: Mapping[tuple[int, ...], Completion]) -> Model:
    if isinstance(model.policy, Speaker):
        return model
    return replace(model, policy=_Replaying(model.policy, known))


@dataclass(frozen=True)
class _Started:
    """An agent whose memory begins with a text."""

    agent: Agent
    text: str
    ids: tuple[int, ...]

    def new_memory(self, task: Task) -> Memory:
        """Open the agent's own kind of memory and write the text into it."""
        memory = _text_memory(self.agent, task)
        if self.text:
            memory.replace(self.text, self.ids, "what if")
        return memory

    @property
    def sees_answers(self) -> bool:
        """Tell whether the agent does."""
        return sees_answers(self.agent)

    async def run(self, task: Task, chats: Chats, memory: Any) -> list[str]:
        """Run the agent."""
        return await self.agent.run(task, chats, memory)


@dataclass(frozen=True)
class _Edited:
    """An agent whose memory is replaced by hand after some edits of its own."""

    agent: Agent
    edits: int
    text: str

    def new_memory(self, task: Task) -> Memory:
        """Open the agent's own kind of memory, and watch for the moment."""
        memory = _text_memory(self.agent, task)
        op = MemoryOp("replace", {"text": self.text, "token_ids": ()}, "edited by hand")
        plain = memory.apply

        def apply(own: MemoryOp) -> None:
            plain(own)
            if len(memory.ops) == self.edits:
                plain(op)

        if self.edits:
            memory.apply = apply  # type: ignore[method-assign, assignment]
        else:
            plain(op)
        return memory

    @property
    def sees_answers(self) -> bool:
        """Tell whether the agent does."""
        return sees_answers(self.agent)

    async def run(self, task: Task, chats: Chats, memory: Any) -> list[str]:
        """Run the agent."""
        return await self.agent.run(task, chats, memory)


def _text_memory(agent: Agent, task: Task) -> TextMemory:
    memory = open_memory(agent, task)
    if not isinstance(memory, TextMemory):
        memory.close()
        raise UserError(
            "this agent keeps a store of entries, not one text that could be set or edited",
            "roll on from this turn without editing",
        )
    return memory


def _score(episode: Episode, number: int) -> float | None:
    if not episode.measured:
        return None
    if not episode.ok:
        return 0.0
    if number < len(episode.answer_scores):
        return episode.answer_scores[number]
    return float(episode.scores.get("answer", episode.reward or 0.0))


def _shown(episode: Episode, score: float | None, number: int) -> dict[str, Any]:
    failure = episode.failure
    memories = [op.data.get("text") for op in episode.ops if op.kind == "replace"]
    return {
        "answer": clean(episode.answers[number]) if number < len(episode.answers) else "",
        "score": score,
        "memory": clean(memories[-1])[:2000] if memories else "",
        "failure": clean(f"{failure.boundary}: {failure.kind}: {failure.message}")[:300]
        if failure
        else "",
    }

"""Rewards for how an agent reads: what it looked up, what it skipped, when it stopped.

Each adds to the reward of the answers. Unlike in the papers, a chat that answers a question earns
that question's score and nothing for the reading, in which it had no part. Contexts say what was
decided in them (`counts`) and what they showed (`chunks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recollect.agents.base import is_ours
from recollect.agents.callback import CallbackAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.parallel import ParallelAgent
from recollect.agents.resources import Resources
from recollect.bounds import FINITE, FROM_1, check_bounds
from recollect.errors import UserError
from recollect.memory.base import Memory
from recollect.rewards.answers import AnswerReward, WithMemoryRecall, memory_recall
from recollect.rewards.base import Score
from recollect.types import Context, Episode, Task


@dataclass(frozen=True)
class CallbackReward(AnswerReward):
    """Answers, and step rewards for a memory that can look back (ReMemR1).

    For context t, which wrote memory m_t and brought back e_t for the next prompt p (the problem,
    m_t, and the chunks that are read next, if any):

        memory_recall   recall(m_t) - recall(m_(t-1))
        callback        callback * max(0, recall(p and e_t) - recall(p))
        format          well_formed * 1 if the reply had its tags, else 0

    A chunk of the task that the next context shows only a part of counts as shown whole. Steps
    count with `outcome_share` below 1.
    """

    callback: float = 1.0
    """Reward for words of an answer that only an earlier memory brings into view. The published
    code has 0 here: recalls then depend on the outcome alone, and die out."""
    well_formed: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("reward", self, callback=FINITE, well_formed=FINITE)

    def check(self, resources: Resources) -> None:
        """Refuse an agent that looks back at nothing."""
        super().check(resources)
        require_agent(resources.agent, CallbackAgent, "callback")

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the outcome and the memories, then what was brought back."""
        score = await WithMemoryRecall(super().__call__)(episode, memory)
        written = {op.label: op.data["text"] for op in episode.ops if op.kind == "replace"}
        recalled = {op.label: op.data["text"] for op in episode.ops if op.kind == "recall"}
        reading = [c for c in episode.contexts if c.label in written]
        following = dict(zip((c.label for c in reading), [*reading[1:], None], strict=True))
        steps: list[dict[str, float]] = []
        gained = 0.0
        for context, own in zip(episode.contexts, score.steps, strict=True):
            if context.label not in written:
                steps.append(own)
                continue
            shown = [written[context.label], _text(episode.task, following[context.label])]
            gain = _gain(episode.task, " ".join(shown), recalled.get(context.label, ""))
            gained += gain
            right = float(not context.counts.get("malformed"))
            extra = {"callback": self.callback * gain, "format": self.well_formed * right}
            steps.append({**own, **extra})
        parts = {"callback": gained, **_shares(reading, "queries", "recalled", "malformed")}
        return replace(score, steps=steps, parts={**score.parts, **parts})


@dataclass(frozen=True)
class GateReward(AnswerReward):
    """Answers, and rewards for a gate that updates and a gate that ends (GRU-Mem).

    Of context t: update_gate = +1 if the memory was rewritten exactly where the chunks shown hold
    evidence, else -1; a malformed reply has decided nothing and earns -1.

    Of the episode: outcome + exit + malformed * share of malformed replies, where exit is `early`
    if reading ended before the last evidence, `late` if it continued after it, and 0 if it ended
    where the last evidence is (or first after it, if that was left out of a text too long).
    The paper's weight of the format is not known to us: `malformed` is our choice. Steps count
    with `outcome_share` below 1.
    """

    early: float = -0.75
    """Reward for stopping before the last evidence."""
    late: float = -0.5
    """Reward for reading on after it."""
    malformed: float = -0.5
    """Times the share of replies that cannot be read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("reward", self, early=FINITE, late=FINITE, malformed=FINITE)

    def check(self, resources: Resources) -> None:
        """Refuse an agent without gates."""
        super().check(resources)
        require_agent(resources.agent, GatedAgent, "gated")

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the outcome, then compare the gates with where the evidence is."""
        score = await super().__call__(episode, memory)
        evidence = {chunk for question in episode.task.questions for chunk in question.evidence}
        if not evidence:
            raise UserError(
                f"task {episode.task.id!r} does not say where its evidence is, so gates cannot"
                " be rewarded",
                "train on tasks that say so: recall, hotpotqa, twowiki, musique, squad, ledger",
            )
        reading = [c for c in episode.contexts if c.chunks is not None]
        exit_ = self._exit(reading, max(evidence))
        shares = _shares(reading, "updated", "ended", "malformed")
        steps = [_update_gate(context, evidence) for context in episode.contexts]
        gates = [step["update_gate"] for step in steps if step]
        parts = {
            "exit": exit_,
            "update_gate": sum(gates) / len(gates) if gates else 0.0,
            "sections": float(len(reading)),
            **shares,
        }
        reward = score.reward + exit_ + self.malformed * shares["malformed"]
        return replace(score, reward=reward, steps=steps, parts={**score.parts, **parts})

    def _exit(self, reading: Sequence[Context], last: int) -> float:
        """Return the reward for where reading ended; `last` is the last chunk with evidence."""
        spans = [c.chunks for c in reading if c.chunks is not None]
        if not spans:
            return 0.0
        if spans[-1][1] < last:
            # Who was never asked to stop has not stopped early: the text was cut.
            return self.early if reading[-1].counts.get("ended") else 0.0
        reached = next(i for i, (_first, end) in enumerate(spans) if end >= last)
        inside = spans[-1][0] <= last
        return 0.0 if inside or reached == len(spans) - 1 else self.late


@dataclass(frozen=True)
class RoundReward(AnswerReward):
    """Answers, and a bonus for reading in few rounds (PI-Mem).

    R = outcome + bonus * (K - k) / (K - 1), of the K rounds allowed for a stretch of text and the k
    that were read, on average if questions divide the text into stretches; nothing if K is 1.
    """

    bonus: float = 0.2
    """Reward for a single round; it falls to 0 at the most rounds allowed."""
    max_rounds: int | None = None
    """Rounds that are allowed; None takes the agent's setting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("reward", self, bonus=FINITE, max_rounds=FROM_1)

    def check(self, resources: Resources) -> None:
        """Refuse an agent that does not read in rounds."""
        super().check(resources)
        require_agent(resources.agent, ParallelAgent, "parallel")

    def bind(self, resources: Resources) -> RoundReward:
        """Take over how many rounds the agent allows."""
        if self.max_rounds is None and isinstance(resources.agent, ParallelAgent):
            return replace(self, max_rounds=resources.agent.max_rounds)
        return self

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the outcome, and count the rounds."""
        score = await super().__call__(episode, memory)
        most = self.max_rounds or ParallelAgent().max_rounds
        total: Counter[str] = Counter()
        for context in episode.contexts:
            total.update(context.counts)
        readers = [c for c in episode.contexts if c.chunks is not None]
        rounds = total["rounds"] / max(1, total["stretches"])
        saved = 0.0
        if most > 1 and total["stretches"]:
            saved = (most - rounds) / (most - 1)
        parts = {"rounds": rounds, **_shares(readers, "kept", "malformed")}
        reward = score.reward + self.bonus * saved
        return replace(score, reward=reward, parts={**score.parts, **parts})


def require_agent(agent: object, kind: type, preset: str) -> None:
    """Refuse a built-in agent of another kind; what a user's own notes is seen when it runs."""
    if is_ours(agent) and not isinstance(agent, kind):
        raise UserError(
            f"this reward needs a {kind.__name__}; the agent is {type(agent).__name__}",
            f"start from the preset {preset}, or set another --reward",
        )


def _update_gate(context: Context, evidence: set[int]) -> dict[str, float]:
    if context.chunks is None:
        return {}
    first, last = context.chunks
    holds = any(first <= chunk <= last for chunk in evidence)
    right = bool(context.counts.get("updated")) == holds and not context.counts.get("malformed")
    return {"update_gate": 1.0 if right else -1.0}


def _gain(task: Task, shown: str, recalled: str) -> float:
    """Return how much more of the answers is in view with what was brought back."""
    if not recalled:
        return 0.0
    questions = task.questions
    before = " ".join([shown, *(question.text for question in questions)])
    return memory_recall(f"{before} {recalled}", questions) - memory_recall(before, questions)


def _text(task: Task, context: Context | None) -> str:
    if context is None or context.chunks is None:
        return ""
    first, last = context.chunks
    return " ".join(task.chunks[i] for i in range(first, last + 1))


def _shares(contexts: Sequence[Context], *names: str) -> dict[str, float]:
    """Return in which share of the contexts each of these happened."""
    size = max(1, len(contexts))
    return {name: sum(c.counts.get(name, 0) for c in contexts) / size for name in names}

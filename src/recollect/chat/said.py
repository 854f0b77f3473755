"""What was said in a context, as it was sampled: kept beside the context that an agent is shown.

An agent's code may change what it is shown, and may ask a model beside its chats. What is trained,
stored and paid for is what was said. Knows nothing of prompts, templates or agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.chat.policy import Policy, Speaker, Spoken
from recollect.types import Completion, Context, Sampling, Turn

Encode = Callable[[str], Sequence[int]]
BESIDE = "beside its chats"
"""The label of a call that was made in no chat."""


@dataclass(slots=True, eq=False)
class Said:
    """One context as it was sampled, and the one that is shown."""

    shown: Context
    role: str = field(init=False)
    learns: bool = field(init=False)
    exact: bool = field(init=False)
    ids: tuple[int, ...] = field(init=False)
    """Shown as they are: nobody can change a tuple."""
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = self.shown.ids = tuple(self.shown.ids)
        self.role, self.learns, self.exact = self.shown.role, self.shown.trainable, self.shown.exact

    def add(self, prompt: tuple[int, ...], turn: Turn) -> None:
        """Note a turn, and show it."""
        self.ids = self.shown.ids = prompt + turn.token_ids
        self.turns.append(turn)
        self.shown.turns.append(Turn(turn.start, turn.token_ids, turn.logprobs, turn.stop_reason))

    @property
    def context(self) -> Context:
        """The context as it was sampled, with what an agent may write: where it belongs, counts."""
        shown = self.shown
        return Context(
            self.role,
            shown.stratum,
            self.learns,
            self.ids,
            [*self.turns],
            question=shown.question,
            label=shown.label,
            counts=shown.counts,
            exact=self.exact,
            chunks=shown.chunks,
        )

    @property
    def changed(self) -> bool:
        """Whether what is shown is no longer what was said."""
        shown = self.shown
        given = (shown.role, shown.trainable, shown.exact)
        if shown.ids is not self.ids or given != (self.role, self.learns, self.exact):
            return True
        return type(shown.turns) is not list or shown.turns != self.turns


@dataclass(slots=True, eq=False)
class Beside:
    """What was asked beside an episode's chats, and whether it has ended.

    It knows nothing of the chats: objects that hold each other are freed late.
    """

    contexts: list[Context] = field(default_factory=list)
    ended: bool = False

    def check(self) -> None:
        """Refuse what comes after the end."""
        if self.ended:
            raise RuntimeError("these chats are of an episode that has ended")

    def note(self, role: str, prompt: tuple[int, ...], turn: Turn, exact: bool) -> None:
        """Keep a call as a context of its own, which nothing is learned from."""
        ids = prompt + turn.token_ids
        made = Context(role, BESIDE, False, ids, [turn], label=BESIDE, exact=exact)
        self.contexts.append(made)


class WatchedPolicy:
    """A policy as an agent is shown it: what it is asked is in no chat, and is noted."""

    def __init__(self, policy: Policy, role: str, beside: Beside) -> None:
        self._policy, self._role, self._beside = policy, role, beside

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Ask the policy."""
        self._beside.check()
        prompt = tuple(prompt_ids)
        found = await self._policy.sample(prompt, sampling)
        ids, logprobs = tuple(found.token_ids), tuple(found.logprobs)
        turn = Turn(len(prompt), ids, logprobs, found.stop_reason)
        self._beside.note(self._role, prompt, turn, exact=True)
        return found


class WatchedSpeaker(Speaker):
    """A speaker as an agent is shown it; `encode` counts what it reads and says."""

    def __init__(self, speaker: Speaker, role: str, beside: Beside, encode: Encode) -> None:
        self._speaker, self._role, self._beside = speaker, role, beside
        self._encode = encode

    async def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], sampling: Sampling
    ) -> Spoken:
        """Ask the speaker."""
        self._beside.check()
        prompt = tuple(self._encode("\n".join(str(m.get("content")) for m in messages)))
        spoken = await self._speaker.reply(messages, tools, sampling)
        turn = Turn(len(prompt), tuple(self._encode(spoken.text)), (), spoken.stop_reason)
        self._beside.note(self._role, prompt, turn, exact=False)
        return spoken

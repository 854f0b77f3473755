"""Chats: growing, token-exact contexts over policies, opened by role.

`Chats` is what an agent is given: a routing table from role to model, and the record of every
context opened in one episode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.errors import UserError, boundary
from recollect.policies.base import Policy
from recollect.rendering import Message, Renderer
from recollect.seeds import Key, derive
from recollect.types import Context, Sampling, StopReason, Turn


@dataclass(frozen=True)
class Model:
    """Who speaks in a role: a policy, how it is rendered and sampled, and whether it learns."""

    policy: Policy
    renderer: Renderer
    trainable: bool = True
    sampling: Sampling = Sampling()
    """Temperature, top-p and the default limit; the seed is set per turn."""
    window: int = 1 << 30
    """Tokens a context may hold, prompt and reply together."""


@dataclass(frozen=True)
class Reply:
    """What the model said in one turn."""

    text: str
    token_ids: tuple[int, ...]
    """Without the end token, ready to be spliced into another prompt."""
    stop_reason: StopReason


class ContextFull(Exception):
    """A context has no room left for a reply."""


@dataclass
class Chats:
    """Open chats by role; keep every context in the order it was opened."""

    models: Mapping[str, Model]
    key: Key
    """(seed, step, task, rollout): with context and turn numbers it seeds every draw."""
    contexts: list[Context] = field(default_factory=list)

    def open(
        self,
        role: str,
        *,
        label: str = "",
        stratum: str | None = None,
        question: int | None = None,
        tools: Sequence[Any] = (),
    ) -> Chat:
        """Start an empty context in `role`; unless told otherwise its stratum is the role."""
        model = self.model(role)
        stratum = role if stratum is None else stratum
        context = Context(role, stratum, model.trainable, question=question, label=label)
        self.contexts.append(context)
        return Chat(model, context, (*self.key, len(self.contexts) - 1), tuple(tools))

    def model(self, role: str) -> Model:
        """Return who speaks in `role`."""
        if role not in self.models:
            known = ", ".join(self.models)
            raise UserError(
                f"no model speaks in the role {role!r}", f"give it a model; there are: {known}"
            )
        return self.models[role]


@dataclass
class Chat:
    """One growing context. `say` is the only way to extend it."""

    model: Model
    context: Context
    key: Key
    tools: tuple[Any, ...] = ()

    @property
    def room(self) -> int:
        """Tokens left in the window."""
        return self.model.window - len(self.context.ids)

    def render(self, *messages: Message) -> list[int]:
        """Return the tokens that saying `messages` would add before the reply."""
        renderer = self.model.renderer
        if not self.context.turns:
            return renderer.opening(messages, self.tools)
        last = self.context.turns[-1]
        ended = bool(last.token_ids) and last.token_ids[-1] in renderer.tokenizer.end_ids
        return renderer.suffix(messages, self.tools, closed=ended)

    async def say(
        self, *messages: Message, max_tokens: int | None = None, stop: tuple[str, ...] = ()
    ) -> Reply:
        """Append messages, let the model reply, and return the reply."""
        with boundary("render"):
            ids = self.render(*messages)
        room = self.room - len(ids)
        if room < 1:
            raise ContextFull(
                f"{self.context.label or self.context.role}: {len(self.context.ids) + len(ids)}"
                f" prompt tokens fill the window of {self.model.window}"
            )
        number = len(self.context.turns)
        default = self.model.sampling
        sampling = dataclasses.replace(
            default,
            max_tokens=min(room, default.max_tokens if max_tokens is None else max_tokens),
            stop=stop or default.stop,
            seed=derive(*self.key, number),
        )
        prompt = [*self.context.ids, *ids]
        with boundary("policy"):
            completion = await self.model.policy.sample(prompt, sampling)
        if len(self.context.turns) != number:
            raise RuntimeError("a chat was spoken to twice at once: open one chat for each")
        turn = Turn(len(prompt), completion.token_ids, completion.logprobs, completion.stop_reason)
        self.context.ids[:] = [*prompt, *completion.token_ids]
        self.context.turns.append(turn)
        return self._reply(turn)

    def _reply(self, turn: Turn) -> Reply:
        tokenizer = self.model.renderer.tokenizer
        ids = turn.token_ids
        while ids and ids[-1] in tokenizer.end_ids:
            ids = ids[:-1]
        return Reply(tokenizer.decode(ids), ids, turn.stop_reason)

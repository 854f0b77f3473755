"""Chats: growing contexts over policies, opened by role; token-exact wherever tokens are known.

`Chats` is what an agent is given: a routing table from role to model, and the record of every
context opened in one episode.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from recollect.chat.messages import Dialogue
from recollect.chat.policy import Policy, Speaker
from recollect.chat.rendering import Message, Renderer, user
from recollect.concurrency.deadlines import hold, replying, time_is_over, waiting
from recollect.errors import AgentError, UserError, boundary
from recollect.seeds import Key, derive
from recollect.types import Context, Sampling, StopReason, Turn


@dataclass(frozen=True)
class Model:
    """Who speaks in a role: a policy, how it is rendered and sampled, and whether it learns."""

    policy: Policy | Speaker
    renderer: Renderer
    """For a Speaker it only counts tokens and decodes them."""
    trainable: bool = True
    sampling: Sampling = Sampling()
    """Temperature, top-p and the default limit; the seed is set per turn."""
    window: int = 1 << 30
    """Tokens a context may hold, prompt and reply together."""

    def __post_init__(self) -> None:
        if self.trainable and not self.exact:
            raise UserError(
                "cannot train a model whose server returns no token ids",
                "train a model folder, and give this server's model a role that is fixed",
            )

    @property
    def exact(self) -> bool:
        """Whether its contexts hold the tokens that it really read and wrote."""
        return not isinstance(self.policy, Speaker)


@dataclass(frozen=True)
class Reply:
    """What the model said in one turn."""

    text: str
    token_ids: tuple[int, ...]
    """Without the end token, ready to be spliced into another prompt."""
    stop_reason: StopReason


class ContextFull(AgentError):
    """A context has no room left for a reply."""

    on_purpose = False


@dataclass
class Chats:
    """Open chats by role; keep every context in the order it was opened."""

    models: Mapping[str, Model]
    key: Key
    """(seed, step, task, rollout): with context and turn numbers it seeds every draw."""
    contexts: list[Context] = field(default_factory=list)
    replayed: Sequence[Context] = ()
    """What was said in the first contexts: it is replayed, not sampled, and is not trained."""
    spoken: str = ""
    """The label of the context that replied last."""
    questions: int | None = None
    """How many the task has, if there is a task."""
    readings: WeakValueDictionary[Hashable, Any] = field(default_factory=WeakValueDictionary)
    """What episodes of one rollout make of their texts once for all of them, without any chance in
    it; kept while one of them uses it."""
    _unplaced: list[Context] = field(default_factory=list)

    def open(
        self,
        role: str = "answer",
        *,
        label: str = "",
        stratum: str | None = None,
        question: int | None = None,
        tools: Sequence[Any] = (),
    ) -> Chat:
        """Start an empty context in `role`.

        A context that answers a question has that question's name as label and stratum; any other
        one has its role as stratum, and role and number as label. `settle` says what happens to
        contexts of role `answer` that name no question.
        """
        model = self.model(role)
        known = None if self.questions is None else range(self.questions)
        if question is not None and known is not None and question not in known:
            has = f"{len(known)} question{'s' * (len(known) != 1)}"
            raise IndexError(f"question is {question}: the task has {has}, counted from 0")
        name = f"question {question + 1}" if question is not None else ""
        if unplaced := not (label or stratum or name):
            label = f"{role} {1 + sum(context.role == role for context in self.contexts)}"
        label = label or name
        stratum = stratum or name or role
        number = len(self.contexts)
        replayed = self.replayed[number] if number < len(self.replayed) else None
        learns = model.trainable and replayed is None
        context = Context(role, stratum, learns, question=question, label=label, exact=model.exact)
        self.contexts.append(context)
        self._unplaced += [context] if unplaced else []
        own = model.trainable or not any(other.trainable for other in self.models.values())
        return Chat(model, context, (*self.key, number), tuple(tools), replayed, own, self)

    def settle(self, questions: int, failed: bool = False) -> None:
        """Match contexts to questions, once an agent has answered or failed.

        If no context names a question, and as many were opened in role `answer` without a label as
        there are questions, then the n-th of them answers the n-th question: it earns that
        question's score and is compared with the same question's contexts in sibling episodes.
        Otherwise they earn the episode's reward. An agent that failed may have opened fewer.
        """
        answering = [context for context in self._unplaced if context.role == "answer"]
        named = any(context.question is not None for context in self.contexts)
        if named or len(answering) > questions or (len(answering) < questions and not failed):
            return
        for i, context in enumerate(answering):
            context.question = i
            context.label = context.stratum = f"question {i + 1}"

    def model(self, role: str) -> Model:
        """Return who speaks in `role`."""
        if role not in self.models:
            known = ", ".join(self.models)
            raise UserError(
                f"there is no model for the role {role!r}", f"open a chat in one that has: {known}"
            )
        return self.models[role]


@dataclass
class Chat:
    """One growing context. `say` is the only way to extend it."""

    model: Model
    context: Context
    key: Key
    tools: tuple[Any, ...] = ()
    replayed: Context | None = None
    """What was said in this context before, if it is a replay."""
    own: bool = True
    """Whether the model is the agent's own: one that learns, or any where none does."""
    chats: Chats | None = field(default=None, repr=False)
    _dialogue: Dialogue = field(default_factory=Dialogue)

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
        self,
        *said: Message | str,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> Reply:
        """Append messages, let the model reply, and return the reply; texts are user messages.

        The reply ends behind any text of `stop`.
        """
        messages = tuple(map(_message, said))
        if not messages and not self.context.turns:
            raise TypeError("say needs a text: a chat cannot begin with a reply")
        if max_tokens is not None and not hasattr(max_tokens, "__index__"):
            raise TypeError(f"max_tokens is {max_tokens!r}, not a whole number")
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}: a reply has at least 1")
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
        own: dict[str, Any] = {
            "max_tokens": int(min(room, default.max_tokens if max_tokens is None else max_tokens)),
            "stop": tuple(filter(None, [stop] if isinstance(stop, str) else stop)) or default.stop,
            "seed": derive(*self.key, number),
        }
        sampling = Sampling(**(vars(default) | own))  # dataclasses.replace takes longer
        prompt = [*self.context.ids, *ids]
        if time_is_over():
            await hold()
        # The turn is noted before the reply counts as come: it is kept even if time is over then.
        with replying() if self.own else waiting():
            turn, text = await self._next_turn(prompt, messages, sampling)
            if len(self.context.turns) != number:
                raise RuntimeError("a chat was spoken to twice at once: open one chat for each")
            self.context.ids[:] = [*prompt, *turn.token_ids]
            self.context.turns.append(turn)
        if time_is_over():
            await hold()
        if self.chats is not None:
            self.chats.spoken = self.context.label
        return Reply(text, self._without_end(turn.token_ids), turn.stop_reason)

    async def _next_turn(
        self, prompt: list[int], messages: Sequence[Message], sampling: Sampling
    ) -> tuple[Turn, str]:
        if self.replayed:
            with boundary("replay"):
                return self._replay(self.replayed, prompt)
        with boundary("policy"):
            return await self._continued(prompt, messages, sampling)

    def _replay(self, replayed: Context, prompt: list[int]) -> tuple[Turn, str]:
        """Return the turn that followed this prompt before."""
        number = len(self.context.turns)
        turn = replayed.turns[number] if number < len(replayed.turns) else None
        if turn is None or replayed.ids[: turn.start] != prompt:
            raise RuntimeError(
                f"{replayed.label or replayed.role}: given the same replies, the agent continued"
                " differently"
            )
        return turn, self.model.renderer.tokenizer.decode(self._without_end(turn.token_ids))

    async def _continued(
        self, prompt: list[int], messages: Sequence[Message], sampling: Sampling
    ) -> tuple[Turn, str]:
        """Ask the model: by tokens, or with the messages so far if it takes no tokens."""
        policy, renderer = self.model.policy, self.model.renderer
        tokenizer = renderer.tokenizer
        if not isinstance(policy, Speaker):
            sampled = await policy.sample(prompt, sampling)
            text = tokenizer.decode(self._without_end(sampled.token_ids))
            turn = Turn(len(prompt), sampled.token_ids, sampled.logprobs, sampled.stop_reason)
            return turn, text
        sent = self._dialogue.followed_by(messages, renderer)
        spoken = await policy.reply(sent, self.tools, sampling)
        self._dialogue.add(sent, spoken)
        end = tokenizer.end_ids[:1] if spoken.stop_reason == "stop" else ()
        ids = (*tokenizer.encode(spoken.text), *end)
        return Turn(len(prompt), ids, (), spoken.stop_reason), spoken.text

    def _without_end(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        ends = self.model.renderer.tokenizer.end_ids
        while ids and ids[-1] in ends:
            ids = ids[:-1]
        return ids


def _message(said: Message | str) -> Message:
    if isinstance(said, str):
        return user(said)
    if not isinstance(said, Message):
        raise TypeError(f"say takes texts and messages, not {type(said).__name__}: {said!r:.80}")
    return said

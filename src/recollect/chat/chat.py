"""Chats: growing contexts over policies, opened by role; token-exact wherever tokens are known.

`Chats` is what an agent is given: a routing table from role to model, and the record of every
context opened in one episode. What it shows of them is not what is trained or paid for: see `said`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from recollect.chat.messages import Dialogue
from recollect.chat.policy import Policy, Speaker
from recollect.chat.rendering import Message, Renderer, user
from recollect.chat.said import BESIDE, Beside, Said, WatchedPolicy, WatchedSpeaker
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

    _models: Mapping[str, Model]
    key: Key
    """(seed, step, task, rollout): with context and turn numbers it seeds every draw."""
    replayed: InitVar[Sequence[Context]] = ()
    """What was said in the first contexts: it is replayed, not sampled, and is not trained."""
    spoken: str = ""
    """The label of the context that replied last."""
    questions: int | None = None
    """How many the task has, if there is a task."""
    readings: WeakValueDictionary[Hashable, Any] = field(default_factory=WeakValueDictionary)
    """What episodes of one rollout make of their texts once for all of them, without any chance in
    it; kept while one of them uses it."""
    _said: list[Said] = field(default_factory=list, init=False, repr=False)
    _beside: Beside = field(default_factory=Beside, init=False, repr=False)
    _unplaced: list[Said] = field(default_factory=list, init=False, repr=False)
    _shown: dict[str, Model] = field(default_factory=dict, init=False, repr=False)
    """Models as agents see them."""

    def __post_init__(self, replayed: Sequence[Context]) -> None:
        self._replayed = replayed

    @property
    def models(self) -> Mapping[str, Model]:
        """By role, to look at; what is asked of them beside the chats is noted."""
        return MappingProxyType({role: self.model(role) for role in self._models})

    @property
    def contexts(self) -> tuple[Context, ...]:
        """All contexts, to look at."""
        return tuple(said.shown for said in self._said)

    @property
    def kept(self) -> list[Context]:
        """All contexts as they were sampled, whatever became of those that are shown, and what was
        asked beside them."""
        return [*(said.context for said in self._said), *self._beside.contexts]

    @property
    def changed(self) -> str:
        """What an agent changed of its contexts, or asked beside them, in words."""
        if count := len(self._beside.contexts):
            times = f"{count} time{'s' * (count != 1)}"
            return f"asked a model {times} {BESIDE}: ask in `chats.open(role)`, with `say`"
        names = [said.shown.label for said in self._said if said.changed]
        if names:
            return f"changed what was said in {names[0]!s:.80}: copy it"
        return ""

    def end(self) -> None:
        """Let nothing more be opened or said; a reply that comes later is in no context."""
        self._beside.ended = True

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
        self._beside.check()
        model = self._real(role)
        known = None if self.questions is None else range(self.questions)
        if question is not None and known is not None and question not in known:
            has = f"{len(known)} question{'s' * (len(known) != 1)}"
            raise IndexError(f"question is {question}: the task has {has}, counted from 0")
        name = f"question {question + 1}" if question is not None else ""
        if unplaced := not (label or stratum or name):
            label = f"{role} {1 + sum(said.role == role for said in self._said)}"
        label = label or name
        stratum = stratum or name or role
        number = len(self._said)
        replayed = self._replayed[number] if number < len(self._replayed) else None
        learns = model.trainable and replayed is None
        context = Context(role, stratum, learns, question=question, label=label, exact=model.exact)
        said = Said(context)
        self._said.append(said)
        self._unplaced += [said] if unplaced else []
        own = model.trainable or not any(other.trainable for other in self._models.values())
        key = (*self.key, number)
        return Chat(model, said, key, tuple(tools), replayed, own, self)

    def settle(self, questions: int, failed: bool = False) -> None:
        """Match contexts to questions, once an agent has answered or failed.

        If no context names a question, and as many were opened in role `answer` without a label as
        there are questions, then the n-th of them answers the n-th question: it earns that
        question's score and is compared with the same question's contexts in sibling episodes.
        Otherwise they earn the episode's reward. An agent that failed may have opened fewer.
        """
        answering = [said.shown for said in self._unplaced if said.role == "answer"]
        named = any(said.shown.question is not None for said in self._said)
        if named or len(answering) > questions or (len(answering) < questions and not failed):
            return
        for i, context in enumerate(answering):
            context.question = i
            context.label = context.stratum = f"question {i + 1}"

    def model(self, role: str) -> Model:
        """Return who speaks in `role`, to look at."""
        if role not in self._shown:
            model = self._real(role)
            self._shown[role] = replace(model, policy=self._watched(role, model))
        return self._shown[role]

    def _real(self, role: str) -> Model:
        if role not in self._models:
            known = ", ".join(self._models)
            raise UserError(
                f"there is no model for the role {role!r}", f"open a chat in one that has: {known}"
            )
        return self._models[role]

    def _watched(self, role: str, model: Model) -> Policy | Speaker:
        if isinstance(model.policy, Speaker):
            encode = model.renderer.tokenizer.encode
            return WatchedSpeaker(model.policy, role, self._beside, encode)
        return WatchedPolicy(model.policy, role, self._beside)


@dataclass
class Chat:
    """One growing context. `say` is the only way to extend it."""

    _model: Model
    _said: Said
    key: Key
    tools: tuple[Any, ...] = ()
    _replayed: Context | None = None
    """What was said in this context before, if it is a replay."""
    _own: bool = True
    """Whether the model is the agent's own: one that learns, or any where none does."""
    _chats: Chats | None = field(default=None, repr=False)
    _dialogue: Dialogue = field(default_factory=Dialogue)

    @property
    def model(self) -> Model:
        """Who speaks, to look at."""
        return self._model if self._chats is None else self._chats.model(self._said.role)

    @property
    def context(self) -> Context:
        """The context so far, as it is shown: counts may be written into it."""
        return self._said.shown

    @property
    def room(self) -> int:
        """Tokens left in the window."""
        return self._model.window - len(self._said.ids)

    def render(self, *messages: Message) -> list[int]:
        """Return the tokens that saying `messages` would add before the reply."""
        renderer = self._model.renderer
        if not self._said.turns:
            return renderer.opening(messages, self.tools)
        last = self._said.turns[-1]
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
        messages, past = tuple(map(_message, said)), self._said
        if not messages and not past.turns:
            raise TypeError("say needs a text: a chat cannot begin with a reply")
        if max_tokens is not None and not hasattr(max_tokens, "__index__"):
            raise TypeError(f"max_tokens is {max_tokens!r}, not a whole number")
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}: a reply has at least 1")
        if self._chats is not None:
            self._chats._beside.check()
        with boundary("render"):
            ids = self.render(*messages)
        room = self.room - len(ids)
        if room < 1:
            raise ContextFull(
                f"{self.context.label or self.context.role}: {len(past.ids) + len(ids)}"
                f" prompt tokens fill the window of {self._model.window}"
            )
        number = len(past.turns)
        default = self._model.sampling
        own: dict[str, Any] = {
            "max_tokens": int(min(room, default.max_tokens if max_tokens is None else max_tokens)),
            "stop": tuple(filter(None, [stop] if isinstance(stop, str) else stop)) or default.stop,
            "seed": derive(*self.key, number),
        }
        sampling = Sampling(**(vars(default) | own))  # dataclasses.replace takes longer
        prompt = past.ids + tuple(ids)  # which copies less than a display
        if time_is_over():
            await hold()
        # The turn is noted before the reply counts as come: it is kept even if time is over then.
        with replying() if self._own else waiting():
            turn, text = await self._next_turn(prompt, messages, sampling)
            if len(past.turns) != number:
                raise RuntimeError("a chat was spoken to twice at once: open one chat for each")
            past.add(prompt, turn)
        if time_is_over():
            await hold()
        if self._chats is not None:
            self._chats.spoken = self.context.label
        return Reply(text, self._without_end(turn.token_ids), turn.stop_reason)

    async def _next_turn(
        self, prompt: tuple[int, ...], messages: Sequence[Message], sampling: Sampling
    ) -> tuple[Turn, str]:
        if self._replayed:
            with boundary("replay"):
                return self._replay(self._replayed, prompt)
        with boundary("policy"):
            return await self._continued(prompt, messages, sampling)

    def _replay(self, replayed: Context, prompt: tuple[int, ...]) -> tuple[Turn, str]:
        """Return the turn that followed this prompt before."""
        number = len(self._said.turns)
        turn = replayed.turns[number] if number < len(replayed.turns) else None
        if turn is None or tuple(replayed.ids[: turn.start]) != prompt:
            raise RuntimeError(
                f"{replayed.label or replayed.role}: given the same replies, the agent continued"
                " differently"
            )
        return turn, self._model.renderer.tokenizer.decode(self._without_end(turn.token_ids))

    async def _continued(
        self, prompt: tuple[int, ...], messages: Sequence[Message], sampling: Sampling
    ) -> tuple[Turn, str]:
        """Ask the model: by tokens, or with the messages so far if it takes no tokens."""
        policy, renderer = self._model.policy, self._model.renderer
        tokenizer = renderer.tokenizer
        if not isinstance(policy, Speaker):
            sampled = await policy.sample(prompt, sampling)
            text = tokenizer.decode(self._without_end(sampled.token_ids))
            ids, logprobs = tuple(sampled.token_ids), tuple(sampled.logprobs)
            return Turn(len(prompt), ids, logprobs, sampled.stop_reason), text
        sent = self._dialogue.followed_by(messages, renderer)
        spoken = await policy.reply(sent, self.tools, sampling)
        self._dialogue.add(sent, spoken)
        end = tokenizer.end_ids[:1] if spoken.stop_reason == "stop" else ()
        ids = (*tokenizer.encode(spoken.text), *end)
        return Turn(len(prompt), ids, (), spoken.stop_reason), spoken.text

    def _without_end(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        ends = self._model.renderer.tokenizer.end_ids
        while ids and ids[-1] in ends:
            ids = ids[:-1]
        return ids


def _message(said: Message | str) -> Message:
    if isinstance(said, str):
        return user(said)
    if not isinstance(said, Message):
        raise TypeError(f"say takes texts and messages, not {type(said).__name__}: {said!r:.80}")
    return said

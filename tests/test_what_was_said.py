"""Whatever an agent does to what it is shown: what was sampled is trained, stored and paid for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recollect.advantages import grpo, step_advantages
from recollect.agents.function import as_agent
from recollect.chat.chat import Chat, Chats, Model
from recollect.chat.policy import Speaker, Spoken
from recollect.chat.rendering import Renderer, user
from recollect.chat.said import BESIDE
from recollect.errors import AgentError
from recollect.memory.text import TextMemory
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.base import NoReward
from recollect.rollout import Rollout
from recollect.samples import make_samples
from recollect.types import Episode, Question, Sampling, Task, Turn
from tests.support.bytes_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
TASK = Task("t", ("A text.",), (Question("Which?", ("a",)),))
SAMPLING = Sampling(max_tokens=8)


def model(**settings: Any) -> Model:
    return Model(ScriptedPolicy(TOKENIZER, lambda _prompt: "yes"), Renderer(TOKENIZER), **settings)


def played(agent: Any, speaker: Model | None = None, n: int = 1) -> list[Episode]:
    spoken = speaker or model()
    rolling = Rollout(as_agent(agent), {"memory": spoken, "answer": spoken}, NoReward())
    [group] = asyncio.run(rolling.groups([TASK], n, (0, 1)))
    return group


def doing(change: Callable[[Chats, Chat], Any], error: Exception | None = None) -> Any:
    """Make an agent that asks twice, does something odd, and answers."""

    async def agent(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        chat = chats.open("memory")
        await chat.say("one")
        await chat.say("two")
        change(chats, chat)
        if error is not None:
            raise error
        return ["a"]

    return agent


def forgets(chats: Chats, chat: Chat) -> None:
    chat.context.turns.clear()


def takes_turns_away(chats: Chats, chat: Chat) -> None:
    chat.context.turns = None  # type: ignore[assignment]


def writes_ids(chats: Chats, chat: Chat) -> None:
    chat.context.ids = [*chat.context.ids[:-1], 7]


def copies_ids(chats: Chats, chat: Chat) -> None:
    chat.context.ids = []


def writes_logprobs(chats: Chats, chat: Chat) -> None:
    first = chat.context.turns[0]
    chat.context.turns[0] = replace(first, logprobs=(0.0,) * len(first.logprobs))


def writes_into_a_turn(chats: Chats, chat: Chat) -> None:
    vars(chat.context.turns[0])["token_ids"] = (7, 7, 7, 7)


def makes_a_turn_up(chats: Chats, chat: Chat) -> None:
    chat.context.turns.append(Turn(1, (7,), (-0.1,), "stop"))


def hides_from_training(chats: Chats, chat: Chat) -> None:
    chat.context.trainable = False


def changes_roles(chats: Chats, chat: Chat) -> None:
    chat.context.role = "answer"


CHANGES = [
    forgets,
    takes_turns_away,
    writes_ids,
    copies_ids,
    writes_logprobs,
    writes_into_a_turn,
    makes_a_turn_up,
    hides_from_training,
    changes_roles,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("error", [None, AgentError("not today")])
def test_what_was_sampled_is_kept_whatever_an_agent_makes_of_it(change, error):
    [honest] = played(doing(lambda _chats, _chat: None, error))
    [episode] = played(doing(change, error))
    assert episode.contexts == honest.contexts and len(episode.contexts[0].turns) == 2
    assert episode.failure is not None and episode.failure.fault == "agent"
    if error is None:
        assert episode.failure.kind == "OwnMistake" and episode.failure.boundary == "agent"
        assert "changed what was said in memory 1: copy it" in episode.failure.message
        assert "test_what_was_said.py:" in episode.failure.place
        assert honest.ok and not episode.answers


@pytest.mark.parametrize("change", CHANGES)
def test_samples_are_what_was_sampled(change):
    """The episode fails, and is trained with the tokens and log-probabilities that were drawn."""
    [honest, other] = played(doing(lambda _chats, _chat: None), n=2)
    [odd] = played(doing(change))
    honest.reward, other.reward = 1.0, 0.0
    real, _ = make_samples([[honest, other]], grpo)
    found, _ = make_samples([[odd, honest]], grpo)
    for name in ("token_ids", "trained", "logprobs"):
        assert np.array_equal(getattr(found, name), getattr(real, name))
    assert (found.advantages[found.trained] < 0).all()


def makes_a_chat_forget(chats: Chats, chat: Chat) -> None:
    chats.contexts.clear()  # type: ignore[attr-defined]


def takes_all_contexts(chats: Chats, chat: Chat) -> None:
    chats.contexts = ()  # type: ignore[misc]


def swaps_the_context(chats: Chats, chat: Chat) -> None:
    chat.context = replace(chat.context)  # type: ignore[misc]


def speaks_itself(chats: Chats, chat: Chat) -> None:
    chat.model = model()  # type: ignore[misc]


def brings_a_model(chats: Chats, chat: Chat) -> None:
    chats.models["memory"] = model()  # type: ignore[index]


@pytest.mark.parametrize(
    "change",
    [makes_a_chat_forget, takes_all_contexts, swaps_the_context, speaks_itself, brings_a_model],
)
def test_what_cannot_be_changed_says_so_in_the_line_that_tries(change):
    [episode] = played(doing(change))
    assert episode.failure is not None and episode.failure.fault == "agent"
    assert episode.failure.kind in ("AttributeError", "TypeError")
    assert "test_what_was_said.py:" in episode.failure.place
    assert [len(context.turns) for context in episode.contexts] == [2]


def test_a_prompt_is_what_was_said_and_not_what_is_shown():
    async def agent(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        chat = chats.open("memory")
        await chat.say("one")
        before, chat.context.ids = chat.context.ids, ()
        await chat.say("two")
        assert chat.context.ids[: len(before)] == before
        return ["a"]

    [episode] = played(agent)
    assert episode.ok and len(episode.contexts[0].turns) == 2  # and all is as it was


def test_an_agent_may_say_where_a_context_belongs_and_count():
    def notes(chats: Chats, chat: Chat) -> None:
        context = chat.context
        context.counts["ok"], context.label, context.stratum = 1, "first", "reading"
        context.question, context.chunks = 0, (0, 0)

    [episode] = played(doing(notes))
    [context] = episode.contexts
    assert episode.ok and context.counts == {"ok": 1} and context.chunks == (0, 0)
    assert (context.label, context.stratum, context.question) == ("first", "reading", 0)


def test_an_agent_gives_itself_no_rewards_for_steps():
    def pays(chats: Chats, chat: Chat) -> None:
        chat.context.steps["mine"], chat.context.reward = 9.0, 9.0

    failed = played(doing(pays, AgentError("not today")))[0]
    fine = played(doing(lambda _chats, _chat: None))[0]
    fine.contexts[0].steps = {"mine": 0.0}
    assert (failed.contexts[0].steps, failed.contexts[0].reward) == ({}, None)
    assert step_advantages([failed, fine]) == [[0.0], [0.0]]


class Served(Speaker):
    """A server that takes messages and returns no tokens."""

    async def reply(self, messages, tools, sampling) -> Spoken:
        return Spoken("yes", "stop")


PROMPT = TOKENIZER.encode("Which word?")


async def asks_beside(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
    policy: Any = chats.models["answer"].policy
    if isinstance(policy, Speaker):
        said = [{"role": "user", "content": "Which word?"}]
        return [(await policy.reply(said, (), SAMPLING)).content]
    policy = chats.open("answer").model.policy if task.id == "t" else policy
    return [TOKENIZER.decode((await policy.sample(PROMPT, SAMPLING)).token_ids)]


@pytest.mark.parametrize("speaker", [model(), Model(Served(), Renderer(TOKENIZER), False)])
def test_a_call_beside_the_chats_is_counted_and_fails_the_episode(speaker):
    [episode] = played(asks_beside, speaker)
    assert episode.failure is not None and episode.failure.fault == "agent"
    assert "asked a model 1 time beside its chats" in episode.failure.message
    context = episode.contexts[-1]
    assert (context.role, context.label, context.trainable) == ("answer", BESIDE, False)
    assert context.exact == speaker.exact and [*context.ids[: len(PROMPT)]] == PROMPT
    assert episode.prompt_tokens == len(PROMPT)
    assert episode.sampled_tokens == len("yes") + speaker.exact  # and an end token


def test_models_and_chats_of_an_episode_that_has_ended_say_nothing():
    kept: list[Any] = []

    async def agent(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        if kept:
            policy, chat, earlier = kept
            for call in (
                lambda: policy.sample(PROMPT, SAMPLING),
                lambda: chat.say("again"),
                lambda: earlier.open("memory").say("again"),
            ):
                with pytest.raises(RuntimeError, match="an episode that has ended"):
                    await call()
        kept[:] = chats.models["memory"].policy, chats.open("memory"), chats
        return ["a"]

    episodes = played(agent, n=2)
    assert [episode.ok for episode in episodes] == [True, True]
    assert [episode.sampled_tokens for episode in episodes] == [0, 0]


def test_a_reply_that_comes_after_the_end_changes_nothing():
    async def slow(_prompt: str) -> str:
        await asyncio.sleep(0.01)
        return "late"

    tasks: list[asyncio.Task[Any]] = []

    async def agent(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        chat = chats.open("memory")
        await chat.say(user("one"))
        tasks.append(asyncio.create_task(chat.say(user("two"))))
        await asyncio.sleep(0)
        return ["a"]

    async def run() -> Episode:
        speaker = Model(ScriptedPolicy(TOKENIZER, slow), Renderer(TOKENIZER))
        rolling = Rollout(as_agent(agent), {"memory": speaker}, NoReward())
        [[episode]] = await rolling.groups([TASK], 1, (0, 1))
        await asyncio.gather(*tasks)
        return episode

    episode = asyncio.run(run())
    [context] = episode.contexts
    assert episode.ok and len(context.turns) == 1 and len(context.ids) == context.turns[0].end

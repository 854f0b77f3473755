"""Who caused a failure: every boundary, and every way of running out of time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.concurrency.many import concurrently
from recollect.errors import AgentError, BoundaryError, UserError, boundary
from recollect.memory.text import TextMemory
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.base import Score
from recollect.rollout import Rollout
from recollect.types import Episode, Question, Task
from tests.support.bytes_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
TASK = Task("t", ("text",), (Question("Which?", ("a",)),))


def model(script: Any = lambda _prompt: "a", **settings: Any) -> Model:
    return Model(ScriptedPolicy(TOKENIZER, script), Renderer(TOKENIZER), **settings)


class Fine:
    async def __call__(self, episode, memory) -> Score:
        return Score(1.0, {"answer": 1.0})


@dataclass
class Acting:
    """An agent that says something in role memory and then does what it is given to do."""

    act: Any

    def new_memory(self, task: Task) -> TextMemory:
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> Any:
        reply = await chats.open("memory").say(user("go"))
        return await self.act(chats, reply.text)


def play(act: Any, reward: Any = None, timeout: float | None = None, **models: Model) -> Episode:
    rollout = Rollout(Acting(act), {"memory": model(), **models}, reward or Fine(), timeout=timeout)
    return asyncio.run(rollout.episode(TASK, 0, (0,)))


def raising(error: BaseException) -> Any:
    async def act(_chats: Chats, _text: str) -> list[str]:
        raise error

    return act


def caused_by(cause: Exception) -> Exception:
    error = RuntimeError("search failed")
    error.__cause__ = cause
    return error


# --- errors ---------------------------------------------------------------------------------------


async def parses(_chats: Chats, text: str) -> list[str]:
    return [json.loads(text)["answer"]]


async def overfills(chats: Chats, _text: str) -> list[str]:
    chat = chats.open("memory")
    for _ in range(9):
        await chat.say(user("x" * 40))
    return [""]


async def returns_two(_chats: Chats, _text: str) -> list[str]:
    return ["a", "b"]


async def returns_none(_chats: Chats, _text: str) -> list[str]:
    return [None]  # type: ignore[list-item]


@pytest.mark.parametrize(
    "act",
    [
        parses,
        overfills,
        returns_two,
        returns_none,
        raising(AttributeError("'NoneType' object has no attribute 'group'")),
        raising(RecursionError("too deep")),
        raising(AgentError("a reply that nothing can be made of")),
    ],
)
def test_what_an_agent_makes_of_its_replies_is_its_own(act):
    failure = play(act, memory=model(window=200)).failure
    assert failure is not None and failure.fault == "agent"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("no server"),
        FileNotFoundError("no such file"),
        OSError(28, "no space left on device"),
        MemoryError(),
        caused_by(ConnectionResetError("gone")),
    ],
)
def test_networks_and_disks_that_fail_an_agent_are_not_its_doing(error):
    failure = play(raising(error)).failure
    assert failure is not None and failure.fault == "environment"


@pytest.mark.parametrize(
    "name", ["policy", "endpoint", "embedder", "memory", "search", "my own service"]
)
def test_what_crosses_any_other_boundary_is_not_its_doing(name):
    with pytest.raises(BoundaryError) as caught, boundary(name):
        raise ValueError("no")
    assert caught.value.failure.fault == "environment"


def test_an_agent_error_is_the_agents_wherever_it_is_raised():
    """A memory too long for its reader is no failure of the reader's."""

    class Refusing:
        async def __call__(self, episode, memory) -> Score:
            with boundary("reader"):
                raise AgentError("too long to read")

    async def answers(_chats: Chats, _text: str) -> list[str]:
        return ["a"]

    assert play(answers, Refusing()).failure.fault == "agent"


@pytest.mark.parametrize("name", ["reward", "judge", "reader", "embedder"])
def test_what_fails_once_the_agent_is_done_is_a_measurement(name):
    class Failing:
        async def __call__(self, episode, memory) -> Score:
            with boundary(name):
                raise ConnectionError("gone")

    async def answers(_chats: Chats, _text: str) -> list[str]:
        return ["a"]

    episode = play(answers, Failing())
    assert (episode.failure.boundary, episode.failure.fault) == (name, "measurement")
    assert not episode.measured and not episode.counts


# --- time -----------------------------------------------------------------------------------------


def slow(seconds: float) -> Any:
    async def script(_prompt: str) -> str:
        await asyncio.sleep(seconds)
        return "a"

    return script


async def dawdles(_chats: Chats, _text: str) -> list[str]:
    await asyncio.sleep(60)
    raise AssertionError("not reached")


async def talks(chats: Chats, _text: str) -> list[str]:
    while True:
        await chats.open("memory").say(user("more"))


async def asks(chats: Chats, _text: str) -> list[str]:
    return [(await chats.open("answer").say(user("and?"))).text]


async def impatient(chats: Chats, _text: str) -> list[str]:
    async with asyncio.timeout(0.1):
        return await dawdles(chats, "")


async def impatient_with_others(chats: Chats, _text: str) -> list[str]:
    async with asyncio.timeout(0.1):
        return await asks(chats, "")


FIXED = model(slow(60), trainable=False)


@pytest.mark.parametrize(
    ("act", "models", "fault"),
    [
        (dawdles, {}, "agent"),
        (talks, {"memory": model(slow(0.03))}, "agent"),
        (impatient, {}, "agent"),
        (asks, {"answer": FIXED}, "environment"),
        (impatient_with_others, {"answer": FIXED}, "environment"),
        (talks, {"memory": model(slow(60))}, "environment"),
    ],
)
def test_the_time_limit_is_the_agents_where_the_time_was(act, models, fault):
    failure = play(act, timeout=0.2, **models).failure
    assert failure is not None and failure.fault == fault


def test_half_of_the_time_decides():
    """The agent's 0.3 s, then 60 s of a fixed model: with 0.4 s most was the agent's."""

    async def act(chats: Chats, text: str) -> list[str]:
        await asyncio.sleep(0.3)
        return await asks(chats, text)

    assert play(act, timeout=0.4, answer=FIXED).failure.fault == "agent"
    assert play(act, timeout=0.9, answer=FIXED).failure.fault == "environment"


def test_waits_at_once_count_once():
    """Four questions at once to a fixed model for 0.1 s, and 0.4 s of the agent's own."""

    async def act(chats: Chats, text: str) -> list[str]:
        await concurrently(asks(chats, text) for _ in range(4))
        return await dawdles(chats, text)

    answer = model(slow(0.1), trainable=False)
    assert play(act, timeout=0.5, answer=answer).failure.fault == "agent"


def test_a_reply_in_flight_when_time_is_over_is_kept_because_it_is_trained():
    """A habit of long replies must be seen by the update that is to unlearn it."""
    episode = play(talks, timeout=0.3, memory=model(slow(0.2)))
    assert episode.failure.fault == "agent" and "0.3 s" in episode.failure.message
    assert [len(context.turns) for context in episode.contexts] == [1, 1]
    assert episode.contexts[1].ids


def test_replies_in_flight_at_once_are_all_kept_and_nothing_is_said_after_them():
    said = 0

    async def script(_prompt: str) -> str:
        nonlocal said
        said += 1
        await asyncio.sleep(0.01 if said == 1 else 0.2 + said * 0.02)
        return "a"

    async def act(chats: Chats, _text: str) -> list[str]:
        async def one() -> None:
            chat = chats.open("memory")
            await chat.say(user("first"))
            await chat.say(user("second"))

        await concurrently(one() for _ in range(3))
        raise AssertionError("not reached")

    episode = play(act, timeout=0.2, memory=model(script))
    assert episode.failure.fault == "agent"
    assert [len(context.turns) for context in episode.contexts] == [1, 1, 1, 1]


def test_a_slow_judge_is_not_the_agents_time():
    class Slow:
        async def __call__(self, episode, memory) -> Score:
            await asyncio.sleep(60)
            raise AssertionError("not reached")

    async def answers(_chats: Chats, _text: str) -> list[str]:
        return ["a"]

    failure = play(answers, Slow(), timeout=0.1).failure
    assert (failure.boundary, failure.fault) == ("timeout", "measurement")


def test_an_evaluation_awaits_no_reply_after_the_limit():
    episode = play(talks, timeout=0.1, memory=model(slow(0.2), trainable=False))
    assert episode.failure.boundary == "timeout"
    assert [len(context.turns) for context in episode.contexts] == [0]


def test_a_mistake_found_while_replies_are_awaited_still_ends_the_run():
    async def script(_prompt: str) -> str:
        await asyncio.sleep(0.3)  # between the limit and twice the limit
        raise UserError("the server is gone")

    with pytest.raises(UserError, match="gone"):
        play(talks, timeout=0.2, memory=model(script))

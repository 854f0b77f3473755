"""Rollout: many episodes at once; what fails is data, and the rest goes on."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from recollect.agents.fold import FoldAgent
from recollect.agents.function import as_agent
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.concurrency.garbage import RARELY
from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rewards.base import Score
from recollect.rollout import Group, Rollout
from recollect.seeds import derive
from recollect.trials import unawaited
from recollect.types import Completion, Failure, MemoryOp, Question, Sampling, Task
from tests.support.bytes_tokenizer import END, ByteTokenizer

TOKENIZER = ByteTokenizer()


def task(name: str = "t") -> Task:
    return Task(name, (f"The word is {name}.",), (Question("Which word?", (name,)),))


@dataclass
class Closing(TextMemory):
    """A memory that counts how often it is closed."""

    closed: int = 0

    def close(self) -> None:
        self.closed += 1


@dataclass
class OneShot:
    """Ask once, answer with the reply; keep every memory that was opened."""

    memories: list[Closing] = field(default_factory=list)

    def new_memory(self, task: Task) -> Closing:
        self.memories.append(Closing())
        return self.memories[-1]

    async def run(self, task: Task, chats: Chats, memory: Closing) -> list[str]:
        memory.replace(task.chunks[0])
        reply = await chats.open("memory").say(user(task.id))
        return [reply.text]


class Word:
    """Reward the right word; the parts say so too."""

    async def __call__(self, episode, memory) -> Score:
        right = float(episode.answers[0] == episode.task.questions[0].answers[0])
        return Score(right, {"answer": right})


def echo(prompt: str) -> str:
    return prompt.removeprefix("user\n").partition("\n")[0]


def model(script=echo, **settings) -> Model:
    return Model(ScriptedPolicy(TOKENIZER, script), Renderer(TOKENIZER), **settings)


def rollout(agent=None, script=echo, reward=None, **settings) -> Rollout:
    return Rollout(agent or OneShot(), {"memory": model(script)}, reward or Word(), **settings)


def run(rolling: Rollout, names="abc", n=2, **settings) -> list[Group]:
    return asyncio.run(rolling.groups([task(name) for name in names], n, (0, 1), **settings))


# --- what an agent sees ---------------------------------------------------------------------------


@dataclass
class Peeking:
    """Answer with what the task itself gives away, and read by emptying the list of chunks."""

    sees_answers: bool = False
    seen: list[Task] = field(default_factory=list)

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        self.seen.append(replace(task, chunks=tuple(task.chunks), meta=deepcopy(task.meta)))
        while task.chunks:
            await chats.open("memory").say(user(task.chunks.pop()), max_tokens=9)
        task.meta["cluster"] = "mine"
        task.meta["days"].pop(0)["of"].clear()
        return [next(iter(q.answers), "unknown") for q in task.questions]


def peeked(agent: Peeking) -> list:
    gold = {"facts": [0], "dia_ids": ["a"], "questions": [{"rubric": ["a"]}], "style": "plain"}
    gold["days"] = [{"of": ["May"]}]
    shared = Task("a", ["one", "two"], (Question("?", ("a",), evidence=(1,)),), meta=gold)
    [group] = asyncio.run(rollout(agent).groups([shared], 2, (0, 1)))
    assert shared.questions[0].answers == ("a",) and "cluster" not in shared.meta
    assert shared.meta["days"] == [{"of": ["May"]}]
    return group


def test_an_agent_is_not_shown_the_answers_or_where_they_are() -> None:
    agent = Peeking()
    assert [e.reward for e in peeked(agent)] == [0.0, 0.0]
    for seen in agent.seen:
        assert seen.questions == (Question("?", ()),)
        assert seen.meta == {"style": "plain", "days": [{"of": ["May"]}]}


def test_an_agent_that_says_so_is_shown_the_answers() -> None:
    agent = Peeking(sees_answers=True)
    assert [e.reward for e in peeked(agent)] == [1.0, 1.0]
    assert agent.seen[0].questions[0].evidence == (1,) and "facts" in agent.seen[0].meta


def test_chunks_that_an_agent_takes_out_of_their_list_are_there_for_the_others() -> None:
    group = peeked(Peeking())
    assert [len(episode.contexts) for episode in group] == [2, 2]
    assert group[0].task.chunks == ["one", "two"]


class Meddling:
    """Changes what it was handed, and answers with what says that it is any text."""

    def __init__(self) -> None:
        self.trained: list[bool] = []

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        class Any(str):
            __slots__ = ()

            def __contains__(self, _other: object) -> bool:
                return True

        self.trained.append(chats.models["memory"].trainable)
        await chats.open("memory").say(user("?"), max_tokens=3)
        with pytest.raises(TypeError, match="does not support item assignment"):
            chats.models["memory"] = replace(chats.models["memory"], trainable=False)
        task.meta["days"][0][0].append("mine")
        return [Any("no")]


def test_an_episode_changes_neither_the_models_nor_the_answers_of_others() -> None:
    agent = Meddling()
    task = Task("a", ["one"], (Question("?", ("a",)),), meta={"days": ((["May"],),)})
    [group] = asyncio.run(rollout(agent).groups([task], 2, (0, 1)))
    assert agent.trained == [True, True]
    assert task.meta == {"days": ((["May"],),)}
    assert [type(episode.answers[0]) for episode in group] == [str, str]


# --- memories without an end ----------------------------------------------------------------------


def test_an_edit_that_is_nested_too_deep_fails_its_episode() -> None:
    async def nesting(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        deep: list = []
        for _ in range(10_000):
            deep = [deep]
        memory.ops.append(MemoryOp("odd", {"deep": deep}))
        return ["a"]

    [[episode]] = run(rollout(as_agent(nesting)), "a", 1)
    assert episode.failure is not None and "no MemoryOp with data that is plain" in (
        episode.failure.message
    )
    assert Path(__file__).name in episode.failure.place and episode.ops == []


def test_a_memory_that_grows_without_bound_fails_its_episode(monkeypatch) -> None:
    monkeypatch.setattr("recollect.memory.text.MOST", 100)

    async def growing(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        while True:
            memory.text += "and so on "

    [[episode]] = run(rollout(as_agent(growing)), "a", 1)
    assert episode.failure is not None and episode.failure.fault == "agent"
    assert (episode.failure.kind, len(episode.ops)) == ("MemoryFull", 4)
    assert Path(__file__).name in episode.failure.place


# --- order and shape ------------------------------------------------------------------------------


def test_groups_come_in_task_order_whatever_ends_first():
    async def backwards(prompt: str) -> str:
        await asyncio.sleep(0.02 * (ord("d") - ord(echo(prompt))))
        return echo(prompt)

    finished: list[str] = []
    groups = run(rollout(script=backwards), on_episode=lambda e: finished.append(e.task.id))
    assert [[(e.task.id, e.rollout) for e in group] for group in groups] == [
        [(name, 0), (name, 1)] for name in "abc"
    ]
    assert finished == ["c", "c", "b", "b", "a", "a"]


def test_an_episode_records_everything():
    agent = OneShot()
    episode = run(rollout(agent), "a", 1)[0][0]
    assert episode.ok and episode.failure is None
    assert (episode.answers, episode.reward, episode.scores) == (["a"], 1.0, {"answer": 1.0})
    assert episode.ops == agent.memories[0].ops and len(episode.ops) == 1
    assert len(episode.contexts) == 1 and episode.seconds > 0
    context = episode.contexts[0]
    assert episode.sampled_tokens == len(context.turns[0].token_ids) == 2
    assert episode.prompt_tokens == context.turns[0].start == len(context.ids) - 2


def test_no_tasks_no_groups():
    assert run(rollout(), "") == []


# --- failures are data ----------------------------------------------------------------------------


def only_b_succeeds(prompt: str) -> str:
    if echo(prompt) != "b":
        raise ConnectionError("server gone")
    return "b"


@dataclass
class Raising(OneShot):
    """Fail on all tasks but b, at the given place."""

    where: str = "run"

    def new_memory(self, task: Task) -> Closing:
        if self.where == "new_memory" and task.id != "b":
            raise OSError("disk full")
        return super().new_memory(task)

    async def run(self, task: Task, chats: Chats, memory: Closing) -> list[str]:
        answers = await super().run(task, chats, memory)
        if self.where == "run" and task.id != "b":
            raise KeyError("note 7")
        return answers


class RaisingReward:
    async def __call__(self, episode, memory) -> Score:
        if episode.task.id != "b":
            raise RuntimeError("judge unreachable")
        return Score(1.0)


FAILING = {
    "policy": (
        lambda: rollout(script=only_b_succeeds),
        Failure("policy", "ConnectionError", "server gone"),
    ),
    "agent": (lambda: rollout(Raising()), Failure("agent", "KeyError", "'note 7'", "agent")),
    "memory": (
        lambda: rollout(Raising(where="new_memory")),
        Failure("memory", "OSError", "disk full"),
    ),
    "reward": (
        lambda: rollout(reward=RaisingReward()),
        Failure("reward", "RuntimeError", "judge unreachable", "measurement"),
    ),
}


@pytest.mark.parametrize("boundary", FAILING)
def test_a_failed_episode_is_recorded_at_its_boundary_and_the_rest_goes_on(boundary):
    make, failure = FAILING[boundary]
    rolling = make()
    groups = run(rolling)
    assert [[e.failure for e in group] for group in groups] == [
        [failure] * 2,
        [None] * 2,
        [failure] * 2,
    ]
    for group in groups:
        for episode in group:
            assert (episode.reward is None) is not episode.ok
            assert episode.seconds > 0
    assert all(memory.closed == 1 for memory in rolling.agent.memories)


def test_a_failed_episode_keeps_what_it_had():
    """What was said and written before the failure is there to be looked at."""
    episode = run(rollout(Raising()), "a", 1)[0][0]
    assert len(episode.contexts[0].turns) == 1 and len(episode.ops) == 1
    assert episode.answers == [] and episode.reward is None and episode.scores == {}


def test_a_full_window_fails_the_episode():
    small = Rollout(OneShot(), {"memory": model(window=20)}, Word())
    failure = asyncio.run(small.groups([task("a")], 1, (0,)))[0][0].failure
    assert (failure.boundary, failure.kind) == ("agent", "ContextFull")
    assert "window of 20" in failure.message


def test_a_timeout_fails_only_the_slow_episode():
    async def slow_a(prompt: str) -> str:
        if echo(prompt) == "a":
            await asyncio.sleep(60)
        return echo(prompt)

    rolling = rollout(script=slow_a, timeout=0.05)
    groups = run(rolling, "ab")
    failure = groups[0][0].failure
    assert (failure.boundary, failure.kind) == ("timeout", "TimeoutError")
    assert failure.message.startswith("no end in 0.05 s")
    assert all(not e.ok for e in groups[0]) and all(e.ok for e in groups[1])
    assert all(memory.closed == 1 for memory in rolling.agent.memories)


def test_a_timeout_inside_the_policy_is_the_policys():
    def impatient(_prompt: str) -> str:
        raise TimeoutError("no reply in 300 s")

    failure = run(rollout(script=impatient, timeout=60), "a", 1)[0][0].failure
    assert (failure.boundary, failure.message) == ("policy", "no reply in 300 s")


def test_a_memory_that_cannot_be_closed_fails_its_episode():
    class Stuck(Closing):
        def close(self) -> None:
            super().close()
            raise OSError("locked")

    class Agent(OneShot):
        def new_memory(self, task: Task) -> Closing:
            self.memories.append(Stuck() if task.id == "a" else Closing())
            return self.memories[-1]

    groups = run(rollout(Agent()), "ab", 1)
    assert groups[0][0].failure == Failure("memory", "OSError", "locked", "measurement")
    assert groups[0][0].reward is None
    assert groups[1][0].ok


class Renewed(TextMemory):
    """Keeps its edits in a list that is another one after every edit."""

    def __init__(self, *odd) -> None:
        super().__init__()
        self._own = [*odd]

    @property
    def ops(self):
        return list(getattr(self, "_own", []))

    @ops.setter
    def ops(self, ops) -> None:
        self._own = [*ops]

    def edit(self, text: str) -> None:
        self._own = [*self._own, MemoryOp("note", {"text": text})]


def test_what_a_reward_writes_into_the_memory_is_not_stored():
    class Writing(Word):
        async def __call__(self, episode, memory) -> Score:
            memory.text = "mine"
            memory.ops.clear()
            return await super().__call__(episode, memory)

    [[episode]] = run(rollout(reward=Writing()), "a", 1)
    assert episode.ok and [op.data["text"] for op in episode.ops] == ["The word is a."]


def test_edits_are_stored_as_they_are_at_the_end():
    class Agent(OneShot):
        def new_memory(self, task: Task) -> Renewed:
            return Renewed()

        async def run(self, task, chats, memory):
            memory.edit("first")
            memory.edit("last")
            return await super().run(task, chats, memory)

    [[episode]] = run(rollout(Agent()), "a", 1)
    assert episode.ok and [op.data["text"] for op in episode.ops] == ["first", "last"]


@pytest.mark.parametrize(
    "odd", [("note", "x"), {"kind": "note"}, MemoryOp("note", {"x": object()})]
)
def test_edits_that_cannot_be_stored_fail_their_episode_with_a_line(odd):
    class Agent(OneShot):
        def new_memory(self, task: Task) -> Renewed:
            return Renewed(odd, MemoryOp("note", {"text": "sound"}))

    [[episode]] = run(rollout(Agent()), "a", 1)
    failure = episode.failure
    assert failure.kind == "OwnMistake" and "test_rollout.py:" in failure.place
    assert "the ops of Renewed hold" in failure.message
    assert [op.data for op in episode.ops] == [{"text": "sound"}]


@pytest.mark.parametrize("torn", ["before", "after"])
def test_edits_that_cannot_be_read_fail_their_episode_and_the_memory_is_closed(torn):
    """Not at all, or not when the agent is done."""

    class Torn(Closing):
        broken = False

        def __getattribute__(self, name: str):
            if name == "ops" and self.broken:
                raise OSError("gone")
            return super().__getattribute__(name)

    class Agent(OneShot):
        def new_memory(self, task: Task) -> Torn:
            self.memories.append(Torn())
            self.memories[-1].broken = torn == "before"
            return self.memories[-1]

        async def run(self, task, chats, memory):
            memory.broken = True
            return ["a"]

    agent = Agent()
    [[episode]] = run(rollout(agent), "a", 1)
    assert (episode.failure.boundary, episode.failure.message) == ("memory", "gone")
    assert agent.memories[0].closed == (torn == "after")


def test_a_new_memory_that_is_none_fails_its_episode_with_a_line():
    class Agent(OneShot):
        def new_memory(self, task: Task):
            Closing()

    [[episode]] = run(rollout(Agent()), "a", 1)
    assert "NoneType is no memory: it has no ops, snapshot" in episode.failure.message
    assert "test_rollout.py:" in episode.failure.place


def test_edits_that_are_no_list_fail_their_episode_with_a_line():
    class Nothing(Renewed):
        ops = property(lambda self: None, lambda self, ops: None)

    class Agent(OneShot):
        def new_memory(self, task: Task) -> Nothing:
            return Nothing()

        async def run(self, task, chats, memory):
            return ["x"] * len(task.questions)

    [[episode]] = run(rollout(Agent()), "a", 1)
    assert "the ops of Nothing are None, not a list" in episode.failure.message
    assert "test_rollout.py:" in episode.failure.place


def test_a_memory_that_needs_an_argument_is_named_with_its_line():
    class Needy(TextMemory):
        def __init__(self, size) -> None:
            super().__init__()

    class Agent(OneShot):
        new_memory = None
        memory = Needy

    [[episode]] = run(rollout(Agent()), "a", 1)
    assert "Needy cannot be opened without settings" in episode.failure.message
    assert "test_rollout.py:" in episode.failure.place


@pytest.mark.parametrize(
    "score",
    [Score(float("nan")), Score(float("inf")), Score(1.0, contexts=[float("nan")])],
)
def test_a_reward_that_is_no_number_fails_its_episode(score):
    class Broken:
        async def __call__(self, episode, memory) -> Score:
            return score if episode.task.id == "a" else Score(1.0)

    groups = run(rollout(reward=Broken()), "ab", 1)
    assert groups[0][0].failure.boundary == "reward" and groups[0][0].reward is None
    assert groups[0][0].contexts[0].reward is None
    assert groups[1][0].ok


def test_rewards_by_context_match_the_contexts():
    class Short:
        async def __call__(self, episode, memory) -> Score:
            return Score(1.0, contexts=np.zeros(2 if episode.task.id == "b" else 1))

    groups = run(rollout(reward=Short()), "ab", 1)
    assert groups[0][0].contexts[0].reward == 0.0 and groups[0][0].reward == 1.0
    assert groups[1][0].failure.boundary == "reward"


def test_a_user_error_stops_everything_and_closes_all_memories():
    started: list[str] = []

    async def mistaken(prompt: str) -> str:
        started.append(echo(prompt))
        if echo(prompt) == "c":
            raise UserError("no model at 'x'", "give a folder")
        await asyncio.sleep(60)
        raise AssertionError("not reached")

    rolling = rollout(script=mistaken)
    with pytest.raises(UserError, match="no model at 'x'"):
        run(rolling, "abcd")
    assert len(started) >= 3
    assert len(rolling.agent.memories) == 8
    assert all(memory.closed == 1 for memory in rolling.agent.memories)


def test_a_task_without_questions_is_the_users_mistake():
    empty = replace(task("a"), questions=())
    fold = Rollout(FoldAgent(), {"memory": model(), "answer": model()}, AnswerReward())
    with pytest.raises(UserError, match="task 'a' has no questions"):
        asyncio.run(fold.groups([empty], 1, (0,)))


def test_a_role_without_model_stops_everything():
    fold = Rollout(FoldAgent(), {"memory": model()}, AnswerReward())
    with pytest.raises(UserError, match="'answer'"):
        asyncio.run(fold.groups([task("a")], 1, (0,)))


def test_zero_concurrency_is_refused():
    with pytest.raises(UserError, match="must be at least 1"):
        rollout(concurrency=0)


# --- concurrency ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3), (1024, 10)])
def test_the_concurrency_limit_is_used_and_respected(limit, most):
    flying = seen = 0

    async def counted(prompt: str) -> str:
        nonlocal flying, seen
        flying += 1
        seen = max(seen, flying)
        await asyncio.sleep(0.01)
        flying -= 1
        return echo(prompt)

    run(rollout(script=counted, concurrency=limit), "abcde", 2)
    assert seen == most


def test_a_short_episode_does_not_wait_for_a_long_one():
    released = asyncio.Event()
    finished: list[str] = []

    async def long_a(prompt: str) -> str:
        if echo(prompt) == "a":
            await released.wait()
        return echo(prompt)

    async def watch() -> None:
        tasks = [task(name) for name in "abc"]
        rolling = rollout(script=long_a, concurrency=2)
        job = asyncio.create_task(
            rolling.groups(tasks, 1, (0,), on_episode=lambda e: finished.append(e.task.id))
        )
        while len(finished) < 2:
            await asyncio.sleep(0)
        assert finished == ["b", "c"] and not job.done()
        released.set()
        await job

    asyncio.run(asyncio.wait_for(watch(), 10))
    assert finished == ["b", "c", "a"]


def test_thousands_of_episodes_at_once():
    async def yielding(prompt: str) -> str:
        await asyncio.sleep(0)
        return echo(prompt)

    names = [f"t{i}" for i in range(500)]
    groups = run(rollout(script=yielding), names, 4)
    assert len(groups) == 500 and all(len(group) == 4 for group in groups)
    assert all(e.answers == [e.task.id] for group in groups for e in group)


# --- same seed, same run --------------------------------------------------------------------------


@dataclass(frozen=True)
class Dice:
    """A policy whose replies depend on prompt and seed alone, after an uneven wait."""

    uneven: bool

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        draw = derive(sampling.seed, *prompt_ids)
        for _ in range(draw % 7 if self.uneven else 0):
            await asyncio.sleep(0)
        ids = (*(97 + draw // 10**i % 26 for i in range(3)), END)
        return Completion(ids, tuple(-1.0 / (i + draw % 9) for i in ids), "stop")


def dice(uneven: bool, concurrency: int, key=(0, 1)) -> list[list[list[int]]]:
    speaker = Model(Dice(uneven), Renderer(TOKENIZER))
    fold = Rollout(
        FoldAgent(chunk_size=8, max_memory_tokens=8),
        {"memory": speaker, "answer": speaker},
        AnswerReward(),
        concurrency,
    )
    groups = asyncio.run(fold.groups([task(name) for name in "abc"], 3, key))
    return [[context.ids for context in e.contexts] for group in groups for e in group]


def test_same_seed_same_episodes_whatever_the_timing():
    assert dice(False, 1) == dice(True, 1024) == dice(True, 2)


def test_siblings_tasks_and_steps_draw_differently():
    episodes = dice(False, 9)
    assert len({str(e) for e in episodes}) == len(episodes) == 9
    later = dice(False, 9, key=(0, 2))
    assert all(a != b for a, b in zip(episodes, later, strict=True))


def test_tasks_of_equal_text_draw_differently():
    seeds: list[int] = []

    class Seeds(Dice):
        async def sample(self, prompt_ids, sampling):
            seeds.append(sampling.seed)
            return await super().sample(prompt_ids, sampling)

    speaker = Model(Seeds(False), Renderer(TOKENIZER))
    same = [replace(task("a"), id=name) for name in ("one", "two")]
    fold = Rollout(FoldAgent(), {"memory": speaker, "answer": speaker}, AnswerReward())
    asyncio.run(fold.groups(same, 2, (0, 1)))
    assert len(set(seeds)) == len(seeds) == 2 * 2 * 2


def test_a_task_that_comes_again_is_drawn_for_anew():
    """A data set smaller than a step: the same task twice must not be the same group twice."""
    speaker = Model(Dice(False), Renderer(TOKENIZER))
    models = {"memory": speaker, "answer": speaker}
    fold = Rollout(FoldAgent(chunk_size=8, max_memory_tokens=8), models, AnswerReward())
    met: Counter[str] = Counter()

    async def drawn() -> list[list[list[int]]]:
        groups = await fold.groups([task("a"), task("b"), task("a")], 2, (0, 1), met=met)
        groups += await fold.groups([task("a")], 2, (0, 1), met=met)
        return [[context.ids for context in e.contexts] for group in groups for e in group]

    episodes = asyncio.run(drawn())
    assert len({str(e) for e in episodes}) == len(episodes) == 8
    alone = asyncio.run(fold.groups([task("a")], 2, (0, 1)))
    assert [[c.ids for c in e.contexts] for e in alone[0]] == episodes[:2]


# --- concurrently ---------------------------------------------------------------------------------


def test_concurrently_cancels_and_awaits_the_others():
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)  # even a slow clean-up is awaited
            ended.append("cleaned")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        asyncio.run(concurrently([waits(), fails(), waits()]))
    assert ended == ["cleaned"] * 2


def test_concurrently_keeps_order_and_takes_nothing():
    async def after(ticks: int) -> int:
        for _ in range(ticks):
            await asyncio.sleep(0)
        return ticks

    assert asyncio.run(concurrently(after(i) for i in (5, 0, 3))) == [5, 0, 3]
    assert asyncio.run(concurrently([])) == []


@pytest.mark.parametrize(
    ("chosen", "meanwhile"),
    [((700, 10, 10), RARELY), ((0, 10, 10), (0, 10, 10)), ((90_000, 5, 5), (90_000, 5, 5))],
)
def test_the_collector_looks_rarely_in_a_rollout_and_then_as_before(chosen, meanwhile):
    seen = set()

    def script(prompt: str) -> str:
        seen.add(gc.get_threshold())
        return ["always"][len(prompt)]  # the mistake of an agent's own

    before = gc.get_threshold()
    gc.set_threshold(*chosen)
    try:
        assert not run(rollout(script=script))[0][0].ok
        assert gc.get_threshold() == chosen and seen == {meanwhile}
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_reply_that_was_never_awaited_is_freed_in_silence(frozen):
    """Also one that only the collector finds; and it keeps nothing from the collector."""

    async def reply() -> None:
        pass

    gc.unfreeze()
    if frozen:
        gc.freeze()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with unawaited():
                circle: list[object] = [reply()]
                circle.append(circle)
                del circle
            gc.collect()
        assert not said
        assert bool(gc.get_freeze_count()) == frozen
    finally:
        gc.unfreeze()

"""Forks: the rest of an episode run again from the very memory it had, by hand and in training."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from recollect.advantages import group_advantages, grpo
from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.config.engine import CriticConfig
from recollect.config.presets import preset
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import LocalConfig, RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.forks import Fork, choose_forks
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.runs.run import Run, read_metrics, without_times
from recollect.train.comparison import make_batch, split_local
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts
from recollect.types import Context, Episode, Failure, Question, Task, Turn
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.train.test_prefetch import killed

TOKENIZER = ByteTokenizer()
TASK = Task("t", ("one", "two", "three"), (Question("Which?", ("yes",)),))
AGENT = FoldAgent(
    None,
    prompts=FoldPrompts(
        chunk_first="{problem} {chunk} | {memory}",
        memory_first="{problem} {memory} | {chunk}",
        answer="Answer {problem} from {memory}",
    ),
)


class Nobody:
    def __getattr__(self, _name: str):
        return lambda *_args: None


@dataclass
class Voice:
    """Append a new letter to the memory at every chunk; answer from a list."""

    answers: list[str]
    asked: list[str] = field(default_factory=list)

    def __call__(self, prompt: str) -> str:
        self.asked.append(prompt)
        if "Answer" in prompt:
            return "\\boxed{" + self.answers.pop(0) + "}"
        return f"{prompt.partition('| ')[2].partition(chr(10))[0]}+{len(self.asked)}"


def rollout(voice, agent=AGENT) -> Rollout:
    model = Model(ScriptedPolicy(TOKENIZER, voice), Renderer(TOKENIZER))
    return Rollout(agent, {"memory": model, "answer": model}, AnswerReward())


def test_the_rest_is_run_again_from_the_same_memory():
    voice = Voice(["no", "yes", "no", "no"])
    rolling = rollout(voice)

    async def both() -> tuple[Episode, list[Episode]]:
        (base,) = (await rolling.groups([TASK], 1, (0, 1)))[0]
        assert len(voice.asked) == 4
        ((again,)) = await rolling.again([Fork(base, 2)], 3, (0, 1))
        return base, again

    base, again = asyncio.run(both())
    # Three times the last chunk and the answer: what came before was told, not asked.
    assert len(voice.asked) == 4 + 3 * 2
    assert [e.forked for e in again] == [2, 2, 2] and base.forked == 0
    for episode in again:
        assert [c.ids for c in episode.contexts[:2]] == [c.ids for c in base.contexts[:2]]
        start = base.contexts[2].turns[0].start
        assert episode.contexts[2].ids[:start] == base.contexts[2].ids[:start]
        assert [op.data["text"] for op in episode.ops[:2]] == [
            op.data["text"] for op in base.ops[:2]
        ]
        assert [c.trainable for c in episode.contexts] == [False, False, True, True]
    assert len({tuple(e.contexts[2].ids) for e in again}) == 3
    assert [e.reward for e in again] == [1.0, 0.0, 0.0]
    # Rewards 1, 0, 0 of those who started there: 2/3, -1/3, -1/3; what was told has none.
    found = group_advantages(again, grpo)
    assert found[0] == pytest.approx([0, 0, 2 / 3, 2 / 3])
    assert found[1] == found[2] == pytest.approx([0, 0, -1 / 3, -1 / 3])


def test_local_advantages_stand_beside_global_ones():
    voice = Voice(["yes", "no", "no", "yes", "yes"])
    rolling = rollout(voice)

    async def batch() -> list[list[Episode]]:
        whole = await rolling.groups([TASK], 2, (0, 1))
        return whole + await rolling.again([Fork(whole[0][1], 3)], 3, (0, 1))

    groups = asyncio.run(batch())
    whole, local = split_local(groups)
    assert (len(whole[0]), len(local[0])) == (2, 3)
    samples = make_batch(preset("demo"), whole, local)
    # Whole episodes 1, 0: +-1/2 on four contexts each. Answers 0, 1, 1 from one memory: -2/3, 1/3,
    # 1/3, on the answer alone.
    found = [float(s.advantages[s.trained][0]) for s in samples]
    assert found == pytest.approx([0.5] * 4 + [-0.5] * 4 + [-2 / 3, 1 / 3, 1 / 3])
    assert [s.local for s in samples] == [False] * 8 + [True] * 3
    assert {s.group for s in samples} == {0}  # one task: never cut apart
    assert [s.episode for s in samples] == [1] * 4 + [2] * 4 + [3, 4, 5]


def test_draws_of_a_fork_are_its_own():
    """Neither those of the siblings nor those of another fork are drawn again."""
    seeds: list[int] = []

    class Seeing(ScriptedPolicy):
        async def sample(self, prompt_ids, sampling):
            seeds.append(sampling.seed)
            return await super().sample(prompt_ids, sampling)

    model = Model(Seeing(TOKENIZER, Voice(["no"] * 99)), Renderer(TOKENIZER))
    rolling = Rollout(AGENT, {"memory": model, "answer": model}, AnswerReward())

    async def both() -> None:
        (group,) = await rolling.groups([TASK], 2, (0, 1))
        await rolling.again([Fork(group[0], 2), Fork(group[1], 2), Fork(group[0], 3)], 2, (0, 1))

    asyncio.run(both())
    assert len(seeds) == len(set(seeds)) == 2 * 4 + 2 * 2 + 2 * 2 + 2 * 1


def test_an_agent_that_goes_on_differently_fails():
    @dataclass
    class Moody:
        moods: list[str] = field(default_factory=lambda: ["a", "b"])

        def new_memory(self, task: Task):
            return AGENT.new_memory(task)

        async def run(self, task: Task, chats: Chats, memory: object) -> list[str]:
            await chats.open("memory").say(user(self.moods.pop(0)))
            return [(await chats.open("memory").say(user("and?"))).text]

    rolling = rollout(Voice([]), Moody())

    async def both() -> Episode:
        (base,) = (await rolling.groups([TASK], 1, (0, 1)))[0]
        return (await rolling.again([Fork(base, 1)], 1, (0, 1)))[0][0]

    failure = asyncio.run(both()).failure
    assert failure and failure.boundary == "replay" and "continued differently" in failure.message
    assert failure.fault == "environment"  # nothing that its models said could have helped


# --- where ----------------------------------------------------------------------------------------


def made(*trainable: bool, failed: bool = False, exact: bool = True) -> Episode:
    turn = Turn(1, (7,), (-1.0,), "stop")
    contexts = [Context("memory", trainable=t, turns=[turn], exact=exact) for t in trainable]
    failure = Failure("policy", "Error", "gone") if failed else None
    return Episode(TASK, 0, contexts, reward=0.0, failure=failure)


def test_forks_are_drawn_where_a_model_that_learns_speaks():
    group = [made(True, True, False), made(True, True, True, failed=True), made(False, True)]
    group[2].contexts.append(Context("memory"))  # in which nothing was said
    every = choose_forks(group, 9, (0, 1))
    assert [(group.index(f.episode), f.at) for f in every] == [(0, 1), (2, 1)]
    assert choose_forks([made(True)], 2, (0, 1)) == []
    seen = {choose_forks(group, 1, (0, step))[0].episode is group[0] for step in range(20)}
    assert seen == {True, False}
    assert choose_forks(group, 1, (5,)) == choose_forks(group, 1, (5,))


def test_what_was_said_must_be_known_by_its_tokens():
    spoken = made(True, True)
    spoken.contexts[0].exact = False
    with pytest.raises(UserError, match="returns no token ids"):
        choose_forks([spoken], 1, (0, 1))


# --- training -------------------------------------------------------------------------------------


def demo(**changes) -> TrainConfig:
    settings = {
        "rollout": RolloutConfig(tasks=4, n=4),
        "local": LocalConfig(n=3, forks=2),
        "val": ValidationConfig(tasks=2, before_training=False),
        "updates_per_step": 2,
        "test_freq": 100,
    }
    return replace(preset("demo"), **(settings | changes))


def run(folder: Path, config: TrainConfig) -> list[dict[str, float]]:
    opened = Run.open(folder, asdict(config), keep=config.keep)
    asyncio.run(train(Rollouts.open(config), opened, Nobody()))
    opened.close()
    return [without_times(row) for row in read_metrics(folder)]


def test_a_step_runs_some_of_its_episodes_again():
    config = demo()
    groups = asyncio.run(Rollouts.open(config).generate(1, Nobody()))
    whole, local = split_local(groups)
    assert [len(group) for group in whole] == [4] * 4
    assert [len(group) for group in local] == [3] * 8
    assert all(e.ok for group in groups for e in group)
    plain = asyncio.run(Rollouts.open(demo(local=LocalConfig())).generate(1, Nobody()))
    tokens = lambda gs: [c.ids for g in gs for e in g for c in e.contexts]  # noqa: E731
    assert tokens(plain) == tokens(whole)  # whole episodes are what they would be without
    every = [e for group in whole for e in group]
    for group in local:
        told = [[c.ids for c in e.contexts[: e.forked]] for e in group]
        assert all(own == told[0] for own in told)
        assert told[0] in [[c.ids for c in e.contexts[: group[0].forked]] for e in every]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_run_with_local_groups_learns_and_resumes(tmp_path, ahead):
    config = demo(rollout=RolloutConfig(tasks=4, n=4, ahead=ahead), steps=3, save_freq=1, keep=9)
    whole = run(tmp_path / "whole", config)
    for row in whole:
        assert row["local/episodes/total"] == 4 * 2 * 3
        assert row["episodes/total"] == 16
        assert row["samples/total"] > 16 * 4
        assert row["train/grad_norm"] > 0
    assert run(killed(tmp_path / "whole", tmp_path / "cut", 2), config) == whole


def test_only_groups_that_differ_are_forked(tmp_path):
    rollout = RolloutConfig(tasks=4, n=2, refills=1)
    for row in run(tmp_path / "run", demo(rollout=rollout, steps=1, local=LocalConfig(n=2))):
        assert row["local/episodes/total"] == 2 * row["groups/kept"]


def test_episodes_of_one_context_have_no_middle():
    config = replace(
        preset("curator"),
        rollout=RolloutConfig(tasks=1, n=2),
        local=LocalConfig(n=2),
        updates_per_step=1,
        val=ValidationConfig(tasks=1),
    )
    with pytest.raises(UserError, match="no middle"):
        asyncio.run(Rollouts.open(config).generate(1, Nobody()))


def test_a_step_in_which_nothing_can_be_run_again_is_told():
    """One chunk is read by who learns, and a fixed model answers."""
    told = []

    class Hears(Nobody):
        def note(self, text: str) -> None:
            told.append(text)

    base = preset("demo")
    for chunks, notes in ((1, 1), (2, 0)):
        tasks = replace(base.tasks, chunks=chunks)
        config = demo(tasks=tasks, models=ModelsConfig(answer=base.model.path))
        told.clear()
        groups = asyncio.run(Rollouts.open(config).generate(1, Hears()))
        _whole, local = split_local(groups)
        assert len(told) == notes == (not local)
        assert all("--local.n runs nothing again" in note for note in told)


@pytest.mark.parametrize("settings", [{"n": 1}, {"n": -1}, {"n": 2, "forks": 0}, {"weight": 0}])
def test_settings_without_sense_are_refused(settings):
    with pytest.raises(UserError, match=r"local\."):
        LocalConfig(**settings)


def test_a_critic_needs_no_local_groups():
    with pytest.raises(UserError, match="local"):
        demo(advantage="gae", critic=CriticConfig(lr=1e-3))

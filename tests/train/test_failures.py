"""What failures teach: a habit that fails half the time must lose, whichever estimator compares."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import numpy as np
import pytest

from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.config.presets import preset
from recollect.config.rollout import LocalConfig, RolloutConfig
from recollect.memory.text import TextMemory
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.base import Score
from recollect.rollout import Group, Rollout
from recollect.train.comparison import ESTIMATORS, differs, learned_from, make_batch
from recollect.train.metrics import episode_metrics, validation_metrics
from recollect.types import Context, Episode, Failure, Fault, Question, Task, Turn
from tests.support.bytes_tokenizer import ByteTokenizer

SAFE, RISKY = 1, 2
"""Two habits, each one token: right with 0.6, or right with 0.9 but failed half the time."""
ADVANTAGES = [*ESTIMATORS, "gdpo"]


def config(advantage: str, **settings):
    components = ("answer",) if advantage == "gdpo" else ()
    return replace(preset("demo"), advantage=advantage, components=components, **settings)


def episode(task: str, habit: int, rng: np.random.Generator, fault: Fault, forked=0) -> Episode:
    context = Context("memory", "", True, [0, habit], [Turn(1, (habit,), (-1.0,), "stop")])
    made = Episode(Task(task, (), ()), 0, [context], forked=forked)
    if habit == RISKY and rng.random() < 0.5:
        made.failure = Failure("timeout", "TimeoutError", "", fault)
    else:
        made.reward = float(rng.random() < (0.6 if habit == SAFE else 0.9))
        made.scores = {"answer": made.reward}
    return made


def share_of_risk(advantage: str, fault: Fault = "agent", local: bool = False) -> float:
    """Follow the policy gradient from an even start; return how likely the risky habit becomes."""
    settings = config(advantage, local=LocalConfig(n=4) if local else LocalConfig())
    rng, logit = np.random.default_rng(0), 0.0
    for _ in range(60):
        risk = 1 / (1 + np.exp(-logit))

        def group(task: int, forked: int = 0, risk: float = risk) -> Group:
            habits = [RISKY if rng.random() < risk else SAFE for _ in range(8)]
            return [episode(f"{task}", habit, rng, fault, forked) for habit in habits]

        whole = learned_from(settings, [group(i) for i in range(8)])
        again = [group(i, 1) for i in range(3)] if local else []
        samples = make_batch(settings, whole, again)
        value = np.array([sample.advantages[-1] for sample in samples])
        if advantage == "gae":  # a critic that knows the mean reward and nothing else
            value -= value.mean()
        risky = np.array([sample.token_ids[-1] == RISKY for sample in samples])
        logit += 4.0 * float((value * (risky - risk)).mean())
    return float(1 / (1 + np.exp(-logit)))


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_a_habit_that_times_out_half_the_time_loses_against_a_safe_one(advantage):
    assert share_of_risk(advantage) < 0.15


def test_it_would_win_if_its_failures_were_left_out():
    """So that the test above has something to find."""
    assert share_of_risk("grpo", "environment") > 0.85


def test_it_loses_among_episodes_run_again_too():
    assert share_of_risk("grpo", local=True) < 0.15


def made(*rewards: float | Fault) -> Group:
    rng = np.random.default_rng(0)
    found = []
    for number, reward in enumerate(rewards):
        own = episode("t", SAFE, rng, "agent")
        own.rollout = number
        if isinstance(reward, str):
            own.reward, own.failure = None, Failure("timeout", "TimeoutError", "", reward)
        else:
            own.reward, own.scores = reward, {"answer": reward}
        found.append(own)
    return found


@pytest.mark.parametrize("advantage", ADVANTAGES)
@pytest.mark.parametrize("fault", ["environment", "measurement"])
def test_a_lone_survivor_gets_no_advantage(advantage, fault):
    """Among other groups, and with nothing else in the batch."""
    lone, others = made(1.0, fault, fault), made(1.0, 0.0, 1.0)
    for groups in ([lone], [lone, others]):
        settings = config(advantage)
        samples = make_batch(settings, learned_from(settings, groups), [])
        rest = len(others) * (len(groups) - 1)
        assert len(samples) == rest + (advantage != "gae")  # a critic does not see it at all
        assert not any(sample.advantages.any() for sample in samples[: len(samples) - rest])


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_what_the_agent_failed_is_trained_and_all_other_failures_are_not(advantage):
    group = made(1.0, "agent", "environment", "measurement", 0.5)
    samples = make_batch(config(advantage), [group], [])
    assert [sample.episode for sample in samples] == [1, 2, 5]
    if advantage != "gae":
        assert samples[1].advantages[-1] < samples[2].advantages[-1] < samples[0].advantages[-1]


def test_a_failure_of_the_agents_own_tells_a_group_apart():
    refilled = config("grpo", rollout=RolloutConfig(n=2, refills=1))
    assert differs(refilled, made(1.0, "agent"))
    assert not differs(refilled, made(0.0, "agent"))
    assert not differs(refilled, made("agent", "agent"))
    assert not differs(refilled, made(1.0, "environment"))
    costly = config("grpo", rollout=RolloutConfig(n=2, refills=1, failure_reward=-1.0))
    assert differs(costly, made(0.0, "agent"))


def test_a_failure_pays_no_less_than_the_worst_sibling_was_charged():
    """Charges come first: replies that are charged below 0 do not make failing attractive."""
    charged = made(1.0, "agent", -0.7)
    samples = make_batch(config("grpo"), [charged], [])
    assert samples[1].advantages[-1] == samples[2].advantages[-1]


# --- with a real agent ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Reads:
    """An agent that can make nothing of some replies."""

    def new_memory(self, task: Task) -> TextMemory:
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        return [str(int((await chats.open("answer").say(user("A number?"))).text))]


class Right:
    async def __call__(self, episode, memory) -> Score:
        return Score(1.0, {"answer": 1.0})


def test_a_reply_that_cannot_be_read_is_trained_against():
    tokenizer = ByteTokenizer()
    replies = iter(["7", "seven", "8"])
    model = Model(ScriptedPolicy(tokenizer, lambda _prompt: next(replies)), Renderer(tokenizer))
    rollout = Rollout(Reads(), {"answer": model}, Right(), concurrency=1)
    task = Task("t", (), (Question("A number?", ("7",)),))
    groups = asyncio.run(rollout.groups([task], 3, (0,)))
    samples = make_batch(config("grpo"), groups, [])
    assert [round(float(s.advantages[-1]), 4) for s in samples] == [0.3333, -0.6667, 0.3333]


# --- what is reported -----------------------------------------------------------------------------


def test_training_rewards_count_what_the_agent_failed_and_say_whose_fault_it_was():
    found = episode_metrics(
        [made(1.0, "agent"), made(0.5, "environment"), made("measurement", 0.0)]
    )
    assert found["reward/mean"] == pytest.approx((1.0 + 0.0 + 0.5 + 0.0) / 4)
    assert found["groups/mixed"] == pytest.approx(1 / 3)
    assert found["episodes/failed"] == 3
    for fault in ("agent", "environment", "measurement"):
        assert found[f"episodes/failed_by_{fault}"] == 1
    assert episode_metrics([made(1.0, "agent")], failed=-3.0)["reward/mean"] == -1.0


def test_validation_counts_failures_in_rewards_and_scores_as_in_accuracy():
    found = validation_metrics([made(1.0), made("agent"), made("environment"), made(1.0)])
    assert found["val/accuracy"] == found["val/reward/mean"] == found["val/score/answer"] == 0.5
    assert found["val/reward/low"] < 0.5 < found["val/reward/high"]
    # The lowest reward of all, where some are below 0.
    found = validation_metrics([made(1.0), made(-0.5), made("agent")])
    assert found["val/reward/mean"] == 0.0


def test_a_category_that_is_called_as_our_own_metrics_is_kept_apart():
    groups = [made(1.0), made(0.5)]
    for group, category in zip(groups, ("reward", "score"), strict=True):
        for one in group:
            asked = (Question("Which?", ("elm",), category=category),)
            one.task, one.answers = replace(one.task, questions=asked), ["elm"]
    found = validation_metrics(groups)
    assert found["val/reward/mean"] == 0.75 and found["val/score/answer"] == 0.75
    assert not {"val/reward/accuracy", "val/score/n"} & set(found)
    for category in ("reward", "score"):
        assert found[f"val/category/{category}/n"] == 1


def test_validation_leaves_out_what_could_not_be_measured_and_counts_it():
    found = validation_metrics([made(1.0, 0.0), made("measurement", 1.0), made("measurement")])
    assert (found["val/n"], found["val/failed"], found["val/unmeasured"]) == (3, 0, 2)
    for name in ("accuracy", "reward/mean", "score/answer"):
        assert found[f"val/{name}"] == pytest.approx(2 / 3)
    nothing = validation_metrics([made("measurement")])
    assert nothing == {"val/n": 0, "val/failed": 0, "val/unmeasured": 1}

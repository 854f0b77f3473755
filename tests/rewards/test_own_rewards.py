"""What a reward or a metric of one's own returns is checked where it would spoil a measurement."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recollect.errors import OwnMistake, UserError, place_of
from recollect.memory.text import TextMemory
from recollect.metrics import find_metric, find_score, share_of
from recollect.rewards.base import Score
from recollect.rewards.function import WithAnswers, as_reward
from recollect.types import Context, Episode, Question, Task

TASK = Task("t", ("A text.",), (Question("Who?", ("Ann",)), Question("Where?", ("Rome",))))


def scored(reward: Any, answers: tuple[str, ...] = ("Ann", "Oslo")) -> tuple[Episode, Score]:
    """Let a reward of one's own judge an episode, as a run does."""
    contexts = [Context("answer", f"question {i}", True) for i in (1, 2)]
    episode = Episode(TASK, 0, contexts, answers=list(answers))
    own = WithAnswers(as_reward(reward), find_score("exact_match"))
    return episode, asyncio.run(own(episode, TextMemory()))


def test_answers_are_scored_beside_a_reward():
    _, score = scored(lambda episode, memory: np.float32(7))
    assert (score.reward, score.parts, list(score.answers)) == (7.0, {"answer": 0.5}, [1.0, 0.0])
    _, score = scored(lambda episode, memory: Score(1, answers=np.array([1.0, 0.5])))
    assert list(score.answers) == [1.0, 0.5] and score.parts == {"answer": 0.5}
    both = Score(1, {"answer": 0.25, "length": -7.0}, [None, 2.0], [0, 1], [{}, {"call": -1.0}])
    assert scored(lambda episode, memory: both)[1] == both


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (math.nan, "returned nan, which is no finite number"),
        (-math.inf, "returned -inf, which is no finite number"),
        (-1e308, r"returned -1e\+308, which is no finite number up to 1e\+12"),
        (10**400, "returned 1000"),
        (Score(1, {"length": 10**400}), "returned 1000"),
        (Score(1, {"length": math.nan}), "returned nan, which is no"),
        (Score(1, {"length": "long"}), "returned 'long', which is no finite number"),
        (Score(1, contexts=[math.inf, None]), "returned inf, which is no"),
        (Score(1, steps=[{}, {"call": math.nan}]), "returned nan, which is no"),
        (Score(1, {"answer": 5.0}), "returned 5.0 for an answer, not a number from 0 to 1"),
        (Score(1, answers=[0.5, -1]), "returned -1 for an answer"),
        (Score(1, answers=[1, 1, 1]), "returned 3 scores of answers, not 2"),
        (Score(1, contexts=[1.0]), "returned 1 rewards of contexts, not 2"),
        (Score(1, steps=[{}]), "returned 1 rewards of steps, not 2"),
    ],
)
def test_a_score_that_would_spoil_a_measurement_is_the_rewards_mistake(score, says):
    with pytest.raises(OwnMistake, match=f"the reward {says}") as raised:
        scored(lambda episode, memory: score)
    assert "test_own_rewards.py:" in raised.value.place


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"answers": None}, "answers is None: leave it out, or write a list"),
        ({"contexts": 1.0}, "contexts is 1.0"),
        ({"parts": None}, "None is no dict of named numbers"),
        ({"steps": [{}, 0.5]}, "0.5 is no dict"),
    ],
)
def test_a_score_of_the_wrong_kinds_is_refused_where_it_is_made(given, says):
    with pytest.raises(TypeError, match=says) as raised:
        scored(lambda episode, memory: Score(1, **given))
    assert "test_own_rewards.py:" in place_of(raised.value)


def test_a_metric_that_takes_something_else_is_refused_with_its_line():
    with pytest.raises(UserError, match=r"test_own_rewards.py:\d+: the metric does not take"):
        find_metric(lambda reply: 1.0)


def test_sums_of_floats_may_go_a_hair_beyond_a_share():
    """As does a cosine of equal vectors: a right answer must not fail its episode."""
    over = np.float32(1.0000001)
    assert find_metric(lambda reply, answers: over)("Ann", ("Ann",)) == 1
    assert find_metric(lambda reply, answers: -over + 1)("Ann", ("Ann",)) == 0
    _, score = scored(lambda episode, memory: Score(1, {"answer": over}, answers=[over, 0]))
    assert (score.parts, score.answers) == ({"answer": 1.0}, [1.0, 0.0])


def test_a_reward_cannot_write_the_answers_that_are_measured():
    seen = []

    def cheat(episode: Episode, memory: Any) -> float:
        seen.append(episode)
        episode.answers[:] = [question.answers[0] for question in episode.task.questions]
        return 1.0

    with pytest.raises(OwnMistake, match="changed the answers or the task, which are measured"):
        scored(cheat)
    assert seen[0].answers == ["Ann", "Oslo"]


def test_a_reward_cannot_change_what_is_asked_or_trained():
    seen = []

    def easier(episode: Episode, memory: Any) -> float:
        seen.append(episode)
        episode.task = replace(episode.task, questions=(Question("Who?", ("Ann",)),) * 2)
        return 1.0

    def shorter(episode: Episode, memory: Any) -> float:
        episode.contexts.pop()
        return 1.0

    with pytest.raises(OwnMistake, match="changed the answers or the task"):
        scored(easier)
    assert seen[0].task is TASK
    with pytest.raises(OwnMistake, match="changed the list of contexts, which are trained"):
        scored(shorter)


def swaps(episode: Episode) -> None:
    episode.contexts.pop()  # an equal one may come to lie at the same address
    episode.contexts.append(Context("answer", "question 2", True))


def takes_all(episode: Episode) -> None:
    kept: Any = None
    episode.task = episode.answers = episode.contexts = kept


def spoils(episode: Episode) -> None:
    episode.answers[:] = ["Ann", "Rome"]
    episode.task = replace(episode.task, questions=())
    episode.contexts.reverse()
    raise OSError("the judge is gone")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (swaps, OwnMistake, "changed the list of contexts"),
        (takes_all, OwnMistake, "changed the answers or the task"),
        (spoils, OSError, "the judge is gone"),
    ],
)
def test_whatever_a_reward_does_the_episode_is_stored_as_it_was(change, error, says):
    contexts = [Context("answer", f"question {i}", True) for i in (1, 2)]
    episode = Episode(TASK, 0, list(contexts), answers=["Ann", "Oslo"])

    def reward(episode: Episode, memory: Any) -> float:
        change(episode)
        return 1.0

    own = WithAnswers(as_reward(reward), find_score("exact_match"))
    with pytest.raises(error, match=says):
        asyncio.run(own(episode, TextMemory()))
    assert episode.task is TASK and episode.answers == ["Ann", "Oslo"]
    assert list(map(id, episode.contexts)) == list(map(id, contexts))


@pytest.mark.parametrize("returned", [2.0, -0.1, math.nan, math.inf, None, "0.5", [1]])
@pytest.mark.parametrize("find", [find_metric, find_score])
def test_a_metric_of_ones_own_returns_a_share(find, returned):
    given = TASK.questions[0] if find is find_score else ("Ann",)
    with pytest.raises(OwnMistake, match="not a number from 0 to 1") as raised:
        find(lambda reply, answers: returned)("Ann", given)
    assert "test_own_rewards.py:" in raised.value.place
    assert math.isnan(share_of(returned))
    for right in (True, 1, np.float32(0.5), np.bool_(True)):
        assert find(lambda reply, answers, own=right: own)("Ann", given) == float(right)

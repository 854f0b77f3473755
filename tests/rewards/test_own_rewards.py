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
from recollect.types import Context, Episode, MemoryOp, Question, Task, Turn

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
        (Score(1, {1: 0.5}), "returned a part named 1: a name must be text"),
        (Score(1, {" ": 0.5}), "returned a part named ' '"),
        (Score(1, {"a\n": 0.5}), "returned a part named"),
        (Score(1, steps=[{}, {None: 0.0}]), "returned a part named None"),
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


TURN = Turn(1, (7, 8), (-0.5, -0.25), "stop")
OP = MemoryOp("note", {"text": "a", "tags": ["x"]}, "chunk 1")


def writes_answers(episode: Episode, memory: Any) -> None:
    episode.answers[:] = [question.answers[0] for question in episode.task.questions]


def asks_easier(episode: Episode, memory: Any) -> None:
    episode.task = replace(episode.task, questions=(Question("Who?", ("Ann",)),) * 2)


def writes_meta(episode: Episode, memory: Any) -> None:
    episode.task.meta["days"][0]["of"].append("mine")


def empties_chunks(episode: Episode, memory: Any) -> None:
    episode.task.chunks.clear()  # type: ignore[attr-defined]


def swaps(episode: Episode, memory: Any) -> None:
    episode.contexts.pop()
    episode.contexts.append(Context("answer", "other", True))


def takes_all(episode: Episode, memory: Any) -> None:
    kept: Any = None
    episode.task = episode.answers = episode.contexts = kept


def hides_a_context(episode: Episode, memory: Any) -> None:
    episode.contexts[0].trainable = False


def forgets_turns(episode: Episode, memory: Any) -> None:
    episode.contexts[0].turns.clear()


def writes_tokens(episode: Episode, memory: Any) -> None:
    episode.contexts[0].ids = (1, 7, 9)


def writes_logprobs(episode: Episode, memory: Any) -> None:
    vars(episode.contexts[0].turns[0])["logprobs"] = (0.0, 0.0)


def counts(episode: Episode, memory: Any) -> None:
    episode.contexts[0].counts["ok"] = 9


def writes_edits(episode: Episode, memory: Any) -> None:
    memory.ops[0].data["tags"].append("y")


def forgets_edits(episode: Episode, memory: Any) -> None:
    episode.ops.clear()


def spoils(episode: Episode, memory: Any) -> None:
    for change in (writes_answers, writes_meta, hides_a_context, forgets_turns, writes_edits):
        change(episode, memory)
    raise OSError("the judge is gone")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *((change, "changed the answers or the task, which are measured") for change in
          (writes_answers, asks_easier, writes_meta, empties_chunks, takes_all)),
        *((change, "changed the list of contexts, which are trained") for change in
          (swaps, hides_a_context, forgets_turns, writes_tokens, writes_logprobs, counts)),
        *((change, "changed the edits of the memory") for change in (writes_edits, forgets_edits)),
        (spoils, "the judge is gone"),
    ],
)  # fmt: skip
def test_whatever_a_reward_does_the_episode_is_kept_as_it_was(change, says):
    memory = TextMemory()
    memory.ops.append(MemoryOp("note", {"text": "a", "tags": ["x"]}, "chunk 1"))

    def made(ops: list[MemoryOp]) -> Episode:
        context = Context("answer", "q", True, (1, 7, 8), [replace(TURN)], counts={"ok": 1})
        task = replace(TASK, chunks=["A text."], meta={"days": [{"of": ["May"]}]})
        return Episode(task, 0, [context], ops, ["Ann", "Oslo"])

    def reward(episode: Episode, memory: Any) -> float:
        change(episode, memory)
        return 1.0

    episode = made(list(memory.ops))
    own = WithAnswers(as_reward(reward), find_score("exact_match"))
    with pytest.raises(OSError if change is spoils else OwnMistake, match=says):
        asyncio.run(own(episode, memory))
    assert episode == made([OP])


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

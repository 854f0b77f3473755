"""Samples: exactly the sampled tokens are trained, with their own logprobs."""

from __future__ import annotations

import asyncio
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.advantages import group_advantages, grpo
from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Group, Rollout
from recollect.samples import make_sample, make_samples
from recollect.types import Context, Episode, Failure, Question, Sample, Task, Turn
from tests.support.bytes_tokenizer import END, ByteTokenizer

TOKENIZER = ByteTokenizer()
parts = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.floats(-9, -0.125, width=32), max_size=4)),
    min_size=1,
    max_size=5,
)


def build(parts, trainable=True) -> tuple[Context, list[bool], list[float]]:
    """Make a context of (prompt length, sampled logprobs) parts; tokens are numbered."""
    context = Context("memory", "memory", trainable)
    trained: list[bool] = []
    logprobs: list[float] = []
    for size, sampled in parts:
        context.ids += range(len(context.ids), len(context.ids) + size)
        start = len(context.ids)
        ids = tuple(range(start, start + len(sampled)))
        context.ids += ids
        context.turns.append(Turn(start, ids, tuple(sampled), "stop"))
        trained += [False] * size + [True] * len(sampled)
        logprobs += [0.0] * size + list(sampled)
    return context, trained, logprobs


@given(parts)
def test_exactly_the_sampled_tokens_are_trained(parts):
    context, trained, logprobs = build(parts)
    sample = make_sample(context, -0.75, group=3, episode=5)
    assert sample.token_ids.tolist() == context.ids
    assert sample.trained.tolist() == trained
    assert sample.logprobs.tolist() == logprobs
    assert sample.advantages.tolist() == [-0.75 if t else 0.0 for t in trained]
    assert (sample.group, sample.episode) == (3, 5)
    assert sample.token_ids.dtype == np.int64 and sample.trained.dtype == bool
    assert sample.advantages.dtype == sample.logprobs.dtype == np.float32


def test_what_follows_the_last_turn_is_not_kept():
    context, *_ = build([(2, [-1.0])])
    context.ids += [9, 9, 9]
    assert make_sample(context, 1.0, 0, 0).token_ids.tolist() == [0, 1, 2]


def test_arrays_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"differ in length: \[2, 3\]"):
        Sample(np.zeros(3), np.zeros(3, bool), np.zeros(2), np.zeros(3), 0, 0)


# --- from rollouts to samples ---------------------------------------------------------------------


def tasks(count: int) -> list[Task]:
    words = [f"w{i}" for i in range(count)]
    return [
        Task(w, (f"The word is {w}.", "Nothing.", "Rain."), (Question("Which?", (w,)),))
        for w in words
    ]


def roll(n=3, fixed=(), script=None) -> list[Group]:
    turn = iter(range(10**6))

    def remember(prompt: str) -> str:
        # Siblings differ, in length too: some answer right, some do not.
        guess = next(turn)
        return f"w{guess % 3} " + "th" * (guess % 5) + f"\\boxed{{w{guess % 3}}}"

    models = {
        role: Model(
            ScriptedPolicy(TOKENIZER, script or remember, logprob=-0.5),
            Renderer(TOKENIZER),
            trainable=role not in fixed,
        )
        for role in ("memory", "answer")
    }
    rollout = Rollout(FoldAgent(chunk_size=None), models, AnswerReward())
    return asyncio.run(rollout.groups(tasks(3), n, (0, 1)))


def test_one_sample_per_context_in_order():
    groups = roll()
    samples = make_samples(groups, grpo)
    contexts = [c for group in groups for e in group for c in e.contexts]
    assert [s.token_ids.tolist() for s in samples] == [[*c.ids] for c in contexts]
    assert len(samples) == 3 * 3 * (3 + 1)
    assert [s.group for s in samples] == [g for g in range(3) for _ in range(12)]
    assert len({s.episode for s in samples}) == 9
    assert [s.episode for s in samples] == sorted(s.episode for s in samples)
    for g in range(3):
        assert len({s.episode for s in samples if s.group == g}) == 3


def test_every_sampled_token_is_trained_once_and_no_other():
    groups = roll()
    samples = make_samples(groups, grpo)
    drawn = [
        list(turn.token_ids)
        for group in groups
        for episode in group
        for context in episode.contexts
        for turn in context.turns
    ]
    assert [s.token_ids[s.trained].tolist() for s in samples] == drawn
    assert sum(int(s.trained.sum()) for s in samples) == sum(
        e.sampled_tokens for group in groups for e in group
    )
    for sample in samples:
        assert set(sample.logprobs[sample.trained]) == {-0.5}
        assert not sample.logprobs[~sample.trained].any()
        assert not sample.advantages[~sample.trained].any()
        assert sample.token_ids[sample.trained][-1] == END


def test_samples_of_one_episode_share_one_advantage():
    groups = roll()
    by_episode = groupby(make_samples(groups, grpo), key=lambda sample: sample.episode)
    episodes = [(episode, group) for group in groups for episode in group]
    for (_, samples), (episode, group) in zip(by_episode, episodes, strict=True):
        rewards = [sibling.reward for sibling in group]
        assert len(set(rewards)) > 1  # there is something to compare
        expected = np.float32(episode.reward - np.mean(rewards))
        for sample in samples:
            assert set(sample.advantages[sample.trained]) == {expected}


@pytest.mark.parametrize(("fixed", "left"), [(("answer",), 3), (("memory",), 1)])
def test_a_fixed_models_contexts_give_no_sample_and_change_none(fixed, left):
    both = make_samples(roll(), grpo)
    half = make_samples(roll(fixed=fixed), grpo)
    assert len(half) == 9 * left
    kept = [s for i, s in enumerate(both) if (i % 4 == 3) is (left == 1)]
    for mine, theirs in zip(half, kept, strict=True):
        for name in ("token_ids", "trained", "advantages", "logprobs"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))


def test_nothing_trainable_gives_no_samples():
    assert make_samples(roll(fixed=("memory", "answer")), grpo) == []


def test_failed_episodes_give_no_samples_and_change_none():
    groups = roll()
    failed = Episode(groups[0][0].task, 7, groups[0][0].contexts, reward=50.0)
    failed.failure = Failure("policy", "ConnectionError", "gone")
    with_failed = [[failed, *group, failed] for group in groups]
    before, after = make_samples(groups, grpo), make_samples(with_failed, grpo)
    assert len(before) == len(after)
    for mine, theirs in zip(before, after, strict=True):
        assert mine.group == theirs.group
        for name in ("token_ids", "trained", "advantages", "logprobs"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
    assert group_advantages(with_failed[0], grpo)[0] == [0.0] * 4


def test_a_context_that_was_only_opened_gives_no_sample():
    groups = roll()
    groups[0][0].contexts.append(Context("memory", "memory"))
    assert len(make_samples(groups, grpo)) == 36


def test_no_groups_no_samples():
    assert make_samples([], grpo) == []
    assert make_samples([[], []], grpo) == []

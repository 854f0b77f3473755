"""Advantages: worked by hand, and blind to how many contexts an episode had."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.advantages import (
    Baseline,
    batch_lowest,
    gae,
    gdpo,
    group_advantages,
    grpo,
    mixed,
    raw,
    rloo,
    step_advantages,
    whitened,
    whitened_tokens,
)
from recollect.errors import UserError
from recollect.types import Context, Episode, Failure, Task, Turn

TASK = Task("t", (), ())
ESTIMATORS = [grpo, partial(grpo, by_std=True), rloo]
by_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=["grpo", "grpo_std", "rloo"])


def context(stratum="memory", reward=None, trainable=True, sampled=1) -> Context:
    turns = [Turn(1, (7,) * sampled, (-1.0,) * sampled, "stop")] if sampled else []
    return Context("memory", stratum, trainable, [1] + [7] * sampled, turns, reward)


def episode(reward: float | None, *contexts: Context, failed=False, fault=None) -> Episode:
    failed = fault or "environment" if failed or fault else None
    failure = Failure("policy", "ConnectionError", "gone", failed) if failed else None
    return Episode(TASK, 0, list(contexts) or [context()], reward=reward, failure=failure)


def advantages(estimator, *rewards: float) -> list[float]:
    return [own[0] for own in group_advantages([episode(r) for r in rewards], estimator)]


# --- by hand --------------------------------------------------------------------------------------


def test_grpo_subtracts_the_mean():
    assert advantages(grpo, 1, 0, 0, 1) == [0.5, -0.5, -0.5, 0.5]
    assert advantages(grpo, 3, 0, 0) == [2, -1, -1]


def test_grpo_by_std_divides_by_the_samples_deviation():
    # mean 1, deviations 2, -1, -1: variance (4 + 1 + 1) / (3 - 1) = 3
    got = advantages(partial(grpo, by_std=True), 3, 0, 0)
    assert got == pytest.approx([2 / (3**0.5 + 1e-6), -1 / (3**0.5 + 1e-6), -1 / (3**0.5 + 1e-6)])


def test_rloo_subtracts_the_mean_of_the_others():
    assert advantages(rloo, 1, 0, 0, 1) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    assert advantages(rloo, 5, 1) == [4, -4]


@by_estimator
def test_a_group_of_one_keeps_its_reward(estimator):
    assert advantages(estimator, 0.7) == [0.7]
    assert advantages(estimator) == []


@by_estimator
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3])
def test_equal_rewards_teach_nothing(estimator, reward):
    """Exactly nothing: rounding errors would be trained on."""
    for size in (2, 3, 5, 6, 7):
        assert advantages(estimator, *[reward] * size) == [0.0] * size
    group = [episode(reward, *[context()] * n) for n in (1, 3, 7)]
    assert not any(a for own in group_advantages(group, estimator) for a in own)


@by_estimator
@given(st.lists(st.integers(-8, 8), min_size=2, max_size=8))
def test_advantages_sum_to_zero_and_keep_the_order(estimator, rewards):
    got = advantages(estimator, *rewards)
    assert sum(got) == pytest.approx(0, abs=1e-9)
    assert np.argsort(rewards, kind="stable").tolist() == np.argsort(got, kind="stable").tolist()


def test_grpo_is_rloo_but_for_a_factor():
    rewards = (0.5, 2.0, -1.0, 0.0)
    assert advantages(rloo, *rewards) == pytest.approx(
        [4 / 3 * a for a in advantages(grpo, *rewards)]
    )


# --- contexts -------------------------------------------------------------------------------------


@by_estimator
@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(1, 6)), min_size=1, max_size=6))
def test_an_episode_counts_once_however_many_contexts_it_had(estimator, episodes):
    group = [episode(reward / 4, *[context()] * n) for reward, n in episodes]
    got = group_advantages(group, estimator)
    expected = advantages(estimator, *(reward / 4 for reward, _ in episodes))
    for own, one, (_, n) in zip(got, expected, episodes, strict=True):
        assert own == pytest.approx([one] * n)
        assert len(set(own)) == 1  # contexts of one episode share one advantage exactly


def test_strata_are_compared_apart():
    """Question i with question i, memory with memory."""
    first = episode(0.5, context("memory"), context("q1", 1.0), context("q2", 0.0))
    second = episode(1.0, context("memory"), context("q1", 1.0), context("q2", 1.0))
    assert group_advantages([first, second], grpo) == [[-0.25, 0, -0.5], [0.25, 0, 0.5]]


def test_contexts_of_one_stratum_enter_with_their_mean_and_keep_their_own_reward():
    # Episode means 0.5 and 0.25: the baseline is 0.375.
    first = episode(9.0, context(reward=1.0), context(reward=0.0))
    second = episode(9.0, context(reward=0.25))
    assert group_advantages([first, second], grpo) == [[0.625, -0.375], [-0.125]]
    # Leave one out: the others' mean of means.
    assert group_advantages([first, second], rloo) == [[0.75, -0.25], [-0.25]]


def test_a_contexts_own_reward_of_zero_is_a_reward():
    group = [episode(1.0, context(reward=0.0)), episode(1.0, context())]
    assert group_advantages(group, grpo) == [[-0.5], [0.5]]


def test_a_stratum_only_some_episodes_have():
    group = [episode(1.0, context(), context("q1", 1.0)), episode(0.0, context())]
    # Alone in q1, there is nothing to be compared with.
    assert group_advantages(group, grpo) == [[0.5, 0.0], [-0.5]]


# --- what is left out -----------------------------------------------------------------------------

rewarded = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=6)


@by_estimator
@given(rewards=rewarded, places=st.lists(st.integers(0, 6), max_size=4))
def test_adding_failed_episodes_changes_nothing(estimator, rewards, places):
    group = [(episode(reward), True) for reward in rewards]
    for place in places:
        # A failed episode may even have got as far as a reward.
        broken = episode(100.0, context(), context(reward=50.0), failed=True)
        group.insert(place, (broken, False))
    got = group_advantages([e for e, _ in group], estimator)
    # A lone survivor has nothing to be compared with; one that never had siblings keeps its reward.
    expected = [0.0] if places and len(rewards) == 1 else advantages(estimator, *rewards)
    assert [own[0] for own, (_, ok) in zip(got, group, strict=True) if ok] == expected
    assert all(own == [0.0, 0.0] for own, (_, ok) in zip(got, group, strict=True) if not ok)


@by_estimator
@given(rewards=rewarded)
def test_untrainable_contexts_are_in_no_statistic(estimator, rewards):
    fixed = context(reward=100.0, trainable=False)
    group = [episode(reward, fixed, context(), fixed) for reward in rewards]
    for own, one in zip(
        group_advantages(group, estimator), advantages(estimator, *rewards), strict=True
    ):
        assert own == [0.0, one, 0.0]


def test_an_episode_without_trainable_contexts_is_in_no_statistic():
    group = [episode(1.0), episode(0.0), episode(9.0, context(trainable=False))]
    assert group_advantages(group, grpo) == [[0.5], [-0.5], [0.0]]


def test_a_context_in_which_nothing_was_said_is_in_no_statistic():
    group = [episode(1.0), episode(0.0), episode(9.0, context(sampled=0))]
    assert group_advantages(group, grpo) == [[0.5], [-0.5], [0.0]]


def test_all_failed():
    assert group_advantages([episode(None, failed=True)] * 2, grpo) == [[0.0], [0.0]]


def test_a_missing_reward_is_a_bug():
    with pytest.raises(ValueError, match="task t has no reward"):
        group_advantages([episode(None)], grpo)


def test_estimators_are_pluggable():
    def best(rewards_G: np.ndarray) -> Baseline:
        return Baseline(np.full(len(rewards_G), rewards_G.max()), scale=2.0)

    assert advantages(best, 3, 1) == [0, -1]


# --- what the agent failed ------------------------------------------------------------------------


def lost(*contexts: Context) -> Episode:
    return episode(None, *contexts, fault="agent")


def test_a_failure_of_the_agents_own_earns_the_lowest_reward_and_at_most_0():
    # Rewards 1, 0.5 and 0; then -1, 0.5 and -1.
    assert group_advantages([episode(1.0), episode(0.5), lost()], grpo) == [[0.5], [0.0], [-0.5]]
    found = group_advantages([episode(-1.0), episode(0.5), lost()], grpo)
    assert found == [[-0.5], [1.0], [-0.5]]
    # A setting takes its place: 1, 0.5 and -3.
    found = group_advantages([episode(1.0), episode(0.5), lost()], grpo, failed=-3.0)
    assert found == [[1.5], [1.0], [-2.5]]
    assert group_advantages([lost()], grpo, failed=-3.0) == [[-3.0]]


def test_a_failed_episode_earns_the_lowest_of_each_stratum_it_came_to():
    whole = episode(0.5, context(), context("q1", -1.0), context("q2", 1.0))
    early, late = lost(context()), lost(context(), context("q1"))
    found = group_advantages([whole, early, late], grpo)
    # memory 0.5, 0, 0; q1 -1 and -1; q2 has one alone.
    assert found == [pytest.approx(own) for own in ([1 / 3, 0, 0], [-1 / 6], [-1 / 6, 0])]


@by_estimator
@given(rewards=rewarded, failures=st.integers(1, 4))
def test_no_failure_of_the_agents_own_does_better_than_a_sibling(estimator, rewards, failures):
    group = [*map(episode, rewards), *[lost()] * failures]
    found = [own[0] for own in group_advantages(group, estimator)]
    assert max(found[len(rewards) :]) <= min(found)
    assert (min(found) < 0) is (len({*rewards, min(0.0, *rewards)}) > 1)


@by_estimator
def test_groups_that_the_agent_failed_as_a_whole_teach_nothing(estimator):
    assert group_advantages([lost(), lost(), lost()], estimator) == [[0.0]] * 3


def test_gdpo_gives_failures_the_lowest_of_every_component():
    group = [scored(a=1.0, b=-1.0), scored(a=0.5, b=0.0), lost(context(), context("q1"))]
    expected = gdpo([*group[:2], scored(a=0.0, b=-1.0)], ["a", "b"])
    assert gdpo(group, ["a", "b"]) == expected


def test_a_batch_has_one_lowest_reward_where_groups_are_compared_with_one_another():
    groups = [[episode(1.0), lost()], [episode(-2.0, context(reward=-3.0))], [lost()]]
    assert batch_lowest(groups) == -3.0
    assert batch_lowest([[episode(1.0)], [lost()]]) == 0.0
    assert batch_lowest([]) == 0.0


def test_one_left_of_a_batch_has_nothing_to_be_whitened_by():
    left, gone = episode(2.0), episode(None, failed=True)
    assert whitened([[left], [gone]], [[[2.0]], [[0.0]]]) == [[[0.0]], [[0.0]]]


# --- over the whole batch -------------------------------------------------------------------------


def test_reinforce_pp_whitens_over_the_batch():
    groups = [[episode(1.0), episode(0.0)], [episode(1.0), episode(1.0)]]
    alone = [group_advantages(group, raw) for group in groups]
    assert alone == [[[1.0], [0.0]], [[1.0], [1.0]]]
    # mean 3/4; variance (3 / 16 + 9 / 16) / 3 = 1/4
    expected = [0.25 / 0.5, -0.75 / 0.5, 0.25 / 0.5, 0.25 / 0.5]
    found = whitened(groups, alone)
    assert [a for group in found for own in group for a in own] == pytest.approx(expected)


def test_its_baseline_form_leaves_groups_without_differences_alone():
    groups = [[episode(0.1 * i) for i in range(3)], [episode(0.7)] * 3, [episode(1 / 3)] * 3]
    found = whitened(groups, [group_advantages(group, grpo) for group in groups])
    # Deviations -0.1, 0, 0.1 among nine: variance 0.02 / 8
    assert [own[0] for own in found[0]] == pytest.approx([-2.0, 0.0, 2.0], rel=1e-4, abs=1e-12)
    assert found[1] == found[2] == [[0.0]] * 3  # exactly


def test_whitening_counts_an_episode_once_and_failed_ones_never():
    few = [[episode(3.0), episode(1.0)], [episode(0.0), episode(-4.0)]]
    many = [
        [episode(3.0, *[context()] * 5), episode(None, failed=True), episode(1.0)],
        [episode(0.0), episode(-4.0, context(), context(trainable=False, reward=50.0), context())],
    ]
    one = whitened(few, [group_advantages(group, raw) for group in few])
    other = whitened(many, [group_advantages(group, raw) for group in many])
    assert other[0] == [one[0][0] * 5, [0.0], one[0][1]]
    assert other[1] == [one[1][0], [one[1][1][0], 0.0, one[1][1][0]]]
    entries = np.array([own[0] for group in one for own in group])
    assert entries.mean() == pytest.approx(0.0, abs=1e-12)
    assert entries.std(ddof=1) == pytest.approx(1.0)


def test_whitening_what_is_alone_changes_nothing():
    assert whitened([[episode(2.0)]], [[[2.0]]]) == [[[2.0]]]
    assert whitened([], []) == []


def scored(**scores: float) -> Episode:
    made = episode(99.0, context(), context("q1", reward=5.0))
    made.scores = scores
    return made


def test_gdpo_lets_every_component_count_the_same():
    # Ten times as much changes nothing: (1, 0) and (10, 0) both become 1/sqrt(2), -1/sqrt(2).
    group = [scored(answer=1.0, boxed=0.0), scored(answer=0.0, boxed=10.0)]
    assert gdpo(group, ["answer"]) == [
        pytest.approx([2**-0.5] * 2, rel=1e-5),
        pytest.approx([-(2**-0.5)] * 2, rel=1e-5),
    ]
    assert gdpo(group, ["answer", "boxed"]) == [pytest.approx([0.0] * 2, abs=1e-5)] * 2
    # Three: answers 1, 0, 0 (mean 1/3, deviation 3 ** -0.5) and boxes 1, 1, 0 (2/3, the same)
    three = [scored(a=1, b=1), scored(a=0, b=1), scored(a=0, b=0)]
    found = [own[0] for own in gdpo(three, ["a", "b"])]
    assert found == pytest.approx([3**0.5, 0.0, -(3**0.5)], rel=1e-5, abs=1e-5)


def test_gdpo_leaves_failed_episodes_out_and_asks_for_names_that_exist():
    group = [scored(a=1.0), episode(None, failed=True), scored(a=0.0)]
    assert gdpo(group, ["a"])[1] == [0.0]
    assert gdpo(group, ["a"])[0] == gdpo([group[0], group[2]], ["a"])[0]
    with pytest.raises(UserError, match="named 'b'") as caught:
        gdpo(group, ["b"])
    assert "some of a" in caught.value.fix


# --- steps ----------------------------------------------------------------------------------------


def stepping(*gains: float | None, failed: bool = False) -> Episode:
    made = episode(1.0, *[context() for _ in gains], context("q1"), failed=failed)
    for own, gain in zip(made.contexts, gains, strict=False):
        own.steps = {} if gain is None else {"recall": gain}
    return made


def test_steps_are_compared_with_the_siblings_same_step():
    group = [stepping(1.0, 0.0, 0.5), stepping(0.0, 1.0), stepping(9.0, failed=True)]
    # Step 1: mean 0.5; step 2: mean 0.5; only one got to step 3; answers have no step reward.
    assert step_advantages(group) == [[0.5, -0.5, 0.0, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0]]


def test_named_step_rewards_are_centred_apart_and_added():
    group = [stepping(1.0), stepping(0.0), stepping(None)]
    group[0].contexts[0].steps["format"] = 0.0
    group[2].contexts[0].steps["format"] = 1.0
    # recall: 1, 0 (mean 0.5); format: 0, 1 (mean 0.5)
    assert [own[0] for own in step_advantages(group)] == [0.0, -0.5, 0.5]


def test_mixing_by_hand():
    assert mixed([[1.0, -1.0]], [[0.5, 0.0]], 0.8) == [pytest.approx([0.9, -0.8])]


@pytest.mark.parametrize("gain", [0.1, 1 / 3])
def test_equal_steps_teach_nothing(gain):
    assert step_advantages([stepping(gain, gain)] * 3) == [[0.0] * 3] * 3


# --- with a critic --------------------------------------------------------------------------------


def test_gae_by_hand():
    # d = 0 + 0.5 * 2 - 1, 0 + 0.5 * 4 - 2, 3 - 4 = 0, 0, -1
    # A3 = -1, A2 = 0 + 0.5 * 0.5 * -1, A1 = 0 + 0.25 * -0.25
    found, returns = gae(np.array([0, 0, 3.0]), np.array([1.0, 2.0, 4.0]), gamma=0.5, lam=0.5)
    assert found.tolist() == [-0.0625, -0.25, -1.0]
    assert returns.tolist() == [0.9375, 1.75, 3.0]


def test_gae_between_its_extremes():
    rewards, values = np.array([0.5, 0, 1.0]), np.array([0.2, 0.7, 0.4])
    # lam = 1: all that is still to come, less what was expected; lam = 0: one step ahead.
    assert gae(rewards, values)[0] == pytest.approx([1.3, 0.3, 0.6])
    assert gae(rewards, values, lam=0.0)[0] == pytest.approx([1.0, -0.3, 0.6])
    assert [len(x) for x in gae(np.empty(0), np.empty(0))] == [0, 0]


@given(st.integers(0, 2**32 - 1), st.floats(0, 1), st.floats(0, 1))
def test_gae_is_the_discounted_sum_of_what_surprised(seed, gamma, lam):
    """Rows with gaps between replies and pads behind, summed term by term."""
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, 12))
    drawn = rng.random(12) < 0.6
    at = np.flatnonzero(drawn)
    found, returns = gae(rewards[at], values[at], gamma, lam)
    for i, t in enumerate(at):
        total = 0.0
        for distance, later in enumerate(at[i:]):
            after = at[at > later]
            coming = gamma * values[after[0]] if len(after) else 0.0
            total += (gamma * lam) ** distance * (rewards[later] + coming - values[later])
        assert found[i] == pytest.approx(total, rel=1e-9, abs=1e-12)
        assert returns[i] == pytest.approx(total + values[t], rel=1e-9, abs=1e-12)


def test_tokens_are_whitened_over_the_batch():
    # mean 2, variance (1 + 1 + 0 + 0) / 3
    found = whitened_tokens([np.array([1.0, 3.0]), np.array([2.0]), np.empty(0), np.array([2.0])])
    size = (2 / 3 + 1e-8) ** 0.5
    assert [own.tolist() for own in found] == [[-1 / size, 1 / size], [0.0], [], [0.0]]
    assert whitened_tokens([np.array([5.0])])[0].tolist() == [5.0]
    assert whitened_tokens([]) == []

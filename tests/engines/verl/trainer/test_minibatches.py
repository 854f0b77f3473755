"""A batch becomes a fixed number of mini-batches, whatever the number of contexts in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.engines.verl.trainer.minibatches import arrange, cut, needed
from recollect.train.trainer import split_by_group
from tests.support.verl_rows import samples_of_groups


def deal(sizes, ranks):
    return [list(range(len(sizes)))[rank::ranks] for rank in range(ranks)]


batches = st.tuples(
    st.lists(st.integers(0, 7), min_size=1, max_size=9).filter(any),  # contexts of every group
    st.integers(1, 4),  # updates
    st.integers(1, 4),  # ranks
)


@given(batches)
def test_every_rank_cuts_its_share_into_the_same_mini_batches(batch):
    counts, updates, ranks = batch
    order = [f"g{i}" for i in range(len(counts))]
    groups = [f"g{i}" for i, n in enumerate(counts) for _ in range(n)]
    groups = groups[::2] + groups[1::2]  # verl gives rows in any order
    parts = cut(groups, order, updates)
    total = needed(parts, ranks)
    arranged = arrange(parts, range(len(groups), total), [1] * total, ranks, deal)

    assert sorted(arranged) == list(range(total))
    share, own = total // ranks, total // ranks // updates
    for number, part in enumerate(parts):
        # verl hands every rank an equal share, and cuts that into equal mini-batches.
        starts = [rank * share + number * own for rank in range(ranks)]
        got = [row for start in starts for row in arranged[start : start + own]]
        assert {row for row in got if row < len(groups)} == set(part)


@given(batches)
def test_mini_batches_are_the_embedded_engines(batch):
    counts, updates, _ = batch
    samples = samples_of_groups(counts)
    groups = [str(sample.group) for sample in samples]
    order = [str(i) for i in range(len(counts))]
    assert cut(groups, order, updates) == split_by_group(samples, updates)


def test_padding_is_as_little_as_equal_shares_allow():
    parts = cut(["a"] * 41 + ["b"] * 7, ["a", "b"], 2)
    assert [len(part) for part in parts] == [41, 7]
    assert needed(parts, 1) == 82
    assert needed(parts, 4) == 2 * 4 * 11
    assert needed(cut(["a"] * 8, ["a"], 1), 4) == 8

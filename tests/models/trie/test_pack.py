"""Tries: where tokens stand, who sees whom, and where a batch is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.models.attention import Heads
from recollect.models.trie import pack as batch
from recollect.models.trie.pack import pack, plan_micro_batches
from tests.support.plain import sample

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)


def prefixes(rows) -> set[tuple[int, ...]]:
    return {tuple(row[: n + 1]) for row in rows for n in range(len(row))}


@given(ROWS, st.booleans())
def test_every_row_is_found_again(rows, share):
    packed = pack(rows, "cpu", share)
    ids, positions = packed.ids.numpy(), packed.positions.numpy()
    for row, index in zip(rows, packed.index, strict=True):
        assert ids[index].tolist() == row
        assert positions[index].tolist() == list(range(len(row)))
    count = len(prefixes(rows)) if share else sum(map(len, rows))
    assert len(ids) == count


@settings(deadline=None)
@given(ROWS, st.sampled_from([None, 1, 3, 100]), st.sampled_from([None, 2.0]), st.integers(0, 99))
def test_attention_sees_exactly_its_path(rows, window, softcap, overhead):
    """Against a loop over tokens; small overheads make many buckets."""
    torch.manual_seed(0)
    batch_overhead, batch.BUCKET_OVERHEAD = batch.BUCKET_OVERHEAD, overhead
    try:
        packed = pack(rows, "cpu")
    finally:
        batch.BUCKET_OVERHEAD = batch_overhead
    tokens = len(packed.ids)
    q, k, v = torch.randn(4, tokens, 8), torch.randn(2, tokens, 8), torch.randn(2, tokens, 6)
    out = packed.plan.attend(Heads(0, 0.5, window, softcap), q, k, v)
    assert out.shape == (tokens, 4, 6)
    for index in packed.index:
        expected = torch.empty(len(index), 4, 6)
        for depth, at in enumerate(index):
            path = index[max(0, depth + 1 - (window or 100)) : depth + 1]
            for head in range(4):
                scores = k[head // 2, path] @ q[head, at] * 0.5
                scores = softcap * torch.tanh(scores / softcap) if softcap else scores
                expected[depth, head] = scores.softmax(0) @ v[head // 2, path]
        torch.testing.assert_close(out[index], expected, rtol=1e-4, atol=1e-5)


def test_branches_of_like_shape_share_a_bucket():
    rng = np.random.default_rng(0)
    stem = rng.integers(0, 99, 500)
    rows = [np.concatenate([stem, rng.integers(0, 99, 100)]) for _ in range(16)]
    plan = pack(rows, "cpu").plan
    shapes = [(b.start, b.length, b.members) for b in plan._buckets]
    assert sorted(shapes) == [(0, 600, 1), (500, 600, 15)]
    assert pack(rows, "cpu", share=False).plan._buckets[0].members == 16


def test_padding_is_bounded():
    rng = np.random.default_rng(1)
    rows = [rng.integers(0, 9, n) for n in rng.integers(3, 2000, 60)]
    plan = pack(rows, "cpu").plan
    needed = sum(len(row) ** 2 for row in rows)
    padded = sum(b.members * (b.length - b.start) * b.length for b in plan._buckets)
    assert padded < 1.3 * needed
    assert len(plan._buckets) < 40


@given(ROWS, st.integers(1, 40))
def test_micro_batches_hold_every_sample_once_within_the_budget(rows, budget):
    samples = [sample(row, [], 0.0) for row in rows]
    runs = plan_micro_batches(samples, budget)
    assert sorted(i for run in runs for i in run) == list(range(len(rows)))
    for run in runs:
        assert len(run) == 1 or len(prefixes([rows[i] for i in run])) <= budget
    assert runs == plan_micro_batches(samples, budget)


def test_micro_batches_are_cut_between_families():
    rng = np.random.default_rng(2)
    rows, family = [], []
    for number in range(5):
        stem = rng.integers(0, 1000, 100)
        for _ in range(4):
            rows.append(np.concatenate([stem, rng.integers(0, 1000, 10)]))
            family.append(number)
    order = rng.permutation(len(rows))
    samples = [sample(rows[i], [], 0.0) for i in order]
    # Two runs would do, each with half of one family of 140: its stem would be computed twice.
    runs = plan_micro_batches(samples, 400)
    assert len(runs) == 3
    for run in runs:
        assert len(run) % 4 == 0
    assert sum(len(prefixes([samples[i].token_ids.tolist() for i in run])) for run in runs) == 700


def test_rows_that_share_only_the_template_come_together():
    """Answers begin with anything, so that in order of their tokens they stand between families."""
    rng = np.random.default_rng(3)
    template = rng.integers(0, 1000, 20)
    rows, family = [], []
    for number in range(4):
        text = rng.integers(0, 1000, 100)
        for _ in range(4):
            rows += [
                np.concatenate([template, text, rng.integers(0, 1000, 10)]),
                np.concatenate([template, rng.integers(0, 1000, 10)]),
            ]
            family += [number, -1]
    order = rng.permutation(len(rows)).tolist()
    runs = plan_micro_batches([sample(rows[i], [], 0.0) for i in order], 185)
    found = sorted([family[order[i]] for i in run] for run in runs)
    assert found == [[-1] * 16, [0] * 4, [1] * 4, [2] * 4, [3] * 4]


@given(ROWS)
def test_families_first_is_an_order_of_the_same_trie(rows):
    arrays = [np.array(row) for row in rows]
    order = batch.lexicographic(arrays)
    arranged = batch.families_first(order, batch.neighbours([arrays[i] for i in order]))
    assert sorted(arranged) == sorted(order)
    shared = batch.neighbours([arrays[i] for i in arranged])
    assert sum(map(len, rows)) - int(shared.sum()) == len(prefixes(rows))


def test_no_samples_make_no_micro_batches():
    assert plan_micro_batches([], 10) == []


@pytest.mark.parametrize("rows", [[[1]], [[1], [1]], [[1, 2], [1]], [[1], [2]]])
def test_small_tries(rows):
    packed = pack(rows, "cpu")
    assert len(packed.ids) == len(prefixes(rows))

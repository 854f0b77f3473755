"""Attention level by level, against the plain way: every row on its own."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.models.attention import Heads
from recollect.models.trie.levels import KernelCall, attend, join, make_parts
from recollect.models.trie.nodes import cut_large, find_nodes
from recollect.models.trie.pack import Branch, TriePlan, pack

CPU = torch.device("cpu")


class Plain:
    """The kernel's contract, written out: softmax over each run, its backward from its formula."""

    sum_dtype = torch.float64
    join = staticmethod(join)

    def forward(self, part, q, k, v, scale):
        outs, lses = [], []
        for qs, ks, vs, seen in self._runs(part, q, k, v):
            scores = torch.einsum("qhd,khd->hqk", qs, ks) * scale
            scores = scores.masked_fill(~seen, float("-inf"))
            outs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), vs))
            lses.append(scores.logsumexp(-1))
        return torch.cat(outs), torch.cat(lses, 1)

    def backward(self, part, grad, q, k, v, out, lse, scale):
        grads = [torch.zeros_like(x) for x in (q, k, v)]
        times = q.shape[1] // k.shape[1]
        at_q, at_k = part.cu_q.tolist(), part.cu_k.tolist()
        for run, (qs, ks, vs, seen) in enumerate(self._runs(part, q, k, v)):
            own_q, own_k = slice(*at_q[run : run + 2]), slice(*at_k[run : run + 2])
            scores = torch.einsum("qhd,khd->hqk", qs, ks) * scale
            p = (scores - lse[:, own_q, None]).exp().masked_fill(~seen, 0.0)
            do, o = grad[own_q], out[own_q]
            ds = p * (torch.einsum("qhd,khd->hqk", do, vs) - (do * o).sum(-1).t()[..., None])
            parts = (
                torch.einsum("hqk,khd->qhd", ds, ks) * scale,
                torch.einsum("hqk,qhd->khd", ds, qs) * scale,
                torch.einsum("hqk,qhd->khd", p, do),
            )
            grads[0][own_q] = parts[0]
            for total, part in zip(grads[1:], parts[1:], strict=True):
                total[own_k] = part.unflatten(1, (-1, times)).sum(2)
        return tuple(grads)

    def _runs(self, part: KernelCall, q, k, v):
        times = q.shape[1] // k.shape[1]
        bounds = zip(part.cu_q.tolist(), part.cu_q.tolist()[1:], strict=False)
        for (a, b), (c, d) in zip(
            bounds, zip(part.cu_k.tolist(), part.cu_k.tolist()[1:], strict=False), strict=True
        ):
            seen = torch.ones(b - a, d - c, dtype=torch.bool)
            yield (
                q[a:b],
                k[c:d].repeat_interleave(times, 1),
                v[c:d].repeat_interleave(times, 1),
                seen.tril(d - c - b + a) if part.causal else seen,
            )


class Rounding(Plain):
    """A kernel as GPUs have them: exact inside, what it returns is rounded to what it was given."""

    def forward(self, part, q, k, v, scale):
        out, lse = super().forward(part, q.double(), k.double(), v.double(), scale)
        return out.to(q.dtype), lse

    def backward(self, part, grad, q, k, v, out, lse, scale):
        exact = (x.double() for x in (grad, q, k, v, out))
        return tuple(x.to(q.dtype) for x in super().backward(part, *exact, lse, scale))


rows_of_any_kind = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(
    rows_of_any_kind,
    st.booleans(),
    st.sampled_from([(1, 1), (4, 2), (8, 3), (1 << 20, 512)]),
    st.integers(0, 1000),
)
def test_levels_give_what_buckets_give_with_the_same_gradients(rows, share, sizes, seed):
    branches, tokens = branches_of(rows, share)
    plan = TriePlan(branches, tokens, CPU)
    heads = Heads(0, 0.5)
    generator = torch.Generator().manual_seed(seed)

    def draw(count):
        return torch.randn(count, tokens, 4, generator=generator, dtype=torch.float64)

    inputs = [x.requires_grad_() for x in (draw(4), draw(2), draw(2))]
    grad = draw(4).transpose(0, 1)
    expected = plan.attend(heads, *inputs)
    expected.backward(grad)
    wanted = [x.grad.clone() for x in inputs]
    for x in inputs:
        x.grad = None
    found = attend(parts_of(branches, tokens, *sizes), heads, *inputs, Plain())
    found.backward(grad)
    torch.testing.assert_close(found, expected)
    for x, y in zip(inputs, wanted, strict=True):
        torch.testing.assert_close(x.grad, y)


def test_a_group_with_one_prefix_is_two_calls():
    rows = [[1, 2, 3, 4 + i, 9] for i in range(5)]
    parts = parts_of(*branches_of(rows, True))
    assert [part.causal for part in parts] == [True, False]
    assert parts[0].cu_q.tolist() == [0, 3, 5, 7, 9, 11, 13]
    assert parts[1].queries == slice(3, 13) and parts[1].keys == slice(0, 3)


def test_what_is_short_for_all_that_stands_below_it_takes_no_call_of_its_own():
    rows = [[1, 2, 3 + i, 9, 9] for i in range(4)]
    (part,) = parts_of(*branches_of(rows, True))
    assert part.causal
    assert part.keys.tolist() == [
        0,
        1,
        0,
        1,
        2,
        3,
        4,
        0,
        1,
        5,
        6,
        7,
        0,
        1,
        8,
        9,
        10,
        0,
        1,
        *range(11, 14),
    ]
    assert part.cu_k.tolist() == [0, 2, 7, 12, 17, 22]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 9))
def test_repeated_keys_are_no_more_than_there_are_tokens(depth, trunk, leaf):
    # A comb: a trunk with a short leaf at every tooth, the worst case for repeating what is above.
    rows = [[0] * (trunk * tooth) + [1 + tooth] * leaf for tooth in range(1, depth)]
    branches, tokens = branches_of([*rows, [0] * (trunk * depth)], True)
    parts = parts_of(branches, tokens)
    assert sum(int(part.cu_k[-1]) for part in parts if part.causal) <= 2 * tokens


def test_gradients_of_a_key_that_is_often_repeated_do_not_drown():
    rows = [[1, 2, 3 + i, 9, 9] for i in range(700)]
    branches, tokens = branches_of(rows, True)
    (part,) = parts_of(branches, tokens)
    assert len(part.keys.unique()) < len(part.keys)
    generator = torch.Generator().manual_seed(0)
    exact = [torch.randn(2, tokens, 4, generator=generator).bfloat16() for _ in range(3)]
    grads = []
    for dtype in (torch.float64, torch.bfloat16):
        inputs = [x.to(dtype).requires_grad_() for x in exact]
        attend([part], Heads(0, 0.5), *inputs, Rounding()).sum().backward()
        grads.append(inputs[2].grad[:, :2].double())
    torch.testing.assert_close(grads[1], grads[0], rtol=0.02, atol=1.0)
    assert float(grads[0].abs().max()) > 100


def test_nothing_is_no_call():
    assert parts_of([], 0) == []


def test_nodes_are_cut_where_a_later_row_leaves():
    # abcde, abx, aby, z: the nodes are ab, cde, x, y, z
    nodes = find_nodes([(0, -1), (5, 1), (6, 1), (7, -1)], 8)
    assert nodes.begin.tolist() == [0, 2, 5, 6, 7]
    assert nodes.after.tolist() == [2, 5, 6, 7, 8]
    assert nodes.parent.tolist() == [-1, 0, 0, 0, -1]
    assert nodes.depth.tolist() == [0, 1, 1, 1, 0]
    assert nodes.end.tolist() == [7, 5, 6, 7, 8]


def branches_of(rows, share):
    """Rebuild the branches that `pack` lays out."""
    packed = pack(rows, "cpu", share)
    seen, branches = 0, []
    for index in sorted(packed.index, key=lambda index: int(index[-1])):
        start = int(np.searchsorted(index, seen))
        if start < len(index):
            branches.append(Branch(index, start))
            seen = int(index[-1]) + 1
    return branches, len(packed.ids)


def parts_of(branches, tokens, pairs=1 << 20, step=512):
    runs = [(int(b.path[b.start]), int(b.path[b.start - 1]) if b.start else -1) for b in branches]
    nodes = cut_large(find_nodes(runs, tokens), runs, pairs, step)
    return make_parts(nodes, CPU, pairs, step)


def test_large_nodes_have_calls_of_round_sizes():
    rows = [[7] * 1100 + [i] * 300 for i in range(4)]
    parts = parts_of(*branches_of(rows, True), pairs=1 << 18, step=512)
    runs = [(part.causal, part.queries, part.keys) for part in parts if part.round]
    assert runs == [
        (True, slice(0, 1024), slice(0, 1024)),
        (False, slice(1024, 2048), slice(0, 1024)),
    ]
    # The 76 tokens that are left of the prefix stand before every row's own.
    assert [(part.causal, part.max_q, part.max_k) for part in parts if not part.round] == [
        (True, 300, 376),
        (False, 252, 1024),
    ]


def test_small_nodes_are_not_cut():
    rows = [[7] * 1100 + [i] * 700 for i in range(4)]
    parts = parts_of(*branches_of(rows, True), pairs=1 << 30, step=512)
    assert [(part.causal, part.max_q, part.max_k) for part in parts] == [
        (True, 1100, 1100),
        (False, 2800, 1100),
    ]

"""Prefix tries: many token rows as one flat row that holds every common prefix once.

`pack` lays rows out and plans their attention; `plan_micro_batches` cuts a batch where little
sharing is lost. Knows nothing of losses or optimisers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from recollect.models.attention import AttentionPlan, Heads, masked_attention
from recollect.models.transfer import put
from recollect.models.trie import levels
from recollect.models.trie.nodes import cut_large, find_nodes
from recollect.types import Sample

Row = Sequence[int] | np.ndarray

BUCKET_WASTE = 1.25
"""Padding may make the scores of a bucket this many times what its branches need ..."""
BUCKET_OVERHEAD = 1 << 12
"""... and this many more: about what is computed in the time that one more bucket costs."""
BUCKET_LIMIT = 1 << 26
"""Scores per head in one bucket; bounds what a soft-capped layer has to hold."""
MICRO_BATCH_OVERHEAD = 64
"""Tokens that cost about as much as one more micro-batch."""


@dataclass(frozen=True)
class Branch:
    """The tokens a row adds to the trie, and the path that leads to them."""

    path: np.ndarray
    """(length,): flat indices of the whole row."""
    start: int
    """Depth of the first added token; those above it are in earlier branches."""

    @property
    def scores(self) -> int:
        return (len(self.path) - self.start) * len(self.path)


@dataclass(frozen=True)
class Bucket:
    """Branches padded to one shape: S = length - start queries and L = length keys each."""

    start: int
    length: int
    members: int

    def mask(self, window: int | None, device: torch.device) -> torch.Tensor | None:
        """Return who sees whom as (1, 1, S, L), or None where plain causal order says it."""
        if window is not None and window >= self.length:
            window = None
        if self.start == 0 and window is None:
            return None
        depth_S = torch.arange(self.start, self.length, device=device)[:, None]
        depth_L = torch.arange(self.length, device=device)
        seen = depth_L <= depth_S
        if window is not None:
            seen &= depth_L > depth_S - window
        return seen[None, None]


class TriePlan:
    """Let every token see the path from its root, whichever branches that runs through.

    Branches of like shape share a padded batch, a bucket. Its queries begin at the smallest start
    among its members, so that one mask fits all; whatever is computed above a branch's own start
    or below its end is dropped. Padding comes last, where causal order hides it from real queries.
    """

    def __init__(self, branches: Sequence[Branch], tokens: int, device: torch.device) -> None:
        self._buckets: list[Bucket] = []
        self._masks: dict[tuple[Bucket, int | None], torch.Tensor | None] = {}
        place_N = np.zeros(tokens, dtype=np.int64)  # where its output stands among all queries
        queries: list[np.ndarray] = []
        keys: list[np.ndarray] = []
        done = 0
        for members in group_branches(branches):
            start = min(branch.start for branch in members)
            length = max(len(branch.path) for branch in members)
            index_BL = np.empty((len(members), length), dtype=np.int64)
            for branch, index_L in zip(members, index_BL, strict=True):
                end = len(branch.path)
                index_L[:end], index_L[end:] = branch.path, branch.path[-1]
                place_N[branch.path[branch.start :]] = np.arange(branch.start, end) + (done - start)
                done += length - start
            self._buckets.append(Bucket(start, length, len(members)))
            queries.append(index_BL[:, start:].ravel())
            keys.append(index_BL.ravel())
        # One index for all buckets: the backward of a gather costs N, however few tokens it took.
        self._queries, self._keys, self._place_N = (
            put(x, device) for x in (_join(queries), _join(keys), place_N)
        )

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Take query (Hq, N, D), key and value (Hkv, N, D); return (N, Hq, Dv)."""
        # Under autocast rotary positions leave float32 behind, which attention would cast anyway.
        query, key = query.to(value.dtype), key.to(value.dtype)
        lengths = [bucket.length for bucket in self._buckets]
        spans = [bucket.length - bucket.start for bucket in self._buckets]
        outs = [
            masked_attention(heads, q, k, v, self._mask(bucket, heads.window))
            for bucket, q, k, v in zip(
                self._buckets,
                self._take(query, self._queries, spans),
                self._take(key, self._keys, lengths),
                self._take(value, self._keys, lengths),
                strict=True,
            )
        ]
        out = torch.cat([out.transpose(1, 2).flatten(0, 1) for out in outs])
        return out.index_select(0, self._place_N)

    def _take(self, x: torch.Tensor, index: torch.Tensor, lengths: list[int]) -> list[torch.Tensor]:
        """Gather (H, N, D) into one (B, H, length, D) for each bucket."""
        # Heads of a token side by side: gathering copies one contiguous run per token.
        taken = x.transpose(0, 1).index_select(0, index)
        rows = [
            bucket.members * length for bucket, length in zip(self._buckets, lengths, strict=True)
        ]
        parts = zip(taken.split(rows), lengths, strict=True)
        return [part.unflatten(0, (-1, length)).transpose(1, 2) for part, length in parts]

    def _mask(self, bucket: Bucket, window: int | None) -> torch.Tensor | None:
        if (bucket, window) not in self._masks:
            self._masks[bucket, window] = bucket.mask(window, self._keys.device)
        return self._masks[bucket, window]


class FlashPlan:
    """The same trie for a GPU's kernels; what they do not know goes the way of `TriePlan`."""

    def __init__(self, branches: Sequence[Branch], tokens: int, device: torch.device) -> None:
        self._longest = max((len(branch.path) for branch in branches), default=0)
        runs = [
            (int(b.path[b.start]), int(b.path[b.start - 1]) if b.start else -1) for b in branches
        ]
        nodes = find_nodes(runs, tokens)

        def parts(width: int) -> list[levels.KernelCall]:
            pairs = levels.LARGE // width
            return levels.make_parts(cut_large(nodes, runs, pairs), device, pairs)

        self._parts = cache(parts)
        self._masked = cache(lambda: TriePlan(branches, tokens, device))

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Take query (Hq, N, D), key and value (Hkv, N, D); return (N, Hq, Dv)."""
        windowed = heads.window is not None and heads.window < self._longest
        alike = query.shape[-1] == value.shape[-1] <= levels.WIDEST
        half = value.dtype in (torch.bfloat16, torch.float16)
        if windowed or heads.softcap is not None or not (alike and half):
            return self._masked().attend(heads, query, key, value)
        # Under autocast rotary positions leave float32 behind, which attention would cast anyway.
        query, key = query.to(value.dtype), key.to(value.dtype)
        parts = self._parts(query.shape[0] * query.shape[2])
        return levels.attend(parts, heads, query, key, value, levels.Cuda())


def _join(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def group_branches(branches: Sequence[Branch]) -> Iterator[list[Branch]]:
    """Gather branches of like shape, weighing padding against the cost of one more bucket."""
    members: list[Branch] = []
    start = length = needed = 0
    for branch in sorted(branches, key=_shape):
        joint_start = min(start, branch.start) if members else branch.start
        joint_length = max(length, len(branch.path))
        padded = (len(members) + 1) * (joint_length - joint_start) * joint_length
        allowed = min(BUCKET_WASTE * (needed + branch.scores) + BUCKET_OVERHEAD, BUCKET_LIMIT)
        if members and padded > allowed:
            yield members
            members, needed = [], 0
            joint_start, joint_length = branch.start, len(branch.path)
        members.append(branch)
        start, length, needed = joint_start, joint_length, needed + branch.scores
    if members:
        yield members


def _shape(branch: Branch) -> tuple[int, int, int]:
    added = len(branch.path) - branch.start
    return added.bit_length(), branch.start, added


@dataclass(frozen=True)
class Packed:
    """Rows as a trie of N tokens."""

    ids: torch.Tensor
    """(N,)"""
    positions: torch.Tensor
    """(N,): depth in the trie, which is the position in every row that holds the token."""
    index: list[np.ndarray]
    """The places of each row's tokens among the N, in the order given."""
    plan: AttentionPlan


def pack(rows: Sequence[Row], device: torch.device | str, share: bool = True) -> Packed:
    """Lay rows out so that a common beginning is stored once; `share=False` keeps rows whole."""
    arrays = [np.asarray(row, dtype=np.int64) for row in rows]
    order = lexicographic(arrays) if share else list(range(len(arrays)))
    index: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * len(arrays)
    branches: list[Branch] = []
    tokens, previous = 0, -1
    for i in order:
        row = arrays[i]
        start = common_prefix(arrays[previous], row) if share and previous >= 0 else 0
        added = np.arange(tokens, tokens + len(row) - start)
        index[i] = np.concatenate([index[previous][:start], added]) if start else added
        if len(added):
            branches.append(Branch(index[i], start))
        tokens, previous = tokens + len(added), i
    device = torch.device(device)
    ids, positions = np.empty(tokens, dtype=np.int64), np.empty(tokens, dtype=np.int64)
    for i, at in enumerate(index):
        ids[at], positions[at] = arrays[i], np.arange(len(at))
    return Packed(
        put(ids, device),
        put(positions, device),
        index,
        (FlashPlan if device.type == "cuda" else TriePlan)(branches, tokens, device),
    )


def lexicographic(rows: Sequence[np.ndarray]) -> list[int]:
    """Order rows so that each is next to the one it shares most with; stable."""
    # Big-endian, so that bytes compare as the numbers do.
    keys = [row.astype(">i8").tobytes() for row in rows]
    return sorted(range(len(rows)), key=keys.__getitem__)


def families_first(order: Sequence[int], shared: np.ndarray) -> list[int]:
    """Put rows that leave a branch of the trie alone after those that continue together.

    A row that shares no more than the template would otherwise separate two families, and be cut
    off with one of them. `shared` is what each row shares with the one before it.
    """
    arranged: list[int] = []
    ranges = [(0, len(order))] if order else []
    while ranges:
        begin, end = ranges.pop()
        if end - begin == 1:
            arranged.append(order[begin])
            continue
        inner = shared[begin + 1 : end]
        cuts = [begin, *(begin + 1 + np.flatnonzero(inner == inner.min())).tolist(), end]
        members = sorted(itertools.pairwise(cuts), key=lambda part: part[1] - part[0] == 1)
        ranges.extend(reversed(members))
    return arranged


def neighbours(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Count for each row the leading tokens that it shares with the one before it."""
    shared = [common_prefix(one, other) for one, other in itertools.pairwise(rows)]
    return np.array([0, *shared][: len(rows)], dtype=np.int64)


def common_prefix(one: np.ndarray, other: np.ndarray) -> int:
    """Count the leading tokens two rows share."""
    size = min(len(one), len(other))
    differs = one[:size] != other[:size]
    return int(differs.argmax()) if differs.any() else size


def plan_micro_batches(samples: Sequence[Sample], token_budget: int) -> list[list[int]]:
    """Cut samples into runs of at most `token_budget` trie tokens, where cuts cost least.

    A cut before a sample makes what it shares with the one before it be computed again. A sample
    above the budget is alone.
    """
    rows = [sample.token_ids for sample in samples]
    order = lexicographic(rows)
    order = families_first(order, neighbours([rows[i] for i in order]))
    shared = neighbours([rows[i] for i in order])
    count = len(order)
    added = np.array([len(rows[i]) for i in order], dtype=np.int64) - shared
    total = np.concatenate([[0], np.cumsum(added)])  # trie tokens of the first n samples
    cost = np.zeros(count + 1)  # of the cheapest way to cut the first n samples ...
    cut = np.zeros(count + 1, dtype=np.int64)  # ... and where its last run begins
    for end in range(1, count + 1):
        begin = np.arange(np.searchsorted(total, total[end] - token_budget), end)
        begin = begin[total[end] - total[begin] + shared[begin] <= token_budget]
        begin = begin if len(begin) else np.array([end - 1])
        costs = cost[begin] + shared[begin] + MICRO_BATCH_OVERHEAD
        cost[end], cut[end] = costs.min(), begin[costs.argmin()]
    runs, end = [], count
    while end:
        runs.append(order[cut[end] : end])
        end = int(cut[end])
    return runs[::-1]

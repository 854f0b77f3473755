"""The nodes of a prefix trie: runs of tokens without a branch. Knows nothing of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

STEP = 512
"""Large nodes are cut to a multiple of this many tokens: cuDNN takes half a second to prepare for
every new number of keys or queries."""


@dataclass(frozen=True)
class Nodes:
    """The compressed trie over N tokens in depth-first order."""

    begin: np.ndarray
    """(K,): node k is the tokens begin[k] to after[k]."""
    after: np.ndarray
    parent: np.ndarray
    """(K,): the node above it, -1 above a root."""
    depth: np.ndarray
    """(K,): nodes above it."""
    end: np.ndarray
    """(K,): where the tokens below the node end; they begin where its own end."""

    @property
    def size(self) -> np.ndarray:
        return self.after - self.begin

    @property
    def below(self) -> np.ndarray:
        """(K,): tokens below the node."""
        return self.end - self.after


def find_nodes(branches: Sequence[tuple[int, int]], tokens: int) -> Nodes:
    """Cut the trie where it branches.

    A branch is its first token and the one above that, as flat indices; -1 is above a root.
    """
    cuts = {first for first, _ in branches} | {parent + 1 for _, parent in branches}
    return _nodes(np.array(sorted(cuts | {tokens}), dtype=np.int64), dict(branches))


def cut_large(
    nodes: Nodes, branches: Sequence[tuple[int, int]], pairs: int, step: int = STEP
) -> Nodes:
    """Cut large nodes after their last multiple of `step` tokens, so that the most is round."""
    whole, below = nodes.size // step * step, nodes.below // step * step
    large = (whole**2 >= 2 * pairs) | (whole * below >= pairs)
    bounds = [nodes.begin, nodes.after, (nodes.begin + whole)[large]]
    return _nodes(np.unique(np.concatenate(bounds)), dict(branches))


def _nodes(bounds: np.ndarray, above: Mapping[int, int]) -> Nodes:
    begin, after = bounds[:-1], bounds[1:]
    count = len(begin)
    depth, end, parents = np.zeros(count, dtype=np.int64), after.copy(), np.full(count, -1)
    for k, first in enumerate(begin.tolist()):
        parent = above.get(first, first - 1)
        if parent >= 0:
            parents[k] = np.searchsorted(begin, parent, side="right") - 1
            depth[k] = depth[parents[k]] + 1
    for k in range(count - 1, -1, -1):
        if parents[k] >= 0:
            end[parents[k]] = max(end[parents[k]], end[k])
    return Nodes(begin, after, parents, depth, end)


def fold(nodes: Nodes, alone: np.ndarray) -> np.ndarray:
    """Choose the nodes whose keys are repeated in the calls of all nodes below them.

    A call of their own would go over the queries of all tokens below once more, so they are those
    that are shortest for that, up to as many repeated keys as there are tokens. A node that is
    alone in its call has only its own keys there.
    """
    tokens = int(nodes.after[-1]) if len(nodes.after) else 0
    first, last = np.arange(len(nodes.begin)) + 1, np.searchsorted(nodes.begin, nodes.end)
    counted = np.concatenate([[0], np.cumsum(alone)])
    reached = counted[last] > counted[first - 1]
    repeated = nodes.size * (last - first)
    able = np.flatnonzero((nodes.below > 0) & (repeated <= nodes.below) & ~reached)
    able = able[np.argsort(repeated[able] / nodes.below[able], kind="stable")]
    folded = np.zeros(len(nodes.begin), dtype=bool)
    folded[able[np.cumsum(repeated[able]) <= tokens]] = True
    return folded

"""The latest replies of a sampler: what others have said is a guess at what is said next.

Agents repeat their forms: a tag, a box around an answer. A new reply has none of them in its own
context yet. Knows nothing of devices.
"""

from __future__ import annotations

import numpy as np

from recollect.sampler.history import LOOKED, NO_TOKEN

HEAD, TAIL = 32, 16
"""Tokens that are kept of a reply: forms are at its two ends."""


class RecentReplies:
    """At most `size` tokens of different replies, each after the end of its prompt."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.clear()

    def clear(self) -> None:
        """Forget all replies."""
        self._kept: dict[bytes, None] = {}
        self._tokens = 0
        self.changed = True
        """Whether a reply came since the array was last asked for."""

    def add(self, prompt: np.ndarray, tokens: list[int]) -> None:
        """Keep a reply, in place of the one that was said longest ago."""
        said = tokens
        if len(tokens) > HEAD + TAIL:
            said = [*tokens[:HEAD], NO_TOKEN, *tokens[-TAIL:]]
        parts = ([NO_TOKEN], prompt[1 - LOOKED :], said)
        piece = np.concatenate([np.asarray(part, dtype=np.int32) for part in parts]).tobytes()
        new = piece not in self._kept
        self._kept.pop(piece, None)
        self._kept[piece] = None
        if not new:
            return
        self._tokens += len(piece) // 4
        self.changed = True
        while self._tokens > self.size - LOOKED:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._tokens -= len(oldest) // 4

    def array(self) -> np.ndarray:
        """Return (size,) int32: the replies, the latest last, with no token around each."""
        self.changed = False
        array = np.full(self.size, NO_TOKEN, dtype=np.int32)
        joined = np.frombuffer(b"".join(self._kept), dtype=np.int32)
        array[self.size - 1 - len(joined) : self.size - 1] = joined
        return array

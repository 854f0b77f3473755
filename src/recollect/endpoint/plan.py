"""Which messages the model is shown and which are kept: a function of the conversation alone.

The newest messages that fit stay as they are, and so do the system messages. All before them is
kept, a quarter of a window at a time, so that a conversation that grows by one message is seldom
read for it. Knows nothing of models or memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.endpoint.conversation import Said

STEPS = 4
"""Parts of a window: messages are kept this much at a time."""
PINNED = 4
"""The part of the room for the user's message that the first one shown replies to."""


@dataclass(frozen=True)
class Plan:
    """What becomes of each message."""

    shown: tuple[int, ...]
    """The messages that the model sees, by their number."""
    limits: dict[int, int]
    """Tokens for those of them that are shown in part."""
    kept: int
    """How many messages are in the memory, from the first one on."""


def make_plan(said: Sequence[Said], tokens: Sequence[int], room: int, window: int) -> Plan:
    """Divide a conversation whose messages have these tokens."""
    blocks = _blocks(said)
    start, used = len(said), 0
    for first, end in reversed(blocks):
        used += sum(tokens[first:end])
        if used > room and start < len(said):
            break
        start = first
        if used > room:
            break
    pinned = _user_before(said, start)
    limits: dict[int, int] = {}
    if pinned is not None:
        share = min(tokens[pinned], max(1, room // PINNED))
        following, last = dict(blocks), blocks[-1][0]
        while start < last and share + sum(tokens[start:]) > room:
            start = following[start]
            if said[start].role == "user":
                pinned = None
                break
    if pinned is not None and share < tokens[pinned]:
        limits[pinned] = share
    room -= limits.get(pinned, tokens[pinned]) if pinned is not None else 0
    limits |= _cut(range(start, len(said)), tokens, room)
    shown = (*([] if pinned is None else [pinned]), *range(start, len(said)))
    kept = _kept_up_to(tokens, start, max(1, window // STEPS))
    partly = max((i + 1 for i in limits), default=0)
    return Plan(shown, limits, max(kept, partly))


def _blocks(said: Sequence[Said]) -> list[tuple[int, int]]:
    """Return what stays together: a call of tools and its results are one block."""
    starts = [i for i, one in enumerate(said) if i == 0 or one.role not in ("tool", "function")]
    return list(zip(starts, [*starts[1:], len(said)], strict=True))


def _user_before(said: Sequence[Said], start: int) -> int | None:
    """Return the user's message that the first one shown replies to; None if it is one itself."""
    if start < len(said) and said[start].role == "user":
        return None
    return next((i for i in range(start - 1, -1, -1) if said[i].role == "user"), None)


def _cut(numbers: range, tokens: Sequence[int], room: int) -> dict[int, int]:
    """Share the room between messages that do not fit it; short ones stay whole."""
    if sum(tokens[i] for i in numbers) <= room:
        return {}
    limits: dict[int, int] = {}
    left = max(0, room)
    for place, i in enumerate(sorted(numbers, key=lambda i: tokens[i])):
        share = max(1, left // (len(numbers) - place))
        if tokens[i] > share:
            limits[i] = share
        left = max(0, left - min(share, tokens[i]))
    return limits


def _kept_up_to(tokens: Sequence[int], start: int, step: int) -> int:
    """Return how many messages are kept if those from `start` on are shown.

    It changes only when a multiple of the step is passed, or when a message that is longer than a
    step is left behind.
    """
    if not start:
        return 0
    before = sum(tokens[:start])
    wanted = -(-before // step) * step
    for i in range(start, len(tokens)):
        if before >= wanted:
            return i
        before += tokens[i]
    return start

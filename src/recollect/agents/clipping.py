"""Clipping: as much of a task's text as fits, tokenising little more than is kept.

Texts may be lazy and far longer than memory: whatever is left out is never held, and what lies
between a head and a tail is not even made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal, get_args

from recollect.chat.chat import ContextFull
from recollect.chat.rendering import Tokenizer

Truncation = Literal["head", "tail", "middle", "error"]
TRUNCATIONS: tuple[Truncation, ...] = get_args(Truncation)
"""What a text that is too long keeps: its start, its end, both without the middle; or it fails."""


def clip(
    chunks: Sequence[str], end: int, limit: int, truncation: Truncation, tokenizer: Tokenizer
) -> tuple[list[int], bool]:
    """Return at most `limit` tokens of the chunks before `end`, and whether any were left out."""

    def encoded(i: int) -> list[int]:
        return tokenizer.encode("\n\n" + chunks[i] if i else chunks[i])

    tail_limit = {"head": 0, "error": 0, "middle": limit // 2, "tail": limit}[truncation]
    head: list[int] = []
    for i in range(end):
        ids = encoded(i)
        room = limit - tail_limit - len(head)
        head += ids[:room]
        if len(ids) > room:
            break
    else:
        return head, False
    if truncation == "error":
        raise ContextFull(f"the text is longer than the {limit} tokens that fit the window")
    if not tail_limit:
        return head, True
    tail: deque[list[int]] = deque()
    held = 0
    for j in range(end - 1, i - 1, -1):
        if held > tail_limit:
            break
        tail.appendleft(encoded(j) if j > i else ids[room:])
        held += len(tail[0])
    kept = [token for piece in tail for token in piece]
    return head + kept[max(0, held - tail_limit) :], held > tail_limit

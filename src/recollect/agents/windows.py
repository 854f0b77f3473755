"""Windows: what an agent reads of a task at a time, and which questions are due after it.

Knows nothing of chats or memories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

from recollect.chat.rendering import Tokenizer
from recollect.types import Question, Task

Window = tuple[list[int], int]
"""Tokens to read, and the last chunk of the task that is then read to its end."""
Span = tuple[int, int]
"""The first and the last chunk of the task of which a window shows something."""


def windows(
    task: Task, tokenizer: Tokenizer, chunk_size: int | None, max_chunks: int | None = None
) -> Iterator[Window]:
    """Yield a task's text in windows of `chunk_size` tokens, or chunk by chunk as it is."""
    for window, _span in spans(task, tokenizer, chunk_size, max_chunks):
        yield window


def spans(
    task: Task, tokenizer: Tokenizer, chunk_size: int | None, max_chunks: int | None = None
) -> Iterator[tuple[Window, Span]]:
    """Yield a task's windows, each with the chunks that it shows.

    A window ends where a question is asked, so that none is answered from later text; it may be
    empty. With `max_chunks` a longer text loses its middle; what is left out counts as read where
    it would have stood.
    """
    if chunk_size is None:
        yield from _own_chunks(task, tokenizer, max_chunks)
        return
    pieces: Iterable[Window] = (
        (tokenizer.encode("\n\n" + text if i else text), i) for i, text in enumerate(task.chunks)
    )
    if max_chunks is not None:
        pieces = cut_centre(pieces, max_chunks * chunk_size)
    asked = {q.position for q in task.questions if q.position is not None}
    held: list[int] = []
    first, read = 0, -1  # where what is held begins, and where it ends
    for ids, i in pieces:
        if not asked.isdisjoint(range(read, i)):
            yield (held, i - 1), (first, read)
            held = []
        if not held:
            first = i
        held += ids
        full = len(held) // chunk_size * chunk_size
        for at in range(0, full, chunk_size):
            yield (held[at : at + chunk_size], i - 1), (first, i)
            first = i  # less than a window was held before this piece
        held = held[full:]
        read = i
    if held:
        yield (held, len(task.chunks) - 1), (first, read)


def is_due(question: Question, read: int) -> bool:
    """Tell whether a question is asked before anything after chunk `read` is."""
    return question.position is not None and question.position <= read


def _own_chunks(
    task: Task, tokenizer: Tokenizer, max_chunks: int | None
) -> Iterator[tuple[Window, Span]]:
    """Yield the task's chunks as they are, without the middle ones if there are too many."""
    count = len(task.chunks)
    limit = count if max_chunks is None else min(count, max_chunks)
    kept = [*range(limit - limit // 2), *range(count - limit // 2, count)]
    for i, following in pairwise([*kept, count]):
        yield (tokenizer.encode(task.chunks[i]), following - 1), (i, i)


def cut_centre(pieces: Iterable[Window], limit: int) -> Iterator[Window]:
    """Pass on the first and the last half of `limit` tokens, holding no more than that half."""
    head, tail_limit = limit - limit // 2, limit // 2
    tail: deque[Window] = deque()
    held = 0
    for ids, i in pieces:
        if head:
            yield ids[:head], i
            ids, head = ids[head:], max(0, head - len(ids))
        if not ids or not tail_limit:
            continue
        tail.append((ids, i))
        held += len(ids)
        while held - len(tail[0][0]) >= tail_limit:
            held -= len(tail.popleft()[0])
        if held > tail_limit:
            first, j = tail[0]
            tail[0] = (first[held - tail_limit :], j)
            held = tail_limit
    yield from tail

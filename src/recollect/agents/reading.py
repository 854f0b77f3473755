"""Reading a task window by window, and asking its questions: what the agents share.

A window is what an agent reads at a time; every question is put in the same words by every agent.
Knows nothing of memories.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import pairwise

from recollect.agents.templates import fill, solve_from
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import AheadTokenizer, Message, Part, Tokenizer
from recollect.concurrency.many import concurrently
from recollect.types import Question, Task

Window = tuple[list[int], int]
"""Tokens to read, and the last chunk of the task that is then read to its end."""
Span = tuple[int, int]
"""The first and the last chunk of the task of which a window shows something."""
Read = Callable[[list[int], Span, str], Awaitable[bool | None]]
"""Read tokens of some chunks under a label; True says that this is enough."""
Ask = Callable[[dict[int, Question]], Awaitable[dict[int, str]]]
"""Answer questions, by their number in the task."""

PROBLEM = "<problem>\n{problem}\n</problem>\n\nYour answer:"
# The text comes first: all questions about it share that prefix.
FROM_TEXT = f"<text>\n{{text}}\n</text>\n\n{solve_from('the text')}\n\n{PROBLEM}"
FROM_KNOWLEDGE = f"{solve_from('what you know')}\n\n{PROBLEM}"

AHEAD = 8
"""Chunks that are made and encoded together, at most."""
UNKNOWN_PROBLEM = "Questions about anything in the text will be asked later."
"""Replaces the problem where the questions are not known while reading."""
NOTHING = "(nothing)"
"""Shown where there is no text."""


def known_problem(task: Task, unknown: str = UNKNOWN_PROBLEM) -> str:
    """Return what a reader knows of the questions: nothing where they are asked afterwards.

    A task says so with `questions_known` in its meta, whatever the agent.
    """
    known = task.questions if task.meta.get("questions_known", True) else ()
    return "\n".join(question.text for question in known) or unknown


async def read_and_ask(
    task: Task, steps: Iterable[tuple[Window, Span]], read: Read, ask: Ask
) -> list[str]:
    """Read window after window, and ask what is due in between; return all answers in order.

    Questions that are left when reading ends, or is enough, are asked then.
    """
    pending = dict(enumerate(task.questions))
    answers: dict[int, str] = {}
    number = 0
    for (chunk, seen), span in steps:
        if chunk:  # an empty window only marks where to ask
            number += 1
            if await read(chunk, span, f"chunk {number}"):
                break
        due = {i: q for i, q in pending.items() if is_due(q, seen)}
        answers |= await ask(due)
        pending = {i: q for i, q in pending.items() if i not in due}
    answers |= await ask(pending)
    return [answers[i] for i in range(len(task.questions))]


async def unasked(due: dict[int, Question]) -> dict[int, str]:
    """Answer nothing: for `read_and_ask` where only reading is wanted."""
    return dict.fromkeys(due, "")


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
    it would have been.
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
    begin, size = 0, 1
    while begin < len(kept):
        # Some at once, and few at first: a reader may soon have enough.
        some = kept[begin : begin + size]
        texts = [task.chunks[i] for i in some]
        if isinstance(tokenizer, AheadTokenizer):
            tokenizer.encode_ahead(texts)
        begin, size = begin + len(some), min(2 * size, AHEAD)
        following = kept[begin] if begin < len(kept) else count
        for text, (i, after) in zip(texts, pairwise([*some, following]), strict=True):
            yield (tokenizer.encode(text), after - 1), (i, i)


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


def from_text(question: Question, text: Part) -> Message:
    """Ask a question about a text."""
    return fill(FROM_TEXT, problem=question.text, text=text if len(text) else NOTHING)


def room_for_text(model: Model, question: Question, max_answer_tokens: int) -> int:
    """Return the tokens of text that fit the model's window beside question and answer."""
    around = model.renderer.opening([fill(FROM_TEXT, problem=question.text, text="")])
    return max(0, model.window - len(around) - max_answer_tokens)


async def ask(
    chats: Chats,
    questions: Mapping[int, Question],
    prompt: Callable[[int, Question], Message],
    max_answer_tokens: int,
    counts: Mapping[int, Mapping[str, int]] | None = None,
) -> dict[int, str]:
    """Put each question in a chat of its own, all at once; `counts` are noted in its context."""

    async def one(i: int, question: Question) -> str:
        name = f"question {i + 1}"
        chat = chats.open("answer", label=name, stratum=name, question=i)
        chat.context.counts |= (counts or {}).get(i, {})
        return (await chat.say(prompt(i, question), max_tokens=max_answer_tokens)).text

    texts = await concurrently(one(i, question) for i, question in questions.items())
    return dict(zip(questions, texts, strict=True))


def tokenizer_of(chats: Chats, role: str) -> Tokenizer:
    """Return the tokenizer of the model that plays a role."""
    return chats.model(role).renderer.tokenizer

"""What the model is sent: the system message with the memory, then what is shown as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recollect.endpoint.conversation import Message, Said, shortened, text_of
from recollect.foreign import storable
from recollect.keeping.windows import Count
from recollect.memory.passages import PassageIndex, packed

MEMORY = (
    "Earlier parts of this conversation are not shown. This memory was kept of them:\n"
    "<memory>\n{memory}\n</memory>"
)
GAP = "\n[... the part in between is in the memory ...]\n"
EACH = 16
"""Tokens that a chat template may add to a message."""
PASSAGE = 400
"""Characters of a piece of a memory that is longer than its budget."""


def messages(
    head: Sequence[Said],
    shown: Sequence[Said],
    limits: Mapping[str, int],
    memory: str,
    count: Count,
) -> list[Message]:
    """Return what is sent; `limits` are tokens of messages that are shown in part, by id."""
    said = [_within(one, limits.get(one.id), count) for one in (*head, *shown)]
    if not memory:
        return said
    text = MEMORY.format(memory=memory)
    if not head:
        return [{"role": "system", "content": text}, *said]
    first = said[0]
    content = first.get("content")
    if isinstance(content, list):
        added: object = [*content, {"type": "text", "text": text}]
    else:
        added = f"{content}\n\n{text}" if content else text
    return [{**first, "content": added}, *said[1:]]


def _within(said: Said, limit: int | None, count: Count) -> Message:
    """Return a message, or its beginning and its end: a question may be in either."""
    if limit is None:
        return said.message
    text = text_of(said.message)
    if len(text) <= limit * 8 and count(text) <= limit - EACH:  # its pictures are too large
        return said.message
    return shortened(said.message, ends(text, limit - EACH, GAP, count))


def ends(text: str, limit: int, gap: str, count: Count) -> str:
    """Return the beginning and the end of a text, of at most `limit` tokens with the gap."""
    half = max(1, (limit - count(gap)) // 2)
    front = cut(text, half, count)
    back = cut(text[::-1], half, lambda piece: count(piece[::-1]))[::-1]
    return f"{front}{gap}{back}"


def cut(text: str, limit: int, count: Callable[[str], int]) -> str:
    """Return the beginning of a text, of at most `limit` tokens."""
    piece = text[: limit * 8]
    while piece and (length := count(piece)) > limit:
        piece = piece[: max(0, min(len(piece) - 1, len(piece) * limit // length))]
    return piece


async def within_budget(memory: str, budget: int, question: str, count: Count) -> str:
    """Return a memory; of one that is over the budget, the pieces nearest to the question."""
    if count(memory) <= budget:
        return memory
    memory, question = storable(memory), storable(question)
    pieces = [piece for piece in packed(memory, PASSAGE) if piece.strip()]
    index = PassageIndex(None)
    for piece in pieces:
        index.read(piece)
    hits = await index.search(question, len(pieces)) if question.strip() else []
    order = [int(hit.entry.id.rpartition("_")[2]) - 1 for hit in hits]  # memory_1 is the first
    order += [i for i in range(len(pieces)) if i not in set(order)]
    chosen: list[int] = []
    left = budget
    for i in order:
        tokens = count(pieces[i] + "\n")
        if tokens <= left:
            chosen.append(i)
            left -= tokens
    return "\n".join(pieces[i] for i in sorted(chosen)) or cut(memory, budget, count)

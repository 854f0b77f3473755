"""RAG: cut the text into passages, index them, and answer each question from the best few.

The index is the episode's memory: it grows as the text is read and holds nothing that comes later
than the question. No model is asked while it is built, but vectors are where the mode wants them.
Episodes of one text that run at the same time read, embed and search it once for all of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from recollect.agents.reading import ask, from_text, room_for_text, tokenizer_of, windows
from recollect.agents.resources import Resources
from recollect.bounds import FROM_0, FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.chat.rendering import Tokenizer
from recollect.errors import UserError
from recollect.foreign import storable
from recollect.memory.corpus import Corpus
from recollect.memory.entries import name_of, number_of
from recollect.memory.passages import packed_sentences
from recollect.memory.search import MODES, Mode
from recollect.memory.store import Embed, Hit, Store
from recollect.types import Question, Task

GAP = "\n\n"
AT_ONCE = 32
"""Passages that are indexed before other episodes run: a long text takes seconds."""


class Reading:
    """A text on its way into an index, for one episode or for all that read it at the same time."""

    def __init__(
        self, index: Store, pieces: Iterable[tuple[list[str], int]], by_words: bool
    ) -> None:
        self.index = index
        self.found: dict[tuple[str, int], list[int]] = {}
        """The tokens that a question is answered from, by its text and the size of the index."""
        self.failed: BaseException | None = None
        """What kept the text from being read, for all who wait for it."""
        self._by_words = by_words
        self._read = -1
        self._steps = added(index, pieces)

    async def read_to(self, chunk: int) -> None:
        """Index everything to the end of a chunk, in turns with its siblings."""
        while self._read < chunk:
            if self.failed:
                raise self.failed
            try:
                for read in islice(self._steps, AT_ONCE):
                    self._read = read
                    if read >= chunk:
                        break
            except BaseException as error:
                self.failed = error
                raise
            if self._by_words:
                self.index.index_words()
            await asyncio.sleep(0)


def added(index: Store, pieces: Iterable[tuple[list[str], int]]) -> Iterator[int]:
    """Add passage after passage to an index; yield up to which chunk the text is then read."""
    read = -1
    for passages, end in pieces:
        for passage in filter(None, passages):
            index.add(passage)
            yield read
        read = end
        yield read
    yield sys.maxsize  # the last chunks may be empty


@dataclass(frozen=True)
class RagAgent:
    """Answer every question from the passages that a search for it finds."""

    mode: Mode = "bm25"
    """bm25 counts words, dense compares vectors, hybrid fuses both rankings."""
    chunk_size: int | None = 256
    """Tokens per passage; None takes the task's own chunks as they are."""
    top_k: int = 20
    max_context_tokens: int = 5000
    """Tokens of all passages together; the one that does not fit is cut, the rest left out.
    Of sentences, those that do not fit are left out."""
    max_answer_tokens: int = 1024
    order: Literal["text", "rank"] = "text"
    """How the passages found are shown: in the order of the text, or the best first."""
    sentences: bool = False
    """Passages are whole sentences: as many as `chunk_size` tokens hold, or with None one each."""
    neighbours: int = 0
    """Passages that are shown before and after each that is found."""
    embed: Embed | None = field(default=None, repr=False)
    """The embedder for dense and hybrid search; `bind` fills it in."""

    def __post_init__(self) -> None:
        names = ("chunk_size", "top_k", "max_context_tokens", "max_answer_tokens")
        check_bounds("agent", self, **dict.fromkeys(names, FROM_1), neighbours=FROM_0)
        if self.mode not in MODES:
            raise UserError(f"mode is {self.mode!r}", f"choose from {', '.join(MODES)}")
        if self.order not in ("text", "rank"):
            raise UserError(f"order is {self.order!r}", "choose from text, rank")

    def bind(self, resources: Resources) -> RagAgent:
        """Open an embedder if the search is by meaning."""
        if self.mode == "bm25" or self.embed or resources.open_embedder is None:
            return self
        return replace(self, embed=resources.open_embedder())

    def new_memory(self, task: Task) -> Store:
        """Start with an empty index."""
        if self.mode != "bm25" and self.embed is None:
            raise UserError(
                f"retrieval by {self.mode} needs an embedder",
                "name one with --embed (minilm needs no download), or use bm25",
            )
        return Store(Corpus.build(task.id), self.embed)

    async def run(self, task: Task, chats: Chats, memory: Store) -> list[str]:
        """Index the text, asking each question at its position."""
        last = len(task.chunks) - 1
        due: dict[int, dict[int, Question]] = {last: {}}
        for i, q in enumerate(task.questions):
            end = last if q.position is None else min(q.position, last)
            due.setdefault(end, {})[i] = q
        reading = self._reading(task, chats, memory, shared=len(due) == 1)
        answers: dict[int, str] = {}
        for end in sorted(due):
            await reading.read_to(end)
            memory.become(reading.index)
            answers |= await self._ask(due[end], chats, reading)
        return [answers[i] for i in range(len(task.questions))]

    def _reading(self, task: Task, chats: Chats, memory: Store, shared: bool) -> Reading:
        """Begin to read a text, or join an episode that does, if nothing is asked on the way."""

        def begin(index: Store) -> Reading:
            pieces = self._pieces(task, tokenizer_of(chats, "memory"))
            return Reading(index, pieces, self.mode != "dense")

        if not shared or memory.ops or type(memory) is not Store:
            return begin(memory)  # what an agent of one's own notes or does there is its own
        # Episodes have lists of their own; other texts are made as they are read, and are the same.
        # An id stands for one object here: whoever holds a reading holds its agent and its text.
        text = tuple(task.chunks) if isinstance(task.chunks, list) else id(task.chunks)
        key = (id(self), task.id, memory.corpus.fingerprint, text)
        known: Reading | None = chats.readings.get(key)
        if known is None or known.failed:
            known = chats.readings[key] = begin(memory.fork())
        return known

    def _pieces(self, task: Task, tokenizer: Tokenizer) -> Iterator[tuple[list[str], int]]:
        """Yield passages in the order of the text, and the last chunk that is then read."""
        if not self.sentences:
            for ids, read in windows(task, tokenizer, self.chunk_size):
                yield [tokenizer.decode(ids).strip()], read
            return
        for number, chunk in enumerate(task.chunks):
            *passages, last = [*packed_sentences(storable(chunk), self.chunk_size, tokenizer), ""]
            if passages:  # what follows a chunk is apart from it
                last = passages.pop() + GAP
            yield [*passages, last], number

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, reading: Reading
    ) -> dict[int, str]:
        found = {i: await self._passages(q, chats, reading) for i, q in questions.items()}
        return await ask(
            chats, questions, lambda i, q: from_text(q, found[i]), self.max_answer_tokens
        )

    async def _passages(self, question: Question, chats: Chats, reading: Reading) -> list[int]:
        """Return the tokens of what a question is answered from."""
        index = reading.index
        asked = (question.text, len(index))
        if asked not in reading.found:
            room = room_for_text(chats.model("answer"), question, self.max_answer_tokens)
            most = min(room, self.max_context_tokens)
            hits = await index.search(question.text, self.top_k, self.mode) if len(index) else []
            show = self._whole if self.sentences else self._cut
            reading.found[asked] = show(hits, most, tokenizer_of(chats, "answer"), index)
        return reading.found[asked]

    def _cut(
        self, hits: Sequence[Hit], left: int, tokenizer: Tokenizer, memory: Store
    ) -> list[int]:
        """Show passages up to a limit; the last one is cut."""
        gap = tokenizer.encode(GAP)
        kept: dict[int, int] = {}
        shown: dict[int, list[int]] = {}
        for number, rank in self._near(hits, len(memory)):
            left -= len(gap) if kept else 0
            if left < 1:
                break
            kept[number] = rank
            shown[number] = tokenizer.encode(_content(number, memory))[:left]
            left -= len(shown[number])
        spread = [token for number in self._ordered(kept) for token in (*gap, *shown[number])]
        return spread[len(gap) :]

    def _whole(
        self, hits: Sequence[Hit], most: int, tokenizer: Tokenizer, memory: Store
    ) -> list[int]:
        """Show whole passages, those that fit; those that follow each other as in the text."""
        gap, left = len(tokenizer.encode(GAP)), most
        kept: dict[int, int] = {}
        for number, rank in self._near(hits, len(memory)):
            apart = kept and number - 1 not in kept and number + 1 not in kept
            size = len(tokenizer.encode(_content(number, memory))) + (gap if apart else 0)
            if size <= left or not kept:
                kept[number] = rank
                left -= size
            if left < 1:
                break
        while True:  # text that is put together may have more tokens than its parts
            ids = tokenizer.encode(_joined(self._ordered(kept), memory))
            if len(ids) <= most or len(kept) < 2:
                return ids[:most]
            kept.popitem()

    def _near(self, hits: Iterable[Hit], count: int) -> Iterator[tuple[int, int]]:
        """Yield the numbers of passages once, each hit and then its neighbours, and its rank."""
        known: set[int] = set()
        for rank, hit in enumerate(hits):
            found = number_of(hit.entry.id)
            first, last = max(1, found - self.neighbours), min(count, found + self.neighbours)
            near = sorted(range(first, last + 1), key=lambda number: abs(number - found))
            yield from ((number, rank) for number in near if number not in known)
            known.update(near)

    def _ordered(self, kept: Mapping[int, int]) -> list[int]:
        """Put passages into the order they are shown in, by number and rank."""
        ranked = self.order == "rank"
        return sorted(kept, key=lambda number: (kept[number] if ranked else 0, number))


def _content(number: int, memory: Store) -> str:
    return memory.get(name_of(number)).content


def _joined(numbers: Iterable[int], memory: Store) -> str:
    """Put passages together, with a gap between those that do not follow each other."""
    parts: list[str] = []
    before = 0
    for number in numbers:
        if parts and number != before + 1:
            parts[-1] = parts[-1].rstrip() + GAP
        parts.append(_content(number, memory))
        before = number
    return "".join(parts).strip()

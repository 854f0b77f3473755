"""RAG: cut the text into passages, index them, and answer each question from the best few.

The index is the episode's memory: it grows as the text is read and holds nothing that comes later
than the question. No model is asked while it is built, but vectors are where the mode wants them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from recollect.agents.reading import ask, from_text, is_due, room_for_text, tokenizer_of, windows
from recollect.agents.resources import Resources
from recollect.bounds import FROM_0, FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.chat.rendering import Tokenizer
from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.memory.entries import name_of, number_of
from recollect.memory.passages import packed_sentences
from recollect.memory.search import MODES, Mode
from recollect.memory.store import Embed, Hit, Store
from recollect.types import Question, Task


@dataclass(frozen=True)
class RagAgent:
    """Answer every question from the passages that a search for it finds."""

    mode: Mode = "bm25"
    """bm25 counts words, dense compares vectors, hybrid fuses both rankings."""
    chunk_size: int | None = 256
    """Tokens per passage; None takes the task's own chunks as they are."""
    top_k: int = 20
    max_context_tokens: int = 5000
    """Tokens of all passages together; the one that does not fit is cut, the rest left out."""
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
        tokenizer = tokenizer_of(chats, "memory")
        pending = dict(enumerate(task.questions))
        answers: dict[int, str] = {}
        for passages, read in self._pieces(task, tokenizer):
            for passage in filter(None, passages):
                memory.add(passage)
                await self._breathe(memory)
            due = {i: q for i, q in pending.items() if is_due(q, read)}
            answers |= await self._ask(due, chats, memory)
            pending = {i: q for i, q in pending.items() if i not in due}
        answers |= await self._ask(pending, chats, memory)
        return [answers[i] for i in range(len(task.questions))]

    def _pieces(self, task: Task, tokenizer: Tokenizer) -> Iterator[tuple[list[str], int]]:
        """Yield passages in the order of the text, and the last chunk that is then read."""
        if self.sentences:
            for number, text in enumerate(task.chunks):
                yield list(packed_sentences(text, self.chunk_size, tokenizer)), number
        else:
            for ids, read in windows(task, tokenizer, self.chunk_size):
                yield [tokenizer.decode(ids).strip()], read

    async def _breathe(self, memory: Store) -> None:
        """Index a bit at a time and let other episodes run: a long text takes seconds."""
        if len(memory) % 32 == 0:
            if self.mode != "dense":
                memory.index_words()
            await asyncio.sleep(0)

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, memory: Store
    ) -> dict[int, str]:
        found = {i: await self._passages(q, chats, memory) for i, q in questions.items()}
        return await ask(
            chats, questions, lambda i, q: from_text(q, found[i]), self.max_answer_tokens
        )

    async def _passages(self, question: Question, chats: Chats, memory: Store) -> list[int]:
        """Return the tokens of what a question is answered from."""
        tokenizer = tokenizer_of(chats, "answer")
        room = room_for_text(chats.model("answer"), question, self.max_answer_tokens)
        most = left = min(room, self.max_context_tokens)
        gap = tokenizer.encode("\n\n")
        kept: dict[int, list[int]] = {}
        hits = await memory.search(question.text, self.top_k, self.mode) if len(memory) else []
        for number in self._shown(hits, len(memory)):
            ids = tokenizer.encode(_content(number, memory))
            follows = self.sentences and number - 1 in kept
            left -= len(gap) if kept and not follows else 0
            if left < (len(ids) if self.sentences and kept else 1):
                break
            kept[number] = ids[:left]
            left -= len(kept[number])
        numbers = sorted(kept) if self.order == "text" else list(kept)
        if self.sentences:
            runs = [tokenizer.encode(" ".join(run)) for run in _runs(numbers, memory)]
        else:
            runs = [kept[number] for number in numbers]
        return [token for ids in runs for token in (*gap, *ids)][len(gap) :][:most]

    def _shown(self, hits: Iterable[Hit], count: int) -> Iterator[int]:
        """Yield the numbers of passages, the best first, each once and with its neighbours."""
        known: set[int] = set()
        for found in (number_of(hit.entry.id) for hit in hits):
            first, last = max(1, found - self.neighbours), min(count, found + self.neighbours)
            new = [number for number in range(first, last + 1) if number not in known]
            known.update(new)
            yield from new


def _content(number: int, memory: Store) -> str:
    return memory.get(name_of(number)).content


def _runs(numbers: Iterable[int], memory: Store) -> list[list[str]]:
    """Put passages together that follow each other in the text."""
    runs: list[list[str]] = []
    before = 0
    for number in numbers:
        if not runs or number != before + 1:
            runs.append([])
        runs[-1].append(_content(number, memory))
        before = number
    return runs

"""The tools of a bank: write and look up notes, and search the text that was read.

Who reads may write and look up; who answers may look up and search. A tool that finds nothing has
failed: it is answered so, and counts so. Knows nothing of chats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from recollect.chat.tools import Tool, ToolFailed, tool
from recollect.errors import BoundaryError, UserError, boundary
from recollect.memory.bank import BankMemory
from recollect.memory.entries import BadOperation
from recollect.memory.passages import PassageIndex
from recollect.memory.search import Mode
from recollect.memory.terms import words

Label = Callable[[], str]
"""Name the turn that is writing."""

LISTED = "; memory_list shows the titles"


@dataclass(frozen=True)
class BankTools:
    """Which tools a bank has, and how far they go."""

    embedding: bool = False
    """Offer memory_embedding_retrieve; what embeds is set under `embed`."""
    top_k: int = 20
    """Passages of a search that does not say how many."""
    max_top_k: int = 50
    preview: int = 80
    """Characters of a note that memory_list shows."""
    passage_size: int | None = 2000
    """Characters of the passages that are searched; None searches whole chunks."""

    def __post_init__(self) -> None:
        for name in ("top_k", "max_top_k", "preview", "passage_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                flag = name.replace("_", "-")
                raise UserError(f"{name} is {value}", f"set --agent.tools.{flag} to 1 or more")

    def for_reading(self, memory: BankMemory, label: Label) -> tuple[Tool, ...]:
        """Make the tools of who reads; what they write is labelled with the turn."""
        return (*_writing(memory, label), *_looking_up(memory, self.preview))

    def for_answering(self, memory: BankMemory, passages: PassageIndex) -> tuple[Tool, ...]:
        """Make the tools of who answers: nothing can be changed with them."""
        tools = (*_looking_up(memory, self.preview), _bm25(passages, self))
        return (*tools, _embedding(passages, self)) if self.embedding else tools


def _writing(memory: BankMemory, label: Label) -> tuple[Tool, ...]:
    def memory_add(title: str, content: str) -> str:
        """Add a note to the memory bank, under a title that no note has yet.

        Args:
            title: A short, unique title.
            content: What to remember.
        """
        taken = "; use memory_update to change it, or choose another title"
        with _refusals(taken if title in memory.notes else ""):
            memory.add(title, content, label())
        return f"Added {title!r}."

    def memory_update(title: str, content: str, new_title: str = "") -> str:
        """Replace the content of a note in the memory bank, and its title if wanted.

        Args:
            title: The note's present title.
            content: The new content, in full.
            new_title: The new title; leave it out to keep the present one.
        """
        with _refusals("" if title in memory.notes else LISTED):
            memory.update(title, content, new_title, label())
        return f"Updated {title!r}" + (f", now {new_title!r}." if new_title else ".")

    def memory_delete(title: str) -> str:
        """Delete a note from the memory bank.

        Args:
            title: The note's title.
        """
        with _refusals(LISTED):
            memory.delete(title, label())
        return f"Deleted {title!r}."

    return tool(memory_add), tool(memory_update), tool(memory_delete)


def _looking_up(memory: BankMemory, preview: int) -> tuple[Tool, ...]:
    def memory_key_retrieve(title: str) -> str:
        """Return the content of a note in the memory bank.

        Args:
            title: The note's title, exactly as memory_list shows it.
        """
        with _refusals(LISTED):
            return memory.get(title)

    def memory_list(filter: str = "") -> str:
        """List the notes in the memory bank: their titles and how each begins.

        Args:
            filter: Only titles that contain this text; upper and lower case differ.
        """
        if not memory.notes:
            raise ToolFailed("The memory bank is empty.")
        if not (notes := memory.find(filter)):
            raise ToolFailed(f"None of {len(memory.notes)} titles contains {filter!r}.")
        return "\n".join(f"- {title}: {_start(text, preview)}" for title, text in notes.items())

    return tool(memory_key_retrieve), tool(memory_list)


def _bm25(passages: PassageIndex, settings: BankTools) -> Tool:
    async def memory_bm25_retrieve(query: str, top_k: int = settings.top_k) -> str:
        """Search the text that was read, by words.

        Args:
            query: The words to look for.
            top_k: How many passages to return.
        """
        if not words(query):
            raise ToolFailed("Error: query holds no word to look for")
        return await _search(passages, settings, query, top_k, "bm25")

    return tool(memory_bm25_retrieve)


def _embedding(passages: PassageIndex, settings: BankTools) -> Tool:
    async def memory_embedding_retrieve(query: str, top_k: int = settings.top_k) -> str:
        """Search the text that was read, by meaning.

        Args:
            query: What to look for.
            top_k: How many passages to return.
        """
        if not query.strip():
            raise ToolFailed("Error: query is empty; say what to look for")
        return await _search(passages, settings, query, top_k, "dense")

    return tool(memory_embedding_retrieve)


async def _search(
    passages: PassageIndex, settings: BankTools, query: str, top_k: int, mode: Mode
) -> str:
    if not len(passages):
        raise ToolFailed("Error: no text has been read yet")
    with _refusals(), boundary("search"):
        hits = await passages.search(query, min(top_k, settings.max_top_k), mode)
    if not hits:
        raise ToolFailed(f"No passage found for {query!r}.")
    results = [
        {"rank": rank, "score": round(hit.score, 4), "text": hit.entry.content}
        for rank, hit in enumerate(hits, start=1)
    ]
    return json.dumps({"results": results}, ensure_ascii=False)


@contextmanager
def _refusals(hint: str = "") -> Iterator[None]:
    """Answer what the memory refuses; what fails for reasons of its own ends the episode."""
    try:
        yield
    except BadOperation as error:
        raise ToolFailed(f"Error: {error}{hint}") from None
    except BoundaryError as error:
        if isinstance(error.cause, BadOperation):
            raise ToolFailed(f"Error: {error.cause}") from None
        raise


def _start(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"

"""Films of chronicles: what a page said, what the agent replied, and its memory afterwards.

Beside the agent a reader by rules reads the same pages, so that the page at which a memory goes
wrong for good is known, and with it why an answer is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.chronicle_teacher import asked_about, follow, noted, recall
from recollect.tasks.made.chronicle_reader import Reader, statements
from recollect.view.memories import Memory, placed
from recollect.view.stored import Stored

FILMS = "films.jsonl"
REASONS = ("never written", "written wrong", "overwritten", "kept but misread")
"""The page that made a memory wrong for good said something new, and the memory stayed as it was or
was written wrong; or said nothing new, and the memory changed; or there is no such page."""
Film = dict[str, Any]


@dataclass(frozen=True)
class Frame:
    """One page, the memory after it, and what a reader by rules knows then."""

    page: int
    told: str
    """What the page says about those who matter."""
    said: str
    memory: str
    changed: bool
    truth: str
    """What is true so far ..."""
    should: str
    """... and the memory that a teacher has."""
    right: bool
    """Whether what is true so far can be read off the memory."""

    def plain(self) -> dict[str, Any]:
        """Return what a film shows; pages are counted from 1."""
        return {
            "page": self.page + 1, "told": self.told, "said": self.said, "memory": self.memory,
            "changed": self.changed, "should": "" if self.right else self.should,
        }  # fmt: skip


def has_memory(record: Mapping[str, Any]) -> bool:
    """Tell whether an agent kept a memory."""
    return any(context["role"] == "memory" for context in record["contexts"])


def names_one(question: str) -> bool:
    """Tell whether rules can read the answer off a memory: the question names somebody."""
    return asked_about(question)[0] != "all"


def watch(stored: Stored, number: int = 0) -> list[Frame]:
    """Read the pages of an episode again, beside its agent."""
    question, reader = stored.questions[number].text, Reader()
    frames, unread = [], list(enumerate(stored.chunks or ()))
    for page, said, before, memory in _memories(stored):
        told = []
        while unread and unread[0][0] <= page:
            page_says = follow(statements(unread.pop(0)[1]), reader, question)
            told += [quote.text for quote in page_says]
        truth = known(reader, question)
        right = known(recall(memory, question), question) == truth
        changed, should = memory != before, noted(reader, question)
        frames.append(Frame(page, " ".join(told), said, memory, changed, truth, should, right))
    return frames


def _memories(stored: Stored) -> Iterator[tuple[int, str, str, str]]:
    """Yield every page with the reply to it, and the memory before and after."""
    memory, ops = Memory(), placed(stored)
    for i, part in enumerate(stored.parts):
        if part.role != "memory" or not part.chunks or not part.turns:
            continue
        before = memory.text
        for turn in range(len(part.turns)):
            for op in ops.get((i, turn), ()):
                memory.apply(op)
        yield part.chunks[1], part.turns[-1].text, before, memory.text


def known(reader: Reader, question: str) -> str:
    """Return the answer so far, after the one who keeps a thing where that is asked."""
    kind, name = asked_about(question)
    keeper = reader.keepers.get(name, "") if kind == "kept" else ""
    return f"{keeper} {reader.answer(question)}".strip()


def reason(frames: Sequence[Frame], question: str) -> str:
    """Say what became of an answer that is wrong, by the page that made its memory wrong."""
    last = max((i for i, frame in enumerate(frames) if frame.right), default=-1)
    if last == len(frames) - 1:
        return "kept but misread"
    own = frames[last + 1]
    before = frames[last].truth if last >= 0 else known(Reader(), question)
    if own.truth == before:
        return "overwritten"
    return "written wrong" if own.changed else "never written"


def film(stored: Stored, number: int, frames: Sequence[Frame]) -> Film:
    """Keep the pages that say something about those who matter, or that change the memory."""
    question = stored.questions[number]
    return {
        "task": stored.task,
        "question": question.text,
        "answers": list(question.answers),
        "answer": stored.answers[number] if number < len(stored.answers) else "",
        "pages": len(frames),
        "frames": [frame.plain() for frame in frames if frame.changed or frame.told],
    }

"""A core text and a bank of titled notes: the memory of an agent that does not know the questions.

Edited only by operations; what it refuses changes nothing. Knows nothing of agents, tools or chats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.memory.entries import BadOperation, check_text
from recollect.types import MemoryOp


@dataclass
class BankMemory:
    """What is always in view (`core`), and notes that are looked up by their titles."""

    core: str = ""
    core_ids: tuple[int, ...] = ()
    """The core's tokens, for the model that wrote it."""
    notes: dict[str, str] = field(default_factory=dict)
    """Content by title, in the order they were added."""
    ops: list[MemoryOp] = field(default_factory=list)

    def rewrite(self, text: str, token_ids: Sequence[int] = (), label: str = "") -> None:
        """Put a new core in place of the old one."""
        self.apply(MemoryOp("core", {"text": text, "token_ids": tuple(token_ids)}, label))

    def add(self, title: str, content: str, label: str = "") -> None:
        """Write a note under a title that none has yet."""
        self.apply(MemoryOp("add", {"title": title, "content": content}, label))

    def update(self, title: str, content: str, new_title: str = "", label: str = "") -> None:
        """Replace a note's content and, if a new title is given, its title."""
        renamed = {"new_title": new_title} if new_title else {}
        self.apply(MemoryOp("update", {"title": title, "content": content, **renamed}, label))

    def delete(self, title: str, label: str = "") -> None:
        """Remove a note."""
        self.apply(MemoryOp("delete", {"title": title}, label))

    def apply(self, op: MemoryOp) -> None:
        """Carry out one operation and record it."""
        data = op.data
        match op.kind:
            case "core":
                self.core, self.core_ids = data["text"], tuple(data["token_ids"])
            case "add":
                self._check(data["title"], data["content"])
                if data["title"] in self.notes:
                    raise BadOperation(f"there is a note {data['title']!r} already")
                self.notes[data["title"]] = data["content"]
            case "update":
                self._update(data["title"], data["content"], data.get("new_title", data["title"]))
            case "delete":
                del self.notes[self._known(data["title"])]
            case _:
                raise ValueError(f"a bank knows no operation {op.kind!r}")
        self.ops.append(op)

    def get(self, title: str) -> str:
        """Return a note's content."""
        return self.notes[self._known(title)]

    def find(self, part: str = "") -> dict[str, str]:
        """Return the notes whose titles contain a text, case and all."""
        return {title: text for title, text in self.notes.items() if part in title}

    def snapshot(self) -> dict[str, Any]:
        """Return the core and the notes."""
        return {"core": self.core, "notes": dict(self.notes)}

    def fork(self) -> BankMemory:
        """Return an independent copy."""
        return BankMemory(self.core, self.core_ids, dict(self.notes), list(self.ops))

    def close(self) -> None:
        """Hold nothing, so give nothing back."""

    def _update(self, title: str, content: str, new_title: str) -> None:
        self._known(title)
        self._check(new_title, content)
        if new_title == title:
            self.notes[title] = content
            return
        if new_title in self.notes:
            raise BadOperation(f"there is a note {new_title!r} already")
        # A renamed note keeps its place.
        new = {title: (new_title, content)}
        self.notes = dict(new.get(own, (own, text)) for own, text in self.notes.items())

    def _known(self, title: str) -> str:
        if title not in self.notes:
            raise BadOperation(f"there is no note {title!r}")
        return title

    @staticmethod
    def _check(title: str, content: str) -> None:
        check_text("title", title)
        check_text("content", content)


def replay(ops: Iterable[MemoryOp]) -> BankMemory:
    """Carry out operations on an empty bank."""
    memory = BankMemory()
    for op in ops:
        memory.apply(op)
    return memory

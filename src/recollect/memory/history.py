"""One text that remembers what it was: every earlier version can be brought back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recollect.memory.terms import words
from recollect.memory.text import TextMemory
from recollect.types import MemoryOp


@dataclass
class HistoryMemory(TextMemory):
    """A text, its earlier versions, and the one of them that was brought back last, if any."""

    recalled: str = ""

    def recall(self, query: str, label: str = "") -> None:
        """Bring back the earlier version that fits a query best; one that fits nothing, none."""
        self.apply(MemoryOp("recall", {"query": query, "text": self.find(query)}, label))

    def apply(self, op: MemoryOp) -> None:
        """Carry out one operation and record it."""
        if op.kind == "recall":
            self.recalled = op.data["text"]
            self.ops.append(op)
        else:
            super().apply(op)

    @property
    def earlier(self) -> list[str]:
        """The versions before the present one, oldest first, each once."""
        written = [op.data["text"] for op in self.ops if op.kind == "replace"]
        return [text for text in dict.fromkeys(written) if text and text != self.text]

    def find(self, query: str) -> str:
        """Return the earlier version with the most words of a query; of several the latest."""
        asked = set(words(query))
        best, most = "", 0
        for text in self.earlier:
            shared = len(asked.intersection(words(text)))
            if shared and shared >= most:
                best, most = text, shared
        return best

    def snapshot(self) -> dict[str, Any]:
        """Return the text with its earlier versions."""
        return {"text": self.text, "recalled": self.recalled, "earlier": self.earlier}

    def fork(self) -> HistoryMemory:
        """Return an independent copy."""
        return HistoryMemory(self.text, self.token_ids, list(self.ops), self.recalled)

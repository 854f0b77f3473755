"""What a program reaches out to: the model, an index of the text, the notes of the episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from recollect.programs.budget import ProgramError
from recollect.programs.values import Pending, Value

Asked = tuple[str, str]
"""A part of the text, and a question about it."""
Search = Callable[[str, int], list[str]]
"""Return the best passages for a query."""
Admit = Callable[[str, str], None]
"""Raise a ProgramError for a part that cannot be shown."""


def _found_nothing(query: str, most: int) -> list[str]:
    return []


def _admitted(text: str, question: str) -> None:
    pass


@dataclass
class Host:
    """One attempt at a program: what was answered before it, and what it asks and notes."""

    search: Search = _found_nothing
    notes: Sequence[str] = ()
    admit: Admit = _admitted
    max_asks: int = 0
    answers: Sequence[str] = ()
    """The answers that have come, in the order in which they were asked for."""
    asked: list[Asked] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)

    def ask(self, text: str, question: str) -> Value:
        """Return an answer that has come, or one that will."""
        if len(self.asked) >= self.max_asks:
            most = f"at most {self.max_asks} calls are left for ask" if self.max_asks else ""
            raise ProgramError(most or "no call is left for ask")
        self.admit(text, question)
        number = len(self.asked)
        self.asked.append((text, question))
        return self.answers[number] if number < len(self.answers) else Pending(number)

    def recall(self, word: str) -> list[str]:
        """Return the notes that hold a word, in any case."""
        return [note for note in (*self.notes, *self.noted) if word.lower() in note.lower()]

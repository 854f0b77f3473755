"""Ledger: talks about spending, one session a chunk, and questions that need sums and maxima.

The shape of Ledger-QA: sessions on days of their own, eight categories, eight kinds of question,
amounts to the cent. Worded by templates, made from a seed; nothing is downloaded. Knows nothing of
agents or models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.made.ledger_book import CATEGORIES, Book, Transaction, draw_book
from recollect.tasks.made.ledger_questions import KINDS, Kind, ask
from recollect.tasks.made.ledger_talk import dialogue
from recollect.types import Question, Task

_DAY = re.compile(r"(?m)^\[(\d{4,}-\d\d-\d\d)\]")
_PRICE = re.compile(r"\$(\d+\.\d\d)")
_DRAWS = 20
_MOST_SESSIONS = 1_000_000  # twice as many days still end before the year 9999


@dataclass(frozen=True)
class Ledger:
    """A family of ledger tasks: any number of sessions, exact answers."""

    name: ClassVar[str] = "ledger"
    metric: ClassVar[str] = "answer_match"

    sessions: int = 10
    """One chunk each, on days of their own, in order."""
    questions: int = 8
    """Questions of a task, of the kinds in turn, no two alike."""
    positions: Literal["end", "any"] = "end"
    """Ask after the last session, or each question after a session drawn for it, about those until
    then."""
    kinds: tuple[Kind, ...] = KINDS
    fewer: bool = False
    """Ask as many as a short ledger has, instead of refusing it."""
    max_transactions: int = 10
    """A session has at least 1 and at most this many."""
    max_chatter: int = 10
    """Exchanges in a session that are about nothing to be recorded, at most."""

    def __post_init__(self) -> None:
        if self.sessions < 1 or self.questions < 1 or self.max_transactions < 1:
            raise UserError(
                f"ledger tasks need sessions, questions and transactions, not {self.sessions},"
                f" {self.questions} and {self.max_transactions}",
                "set sessions, questions and max_transactions to 1 or more",
            )
        if self.sessions > _MOST_SESSIONS or self.max_chatter < 0:
            raise UserError(
                f"{self.sessions} sessions with up to {self.max_chatter} idle exchanges each"
                " are not possible",
                f"set sessions to at most {_MOST_SESSIONS}, and max_chatter to 0 or more",
            )
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise UserError(
                f"there is no kind of ledger question {unknown[0]!r}"
                if unknown
                else "ledger tasks need at least one kind of question",
                f"choose from {', '.join(KINDS)}",
            )

    def size(self, split: Split) -> int | None:
        """Say that there is no end."""
        return None

    def longer(self, times: int) -> Ledger:
        """Return the same family with `times` the sessions."""
        return replace(self, sessions=self.sessions * times)

    def book(self, index: int, seed: int = 0, split: Split = "train") -> list[list[Transaction]]:
        """Return what was spent in a task, session by session."""
        rng = Random(derive("ledger", seed, split, index, "book"))
        return draw_book(self.sessions, self.max_transactions, rng)

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; it depends on nothing but the settings and these three."""
        # Apart, so that the same books can be worded or asked about in another way.
        talk, asking = (
            Random(derive("ledger", seed, split, index, part)) for part in ("talk", "questions")
        )
        book = self.book(index, seed, split)
        chunks = tuple(dialogue(s, s[0].day, self._idle(len(s), talk), talk) for s in book)
        name = f"ledger-{split}-{seed}-{index}-of-{self.sessions}-sessions"
        return Task(name, chunks, self._questions(book, asking), self.name)

    def _idle(self, payments: int, rng: Random) -> int:
        """Return how many idle exchanges a session has: fewer where it has many payments, so that
        its length does not say how many it has."""
        return min(self.max_chatter, self.max_transactions - payments + rng.randint(0, 1))

    def guesses(self, task: Task, question: Question | None = None) -> list[str]:
        """Return what a question of its kind can be answered with, or any question."""
        kind = question.category if question else ""
        days = dict.fromkeys(_DAY.findall("\n".join(task.chunks)))
        amounts = dict.fromkeys(_PRICE.findall("\n".join(task.chunks)))
        by_kind = {"max_scene": list(CATEGORIES), "max_frequency_date": list(days)}
        if question is None:
            return [*CATEGORIES, *days, *amounts]
        return by_kind.get(kind, list(amounts))

    def _questions(self, book: Book, rng: Random) -> tuple[Question, ...]:
        found: dict[str, Question] = {}
        kinds = rng.sample(self.kinds, len(self.kinds))
        while kinds and len(found) < self.questions:
            for kind in list(kinds):
                question = self._new_question(kind, book, found, rng)
                if question:
                    found[question.text] = question
                if not question or kind == "total_amount":
                    kinds.remove(kind)
        if len(found) < self.questions and not self.fewer:
            raise UserError(
                f"a ledger of {self.sessions} sessions has only {len(found)} questions of these"
                f" kinds, not {self.questions}",
                "ask fewer questions, or set more sessions or kinds, or --tasks.fewer",
            )
        return tuple(list(found.values())[: self.questions])

    def _new_question(
        self, kind: Kind, book: Book, found: Mapping[str, Question], rng: Random
    ) -> Question | None:
        """Draw a question of a kind that was not asked yet; a short ledger has few of some."""
        for _ in range(_DRAWS):
            read = len(book) if self.positions == "end" else rng.randint(1, len(book))
            question = ask(kind, book[:read], rng)
            if question.text not in found:
                return replace(question, position=None if read == len(book) else read - 1)
        return None

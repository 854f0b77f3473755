"""Which answers can be asked for in a text whose documents other texts share.

An answer to a question about another document may occur in a text by coincidence: "1973", "the
war". Nobody can be asked for it there, and as such answers are short and frequent, a rule that
takes the longest would look like a leak. Where the documents of a text are asked about elsewhere,
the answers to those questions are what there is to choose from: which of them is asked for here
is as good as drawn.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from hashlib import blake2b
from unicodedata import category

from recollect.tasks.audit.guesses import split_words
from recollect.types import Task

_NUMBERED = re.compile(r"document \d+: ")
_WORDS = re.compile(r"\w+")

Answer = tuple[str, ...]
"""An answer by its words."""


class SharedAnswers:
    """The answers of all audited questions, by the documents that hold their evidence."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._asked: dict[bytes, list[tuple[frozenset[bytes], Answer]]] = {}
        for task in tasks:
            for question in task.questions:
                if not question.answers or not question.evidence:
                    continue
                held = frozenset(text_digest(task.chunks[i]) for i in question.evidence)
                row = (held, split_words(question.answers[0]))
                rows = self._asked.setdefault(min(held), [])
                if row not in rows:
                    rows.append(row)

    def among(self, chunks: Sequence[str]) -> frozenset[Answer]:
        """Return the answers to questions whose evidence is all in these chunks."""
        here = {text_digest(chunk) for chunk in chunks} if self._asked else set()
        return frozenset(
            answer
            for key in here & self._asked.keys()
            for held, answer in self._asked[key]
            if held <= here
        )


def text_digest(text: str) -> bytes:
    """Return what a text is known by: its words alone, without the number of a document."""
    return digest_of(plain_words(text))


def plain_words(text: str) -> str:
    """Return the words of a text without the number of a document.

    Case, spaces, punctuation and what cannot be seen make no other text.
    """
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKC", text) if category(c) != "Cf")
    plain = _NUMBERED.sub("", " ".join(text.casefold().split()), count=1)
    return " ".join(_WORDS.findall(plain)) or plain


def digest_of(plain: str) -> bytes:
    """Return a short name of such words."""
    return blake2b(plain.encode("utf-8", "replace"), digest_size=12).digest()

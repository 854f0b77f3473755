"""RULER: thirteen kinds of questions about texts of any length, in their published configurations.

Needles in haystacks, chains of variables and word counts are made from a seed; haystacks of prose
come from a folder of books, documents from SQuAD and HotpotQA. Knows nothing of agents or models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.documents.squad import article_of
from recollect.tasks.haystacks.haystack import (
    NOISE,
    Haystack,
    Position,
    Sentences,
    draw_depths,
    plant,
    read_books,
)
from recollect.tasks.haystacks.hidden import FULL, HiddenEvidence
from recollect.tasks.haystacks.ruler_counts import common_words, frequent_words
from recollect.tasks.haystacks.ruler_documents import SOURCES, Shelf, gather, open_shelf
from recollect.tasks.haystacks.ruler_needles import (
    NEEDLES,
    Chain,
    Hay,
    Hidden,
    hide_chain,
    hide_needles,
    key_in,
    needle_hay,
)
from recollect.tasks.lengths import BYTES_PER_TOKEN
from recollect.tasks.splits import pick
from recollect.types import Question, Task

VARIANTS = (*NEEDLES, "vt", "cwe", "fwe", *SOURCES)

DENSITY: Mapping[str, float] = MappingProxyType(
    {"niah_multikey_2": 2.3, "niah_multikey_3": 1.3, "cwe": 1.9, "fwe": 2.4}
)
"""Bytes per token where a text is not prose, for tokenizers that take digits one by one."""

_QUESTION_TOKENS = 80
"""Room for the question, whose length is part of the whole."""
_BOOKS = (
    "take a folder of public-domain books (.txt or .txt.gz, such as Project Gutenberg's) with"
    " `recollect data ruler --input BOOKS`, or choose niah_single_1"
)


@dataclass(frozen=True)
class Ruler(HiddenEvidence):
    """A family of RULER tasks: one kind, one length."""

    name: ClassVar[str] = "ruler"
    metric: ClassVar[str] = "answer_match"
    variants: ClassVar[tuple[str, ...]] = VARIANTS

    variant: str = "niah_single_1"
    position: Position = "any"
    """The position of the evidence; not for cwe and fwe, which need the whole text."""
    folder: Path = Path("data/ruler")
    """Holds books/ for essays; qa_1 and qa_2 take squad/ and hotpotqa/ beside it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant in ("cwe", "fwe") and (self.position != "any" or self.depth is not None):
            raise UserError(
                f"{self.variant} needs its whole text, so its evidence has no position",
                "leave position and depth out",
            )

    @property
    def scorers(self) -> tuple[str, ...]:
        """Every reference must be found, or for questions about documents one of them."""
        return ("ruler_any",) if self.variant in SOURCES else ("ruler_recall",)

    @property
    def bytes_per_token(self) -> float:
        """How dense this kind of text is, which decides how much of it has `tokens` tokens."""
        return DENSITY.get(self.variant, BYTES_PER_TOKEN)

    def size(self, split: Split) -> int | None:
        """Count the questions about documents; all else has no end."""
        return self._shelf.stored.size(split) if self.variant in SOURCES else None

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; it depends on nothing but the settings and these three."""
        rng = Random(derive("ruler", self.variant, seed, split, index))
        if self.variant in ("cwe", "fwe"):
            return self._counted(self._id(f"{split}-{seed}-{index}"), rng)
        if self.variant in SOURCES:
            return self._documents(index, seed, split)
        return self._planted(self._id(f"{split}-{seed}-{index}"), rng)

    def data_files(self) -> list[Path]:
        """Name the books, or the documents beside them, where this kind reads any."""
        if self.variant in SOURCES:
            return list(self._shelf.stored.files)
        niah = NEEDLES.get(self.variant)
        return [self.folder / "books"] if niah and niah.hay == "essay" else []

    @property
    def _dense(self) -> dict[str, float]:
        """What to count tokens by, where the fixed estimate is far off."""
        return {"bytes_per_token": DENSITY[self.variant]} if self.variant in DENSITY else {}

    @property
    def _room(self) -> int:
        """Tokens for the text, as the fixed estimate counts them."""
        density = self.bytes_per_token / BYTES_PER_TOKEN
        return int(FULL * self.tokens * density) - _QUESTION_TOKENS

    @property
    def _chunk_tokens(self) -> int:
        return max(1, int(self.chunk_tokens * self.bytes_per_token / BYTES_PER_TOKEN))

    def _planted(self, id: str, rng: Random) -> Task:
        niah = NEEDLES.get(self.variant)
        hidden = hide_needles(niah, rng) if niah else hide_chain(Chain(), rng)
        haystack = self._haystack(niah.hay if niah else Chain().hay, hidden, rng)
        depths = draw_depths(len(hidden.sentences), rng, self.position, self.depth)
        if not hidden.ordered:
            rng.shuffle(depths)
        order = sorted(range(len(depths)), key=lambda i: depths[i])
        chunks = plant(
            haystack,
            [hidden.sentences[i] for i in order],
            [depths[i] for i in order],
            self._room,
            self._chunk_tokens,
            "\n" if niah and niah.hay == "needles" else " ",
        )
        wanted = [place for place, i in enumerate(order) if i in hidden.wanted]
        evidence = tuple(sorted({chunks.chunk_of(place) for place in wanted}))
        several = len(hidden.answers) > 1
        question = Question(hidden.question, hidden.answers, self.variant, evidence, every=several)
        meta = {"depths": [round(depths[i], 4) for i in hidden.wanted], **self._dense}
        return Task(id, chunks, (question,), self.name, meta)

    def _haystack(self, hay: Hay, hidden: Hidden, rng: Random) -> Haystack:
        if hay == "needles":
            keys = tuple(key_in(sentence) for sentence in hidden.sentences)
            return needle_hay(NEEDLES[self.variant], rng.getrandbits(63), keys)
        if hay == "noise":
            return Sentences(NOISE).cycle(rng)
        return self._books.cycle(rng)

    def _counted(self, id: str, rng: Random) -> Task:
        make = common_words if self.variant == "cwe" else frequent_words
        counted = make(self._room, self._chunk_tokens, rng)
        evidence = tuple(range(len(counted.text)))
        question = Question(counted.question, counted.answers, self.variant, evidence, every=True)
        return Task(id, counted.text, (question,), self.name, dict(self._dense))

    def _documents(self, index: int, seed: int, split: Split) -> Task:
        stored = self._shelf.stored
        fix = "ask for fewer, or give a file with more questions"
        name = f"{self.name} {self.variant}"
        place = pick(range(stored.size(split)), index, seed, split, name, fix)
        item = stored.item(split, place)
        rng = Random(derive(name, "text", seed, split, index, item.id))
        chunks = gather(self._shelf, item, split, self._room, rng, self.position, self.depth)
        at = tuple(np.flatnonzero(np.isin(chunks.order, item.gold)).tolist())
        question = Question(item.question, item.answers, self.variant, at)
        meta = {"item": item.id, "depths": [round(i / len(chunks), 4) for i in at]}
        if SOURCES[self.variant] == "squad":
            meta["cluster"] = article_of(stored, item)
        return Task(self._id(f"{split}-{seed}-{index}"), chunks, (question,), self.name, meta)

    @cached_property
    def _books(self) -> Sentences:
        books = self.folder / "books"
        if not books.is_dir():
            raise UserError(
                f"{self.variant} hides its needles in prose, and there is no folder {books}",
                _BOOKS,
            )
        return read_books(books)

    @cached_property
    def _shelf(self) -> Shelf:
        name = SOURCES[self.variant]
        return open_shelf(self.folder.parent / name, name)

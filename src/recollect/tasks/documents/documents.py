"""Long texts made of documents: a question's own paragraphs among distractors, in a new order each.

MemAgent's construction for HotpotQA, for any data set of questions with paragraphs, with two
changes: every item is shuffled by a seed of its own, so that evidence is equally likely anywhere,
and no distractor bears the title of one of the item's own paragraphs. A text of 25,600 documents is
a list of numbers; documents are read from a mapped file when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split, at_most
from recollect.tasks.documents.placement import check_placement, place
from recollect.tasks.files.lazy import Lazy
from recollect.tasks.lengths import BYTES_PER_TOKEN, parse_length
from recollect.types import Question, Task

if TYPE_CHECKING:
    from recollect.tasks.documents.document_files import DocumentFolder, StoredItem
    from recollect.tasks.documents.passages import PassageFile, Pool

TOKENS_PER_DOCUMENT = 140.35
"""HotpotQA under Qwen's tokenizer, as published."""
PUBLISHED = {
    parse_length(label): documents
    for label, documents in (
        ("7k", 50),
        ("14k", 100),
        ("28k", 200),
        ("56k", 400),
        ("112k", 800),
        ("224k", 1600),
        ("448k", 3200),
        ("896k", 6400),
        ("1.75m", 12800),
        ("3.5m", 25600),
    )
}
"""The documents of the published lengths, by their names in tokens."""


def documents_of(tokens: int) -> int:
    """Return how many documents have a length: the published number, or by the mean document."""
    return PUBLISHED.get(tokens) or max(1, round(tokens / TOKENS_PER_DOCUMENT))


@dataclass(frozen=True, eq=False)
class DocumentText(Lazy[str]):
    """The documents of one text, numbered from 1, each made when it is asked for."""

    passages: PassageFile
    order: np.ndarray
    """int32: the passage at every place."""
    numbered: bool = True
    """Whether a document starts with its number, as published."""

    def __len__(self) -> int:
        return len(self.order)

    def item(self, place: int) -> str:
        """Make the document at a place."""
        text = self.passages[int(self.order[place])]
        return f"Document {place + 1}:\n{text}" if self.numbered else text


@dataclass(frozen=True)
class DocumentTasks:
    """A family of questions among documents; what `recollect data` wrote into a folder."""

    name: ClassVar[str] = "documents"
    metric: ClassVar[str] = "answer_match"
    scorers: ClassVar[tuple[str, ...]] = ("hotpotqa_em", "hotpotqa_f1", "memagent_sub_em")
    published: ClassVar[bool] = False
    """Whether the published lengths are those of these documents."""

    folder: Path = field(default_factory=Path)
    """What `recollect data` wrote."""
    documents: int = 200
    """Documents in a text: published results use 50 to 25,600, training uses 200."""
    placement: str = "uniform"
    """Position of the evidence: uniform, first, middle, last, forward, backward, far or gapN."""

    def __post_init__(self) -> None:
        check_placement(self.placement)
        if self.documents < 1:
            raise UserError(f"documents is {self.documents}", "set documents to 1 or more")

    def size(self, split: Split) -> int:
        """Count the questions of a split."""
        return self._stored.size(split)

    def of_length(self, tokens: int) -> Self:
        """Return the same questions among as many documents as have about this many tokens."""
        if self.published:
            return replace(self, documents=documents_of(tokens))
        mean = self._stored.passages.mean_bytes / BYTES_PER_TOKEN
        return replace(self, documents=max(1, round(tokens / mean)))

    @property
    def repeats(self) -> bool:
        """Whether distractors may be repeated."""
        return self._stored.repeat

    def longer(self, times: int) -> Self:
        """Return the same questions among `times` as many documents."""
        return replace(self, documents=self.documents * times)

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make the text of one question; the seed draws its distractors and their order.

        Training goes round the questions, in a new order and among new documents every time. Held
        out questions come in one order whatever the seed, so that seeds and lengths can be paired.
        """
        count = self.size(split)
        lap, at = divmod(index, max(1, count))
        if not count or (lap and split == "test"):
            raise UserError(
                f"{self.folder} holds {count} {split} questions, not {index + 1}",
                at_most(count)
                if count
                else f"give `recollect data {self.name}` a file of {split} questions",
            )
        key = (seed, lap) if split == "train" else ()
        place = _shuffled(count, self.name, split, *key)[at] if self.shuffled(split) else at
        item = self._stored.item(split, place)
        rng = Random(derive(seed, self.name, split, item.id, self.documents, lap))
        order, evidence = self._arrange(item, split, rng)
        question = Question(item.question, item.answers, item.category, evidence)
        meta = {"item": item.id, "documents": len(order), "placement": self.placement}
        meta |= self._cluster(item)
        id = f"{self.name}-{split}-{seed}-{index}-of-{len(order)}-documents"
        id += "" if self.placement == "uniform" else f"-{self.placement}"
        text = DocumentText(self._stored.passages, order, self._stored.numbered)
        return Task(id, text, (question,), self.name, meta)

    def data_files(self) -> list[Path]:
        """Name what the texts are made from."""
        return self._stored.files

    def shuffled(self, split: Split) -> bool:
        """Tell whether the questions of a split come in a drawn order, or as they are stored."""
        return True

    def _cluster(self, item: StoredItem) -> dict[str, str]:
        """Name what a question shares with others, as part of its task's meta; here nothing."""
        return {}

    def _arrange(
        self, item: StoredItem, split: Split, rng: Random
    ) -> tuple[np.ndarray, tuple[int, ...]]:
        """Draw the distractors and put every document at its place."""
        others = [number for number in item.own if number not in item.gold]
        if item.fixed is not None:
            where = {number: i for i, number in enumerate(item.fixed.tolist())}
            return item.fixed, tuple(where[number] for number in item.gold)
        spare = self.documents - len(item.own)
        if spare >= 0:
            others += self._distractors(item, split, spare, rng)
        else:
            others = rng.sample(others, max(0, self.documents - len(item.gold)))
        rng.shuffle(others)
        places = place(self.placement, len(item.gold), self.documents, rng)
        order = np.full(self.documents, -1, np.int32)
        order[places] = item.gold
        order[order < 0] = others
        return order, tuple(places)

    def _distractors(self, item: StoredItem, split: Split, count: int, rng: Random) -> list[int]:
        pool = self._pools[split]
        titles = self._stored.passages.titles
        barred = pool.bearing(titles[list(item.own)])
        free = len(pool.numbers) - len(barred)
        if count > free and not (self.repeats and free):
            raise UserError(
                f"{self.folder} has {free:,} distractors for a {split} question, but a text of"
                f" {self.documents:,} documents needs {count:,}",
                f"give `recollect data {self.name}` more files with --distractors, or --repeat to"
                " repeat distractors",
            )
        laps, rest = divmod(count, max(1, free))
        # Draw as many more as may have to be passed over: so the whole pool is never looked at.
        drawn = rng.sample(range(len(pool.numbers)), min(rest + len(barred), len(pool.numbers)))
        places = [at for at in drawn if at not in barred][:rest]
        for _ in range(laps):
            places += [at for at in range(len(pool.numbers)) if at not in barred]
        return pool.numbers[places].tolist()

    @cached_property
    def _stored(self) -> DocumentFolder:
        from recollect.tasks.documents.document_files import open_folder  # Parquet: not for --help

        return open_folder(self.folder, self.name)

    @cached_property
    def _pools(self) -> dict[Split, Pool]:
        splits: tuple[Split, ...] = ("train", "test")
        return {split: self._stored.passages.pool(split) for split in splits}


@lru_cache(maxsize=8)
def _shuffled(count: int, *key: str | int) -> tuple[int, ...]:
    order = list(range(count))
    Random(derive(*key)).shuffle(order)
    return tuple(order)

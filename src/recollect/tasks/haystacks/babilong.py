"""BABILong: the facts of a bAbI story, in their order, scattered over the pages of books.

Knows nothing of agents or models.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import ClassVar

from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.haystacks.babi import HINTS, TASKS, BabiQuestion, read_babi
from recollect.tasks.haystacks.haystack import (
    Position,
    Sentences,
    draw_depths,
    plant,
    read_books,
    weigh,
)
from recollect.tasks.haystacks.hidden import FULL, HiddenEvidence
from recollect.tasks.splits import pick
from recollect.types import Question, Task

_QUESTION_TOKENS = 40
_STORY = 0.8
"""How much of a text its story may be: the rest is needed to hide it in."""
_ONE_WORD = "Answer with one word."


@dataclass(frozen=True)
class BabiLong(HiddenEvidence):
    """A family of BABILong tasks: one of bAbI's twenty, at one length."""

    name: ClassVar[str] = "babilong"
    metric: ClassVar[str] = "answer_match"
    scorers: ClassVar[tuple[str, ...]] = ("babilong_match",)
    variants: ClassVar[tuple[str, ...]] = TASKS

    variant: str = "qa1"
    tokens: int = 8192
    """Length of text and question, estimated. Stories that are longer are left out."""
    position: Position = "any"
    """The position of the story's facts; they keep their order."""
    folder: Path = Path("data/babilong")
    """Holds books/ and babi/ (qa1_..._train.txt and so on, or their archive)."""

    def size(self, split: Split) -> int:
        """Count the questions whose story is short enough."""
        return len(self._items[split])

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return the index-th task; held-out ones come in one order and only once."""
        items = self._items[split]
        fix = (
            f"ask for fewer tasks, or for more than {self.tokens} tokens, or give the files of both"
            " splits to `recollect data babilong`"
        )
        number = pick(range(len(items)), index, seed, split, f"{self.name} {self.variant}", fix)
        # Keyed by the item, not by the length: a longer text hides the same facts as deep.
        rng = Random(derive("babilong", self.variant, "text", seed, split, index, number))
        return self._hidden(items[number], number, f"{split}-{seed}-{index}", rng)

    def _hidden(self, asked: BabiQuestion, number: int, name: str, rng: Random) -> Task:
        depths = draw_depths(len(asked.facts), rng, self.position, self.depth)
        haystack = self._books.cycle(rng)
        chunks = plant(haystack, asked.facts, depths, self._room, self.chunk_tokens)
        fact_chunks = [chunks.chunk_of(fact) for fact in range(len(asked.facts))]
        evidence = tuple(sorted({fact_chunks[fact] for fact in asked.supporting}))
        text = f"{asked.text} {HINTS.get(self.variant, _ONE_WORD)}"
        question = Question(text, asked.answers, self.variant, evidence, every=asked.every)
        meta = {
            "item": number,
            "cluster": f"story {asked.story}",
            "facts": list(asked.facts),
            "supporting": list(asked.supporting),
            "fact_chunks": fact_chunks,
        }
        return Task(self._id(name), chunks, (question,), self.name, meta)

    @property
    def _room(self) -> int:
        return int(FULL * self.tokens) - _QUESTION_TOKENS

    @cached_property
    def _books(self) -> Sentences:
        return read_books(self.folder / "books")

    @cached_property
    def _items(self) -> dict[Split, tuple[BabiQuestion, ...]]:
        splits: tuple[Split, ...] = ("train", "test")
        most = _STORY * self._room
        return {
            split: tuple(
                asked
                for asked in read_babi(self.folder / "babi", self.variant, split)
                if sum(weigh(f"{fact} ") for fact in asked.facts) <= most
            )
            for split in splits
        }

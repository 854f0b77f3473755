"""RULER's questions about documents: those of SQuAD (qa_1) and HotpotQA (qa_2), by tokens.

Reads what `recollect data squad` and `recollect data hotpotqa` wrote. Unlike these families, which
take a number of documents, a text is filled with documents until it has its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import UserError
from recollect.tasks.base import Split
from recollect.tasks.documents.documents import DocumentText
from recollect.tasks.haystacks.haystack import Position, draw_depths, weigh

if TYPE_CHECKING:
    from recollect.tasks.documents.document_files import DocumentFolder, StoredItem

SOURCES = {"qa_1": "squad", "qa_2": "hotpotqa"}
_HEADING = weigh("Document 10000:\n\n\n")


@dataclass(frozen=True)
class Shelf:
    """Questions and the documents a text about them can be made of."""

    stored: DocumentFolder

    @cached_property
    def pools(self) -> dict[Split, np.ndarray]:
        """The documents of each split, none of which is the other's."""
        splits: tuple[Split, ...] = ("train", "test")
        return {split: self.stored.passages.pool(split).numbers for split in splits}

    def weight(self, document: int) -> float:
        """Return the tokens of a document and its heading."""
        return weigh(self.stored.passages[document]) + _HEADING


def open_shelf(folder: Path, name: str) -> Shelf:
    """Open what `recollect data NAME` wrote."""
    from recollect.tasks.documents.document_files import open_folder  # Parquet: not for --help

    return Shelf(open_folder(folder, name))


def gather(
    shelf: Shelf,
    item: StoredItem,
    split: Split,
    tokens: int,
    rng: Random,
    position: Position,
    depth: float | None,
) -> DocumentText:
    """Put an item's documents among others until the text is full, in an order of its own."""
    depths = draw_depths(len(item.gold), rng, position, depth)
    gold = rng.sample(item.gold, len(item.gold))
    room = tokens - sum(map(shelf.weight, gold))
    if room < 0:
        raise UserError(f"the documents of {item.id} exceed {tokens} tokens", "ask for more")
    chosen = []
    for document in _others(shelf, item, split, rng):
        room -= shelf.weight(document)
        if room < 0:
            break
        chosen.append(document)
    else:
        raise UserError(
            f"there are {len(chosen) + len(gold):,} different documents of about"
            f" {tokens - room:,.0f} tokens, too few for {tokens:,}",
            f"ask for less, or give `recollect data {shelf.stored.manifest.name}` more files with"
            " --distractors",
        )
    rng.shuffle(chosen)
    # From the last to the first, so that no earlier document moves a later one.
    for document, at in sorted(zip(gold, depths, strict=True), key=lambda pair: -pair[1]):
        chosen.insert(round(at * len(chosen)), document)
    return DocumentText(shelf.stored.passages, np.array(chosen, np.int32), True)


def _others(shelf: Shelf, item: StoredItem, split: Split, rng: Random) -> list[int]:
    """Return the item's other documents, and then those of other titles in a drawn order."""
    near = [document for document in item.own if document not in item.gold]
    pool, titles = shelf.pools[split], shelf.stored.passages.titles
    far = pool[~np.isin(titles[pool], titles[list(item.own)])].tolist()
    return [*rng.sample(near, len(near)), *rng.sample(far, len(far))]

"""Which paragraphs are held out: what a test question shows is never read in training.

Test questions come first and keep all their paragraphs. A training question loses those that it
shares with them, or is left out where the shared one is its evidence. Paragraphs without a question
go to one side or the other, whole titles together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b

from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.documents.paragraphs import Item, Paragraph

TRAINING_SHARE = 4
"""One in four titles without a question is for training: held-out texts are the longer ones."""

_MARKS = bytes(code for code in range(128) if not chr(code).isalnum())


@dataclass
class Partition:
    """The paragraphs of each split, by what they say."""

    one_per_title: bool
    """Whether a title names one passage: then paragraphs of one title are the same."""
    removed: int = 0
    """Paragraphs taken away from training questions."""
    _held: set[bytes] = field(default_factory=set)
    _titles: dict[Split, set[bytes]] = field(
        default_factory=lambda: {"train": set(), "test": set()}
    )

    def keep(self, item: Item, split: Split) -> Item | None:
        """Return what of an item is its split's; None where its evidence is the other one's."""
        if split == "train":
            held = [self._key(p) in self._held for p in item.paragraphs]
            if any(held[i] for i in item.gold):
                return None
            kept = [i for i, gone in enumerate(held) if not gone]
            self.removed += len(held) - len(kept)
            place = {old: new for new, old in enumerate(kept)}
            paragraphs = tuple(item.paragraphs[i] for i in kept)
            item = replace(item, paragraphs=paragraphs, gold=tuple(place[i] for i in item.gold))
        else:
            self._held.update(map(self._key, item.paragraphs))
        self._titles[split].update(_digest(p.title) for p in item.paragraphs)
        return item

    def side(self, paragraph: Paragraph) -> Split:
        """Return the split of a paragraph that came without a question."""
        title = _digest(paragraph.title)
        if self._key(paragraph) in self._held or title in self._titles["test"]:
            return "test"
        if title in self._titles["train"] or not self._titles["test"]:
            return "train"
        drawn = derive("documents", "split", title.hex()) % TRAINING_SHARE
        return "train" if self._titles["train"] and drawn == 0 else "test"

    def _key(self, paragraph: Paragraph) -> bytes:
        return _digest(paragraph.title if self.one_per_title else paragraph.text)


def _digest(text: str) -> bytes:
    """Take a text by its letters and digits: copies differ in spaces, marks and case."""
    folded = text.casefold()
    if folded.isascii():  # most are, and a set of paragraphs has millions of characters
        plain = folded.encode().translate(None, _MARKS)
    else:
        plain = "".join(filter(str.isalnum, folded)).encode("utf-8", "replace")
    return blake2b(plain or text.encode("utf-8", "replace"), digest_size=16).digest()

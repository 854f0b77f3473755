"""RULER's questions about documents: SQuAD (qa_1) and HotpotQA (qa_2) among other paragraphs.

Reads the official files. The documents of a text are all different; each is one chunk.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random
from typing import Any, overload

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.haystack import Position, draw_depths
from recollect.tasks.lengths import estimate_tokens


@dataclass(frozen=True)
class Item:
    """A question and the documents that answer it."""

    id: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    """Places in the pool of documents."""
    near: tuple[int, ...]
    """Documents that came with it and do not answer it."""
    group: str
    """What decides its split: questions about one article belong together."""


@dataclass(frozen=True)
class Pool:
    """Documents and the questions about them."""

    documents: tuple[str, ...]
    items: tuple[Item, ...]

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        return tuple(estimate_tokens(_headed(10_000, text)) for text in self.documents)

    @cached_property
    def splits(self) -> dict[Split, tuple[Item, ...]]:
        """Deal the items to train and test, half and half, by a hash of what they are about."""
        parts: dict[Split, list[Item]] = {"train": [], "test": []}
        for item in self.items:
            parts["test" if derive("split", item.group) % 2 else "train"].append(item)
        return {split: tuple(part) for split, part in parts.items()}


@dataclass(frozen=True)
class Documents(Sequence[str]):
    """Numbered documents in an order."""

    pool: Pool
    order: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self.order)))]
        document = self.pool.documents[self.order[index]]
        return _headed(index % len(self.order) + 1, document)


def gather(
    pool: Pool, item: Item, tokens: int, rng: Random, position: Position, depth: float | None
) -> Documents:
    """Put an item's documents among others of the pool, in an order of this item's own."""
    depths = draw_depths(len(item.gold), rng, position, depth)
    gold = rng.sample(item.gold, len(item.gold))
    others = [*rng.sample(item.near, len(item.near))]
    known = {*item.gold, *item.near}
    rest = list(range(len(pool.documents)))
    rng.shuffle(rest)
    others += [place for place in rest if place not in known]
    room = tokens - sum(pool.tokens[place] for place in item.gold)
    chosen = []
    for place in others:
        if pool.tokens[place] > room:
            break
        chosen.append(place)
        room -= pool.tokens[place]
    else:
        most = sum(pool.tokens)
        raise UserError(
            f"{len(pool.documents):,} different documents have {most:,} tokens, not {tokens:,}",
            f"ask for at most {most:,} tokens, or give a file with more documents",
        )
    if room < 0:
        raise UserError(
            f"the documents of {item.id} have more than {tokens} tokens", "ask for more"
        )
    rng.shuffle(chosen)
    # From the last to the first, so that no earlier document moves a later one.
    for place, at in sorted(zip(gold, depths, strict=True), key=lambda pair: -pair[1]):
        chosen.insert(round(at * len(chosen)), place)
    return Documents(pool, tuple(chosen))


def _headed(number: int, text: str) -> str:
    return f"Document {number}:\n{text}"


@lru_cache(maxsize=2)
def read_squad(path: Path) -> Pool:
    """Read a SQuAD file (1.1 or 2.0): every answerable question and all paragraphs."""
    documents: dict[str, int] = {}
    items: list[Item] = []
    try:
        for article in _json(path)["data"]:
            places = [
                documents.setdefault(paragraph["context"].strip(), len(documents))
                for paragraph in article["paragraphs"]
            ]
            for place, paragraph in zip(places, article["paragraphs"], strict=True):
                near = tuple(dict.fromkeys(p for p in places if p != place))
                for qa in paragraph["qas"]:
                    answers = tuple(dict.fromkeys(a["text"].strip() for a in qa["answers"]))
                    if answers and not qa.get("is_impossible"):
                        question = qa["question"].strip()
                        item = Item(qa["id"], question, answers, (place,), near, article["title"])
                        items.append(item)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no SQuAD file: {error!r}", SQUAD_FIX) from None
    return Pool(tuple(documents), tuple(items))


@lru_cache(maxsize=2)
def read_hotpotqa(path: Path) -> Pool:
    """Read a HotpotQA file (distractor setting), as one list or one item per line."""
    documents: dict[str, int] = {}
    items: list[Item] = []
    try:
        for row in _rows(path):
            titles = {title for title, _ in row["supporting_facts"]}
            gold: list[int] = []
            near: list[int] = []
            for title, sentences in row["context"]:
                text = f"{title}\n{''.join(sentences).strip()}"
                place = documents.setdefault(text, len(documents))
                (gold if title in titles else near).append(place)
            if gold:
                answers = (str(row["answer"]).strip(),)
                found, other = (tuple(dict.fromkeys(places)) for places in (gold, near))
                id = str(row["_id"])
                items.append(Item(id, row["question"].strip(), answers, found, other, id))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path} is no HotpotQA file: {error!r}", HOTPOTQA_FIX) from None
    return Pool(tuple(documents), tuple(items))


SQUAD_FIX = "download dev-v2.0.json (or dev-v1.1.json) from rajpurkar.github.io/SQuAD-explorer"
HOTPOTQA_FIX = "download hotpot_dev_distractor_v1.json from hotpotqa.github.io"


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    text = _text(path)
    if text.lstrip().startswith("["):
        yield from json.loads(text)
    else:
        yield from (json.loads(line) for line in text.splitlines() if line.strip())


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except ValueError as error:
        raise UserError(f"{path} cannot be read as JSON: {error}", "download it again") from None


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}", "download it again") from None

"""Questions among documents as files: built from a data set's own, and opened again.

A folder holds the passages, `train.parquet` and `test.parquet` (a question, and which passages are
its own and which of them its evidence) and `manifest.json` with what went in and what came out. The
same input gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recollect.errors import UserError
from recollect.files import replacing
from recollect.foreign import storable_values
from recollect.tasks.base import Split
from recollect.tasks.documents.known import Known
from recollect.tasks.documents.paragraphs import (
    DocumentSource,
    DroppedRecord,
    Item,
    read_paragraphs,
)
from recollect.tasks.documents.partition import Partition
from recollect.tasks.documents.passages import FILES as PASSAGES
from recollect.tasks.documents.passages import SPLITS, PassageFile, PassageWriter
from recollect.tasks.files.manifest import (
    Manifest,
    building,
    checked,
    read_manifest,
    write_manifest,
)
from recollect.tasks.files.records import SUFFIXES, refuse_empty
from recollect.tasks.splits import split_of_file

_NUMBERS = pa.list_(pa.int32())
ITEMS = pa.schema(
    {
        "id": pa.string(),
        "question": pa.string(),
        "answers": pa.list_(pa.string()),
        "category": pa.string(),
        "own": _NUMBERS,
        "gold": _NUMBERS,
        "fixed": _NUMBERS,
    }
)
FILES = (*PASSAGES, "train.parquet", "test.parquet")


@dataclass(frozen=True)
class StoredItem:
    """A question, and its passages by number."""

    id: str
    question: str
    answers: tuple[str, ...]
    category: str
    own: tuple[int, ...]
    gold: tuple[int, ...]
    fixed: np.ndarray | None
    """The whole text, where it came as one and is not to be made."""


@dataclass(frozen=True)
class DocumentFolder:
    """What a folder holds: passages, and the questions of both splits as Arrow tables."""

    folder: Path
    manifest: Manifest
    passages: PassageFile
    tables: Mapping[Split, pa.Table]

    @property
    def files(self) -> list[Path]:
        """What texts are made from; rows for MemAgent may lie beside it."""
        return [self.folder / name for name in FILES]

    @property
    def repeat(self) -> bool:
        """Whether distractors may come again."""
        return bool(self.manifest.settings.get("repeat"))

    @property
    def numbered(self) -> bool:
        """Whether documents start with their numbers."""
        return bool(self.manifest.settings.get("numbered", True))

    def size(self, split: Split) -> int:
        """Count a split's questions."""
        return self.tables[split].num_rows

    def item(self, split: Split, place: int) -> StoredItem:
        """Return one question."""
        row = self.tables[split].slice(place, 1).to_pylist()[0]
        fixed = None if row["fixed"] is None else np.array(row["fixed"], np.int32)
        texts = (row["id"], row["question"], tuple(row["answers"]), row["category"])
        return StoredItem(*texts, tuple(row["own"]), tuple(row["gold"]), fixed)


def open_folder(folder: Path, name: str) -> DocumentFolder:
    """Open what `recollect data NAME` wrote."""
    manifest = read_manifest(folder, name)
    fix = f"make it again with `recollect data {manifest.name}`"
    if missing := set(FILES).difference(file.name for file in manifest.outputs):
        shown = ", ".join(sorted(missing))
        raise UserError(f"{folder} was made by another version: it has no {shown}", fix)
    one = bool(manifest.settings.get("one_per_title", True))
    splits: tuple[Split, ...] = ("train", "test")
    tables = {split: _read(folder / f"{split}.parquet") for split in splits}
    return DocumentFolder(folder, manifest, PassageFile(folder, fix, one), tables)


def _read(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} cannot be read: {error}", "make it again") from None
    if table.schema.remove_metadata() != ITEMS:
        raise UserError(f"{path} holds no questions among documents", "make it again")
    return table


# Building


@dataclass(frozen=True)
class Sources:
    """Input files by what they are for."""

    splits: Mapping[Split, Sequence[Path]]
    corpora: Sequence[Path]
    """Paragraphs without questions, for items that have none of their own, and as distractors."""
    distractors: Sequence[Path]

    @property
    def files(self) -> list[Path]:
        """All of them, each once."""
        given = [*self.splits["train"], *self.splits["test"], *self.corpora, *self.distractors]
        return list(dict.fromkeys(given))


def sort_inputs(
    source: DocumentSource, inputs: Sequence[Path], distractors: Sequence[Path] = ()
) -> Sources:
    """Tell training from test files by their names; a `corpus` is neither."""
    found = [file for path in inputs for file in _files(path, source)]
    corpora = [file for file in found if "corpus" in file.name]
    train = [f for f in found if split_of_file(f.name) == "train" and f not in corpora]
    test = [file for file in found if file not in train and file not in corpora]
    more = [file for path in distractors for file in _files(path, source)]
    return Sources({"train": train, "test": test}, corpora, more)


def _files(path: Path, source: DocumentSource) -> list[Path]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    kept = [file for file in files if file.name.endswith(SUFFIXES)] if path.is_dir() else files
    if not kept or not all(file.is_file() for file in kept):
        raise UserError(
            f"{path} holds no JSON file" if path.is_dir() else f"there is no file {path}",
            f"nothing is downloaded here: get {source.official}, then name them with --input",
        )
    return kept


def build_documents(
    source: DocumentSource,
    sources: Sources,
    output: Path,
    repeat: bool = False,
    known: Known | None = None,
) -> Manifest:
    """Write a data set's questions and paragraphs, leaving out questions that are `known`."""
    with building(output) as folder:
        return _build(source, sources, folder, repeat, known)


def _build(
    source: DocumentSource, sources: Sources, output: Path, repeat: bool, known: Known | None
) -> Manifest:
    sieve = _Sieve(known)
    partition = Partition(source.one_per_title)
    counts: dict[str, int] = {}
    with PassageWriter(output) as writer:
        # The test questions first: one that stands in both files is left out of the training.
        splits: tuple[Split, ...] = ("test", "train")
        for split in splits:
            files = sources.splits[split]
            corpora = sources.corpora if source.looks_up and files else ()
            items = sieve.kept(source.read([*files, *corpora]), partition, split)
            rows = (_row(item, writer, SPLITS[split], source.one_per_title) for item in items)
            counts[split] = write_items(output / f"{split}.parquet", rows)
        kept = counts["train"] + counts["test"]
        refuse_empty(kept, sources.files, "question to keep", sieve.told(source))
        for more in (*sources.corpora, *sources.distractors):
            for paragraph in read_paragraphs(more):
                writer.add(paragraph.title, paragraph.text, SPLITS[partition.side(paragraph)])
        counts["passages"] = len(writer)
    if partition.removed:
        counts["paragraphs of the test split taken out of training questions"] = partition.removed
    manifest = Manifest(
        source.name,
        {"one_per_title": source.one_per_title, "repeat": repeat, "filtered": known is not None},
        counts,
        dict(sorted(sieve.dropped.items())),
        tuple(sieve.problems),
        checked(sources.files),
        checked(output / name for name in FILES),
    )
    write_manifest(output, manifest)
    return manifest


@dataclass
class _Sieve:
    """Let pass what is a question and was not asked before; count the rest by reason."""

    known: Known | None
    asked: set[str] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def told(self, source: DocumentSource) -> str:
        """Say what to do where nothing is left."""
        left = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        found = f"left out are {left}; " if left else ""
        return f"{found}check that these are {source.official}"

    def kept(
        self, items: Iterable[Item | DroppedRecord], partition: Partition, split: Split
    ) -> Iterator[Item]:
        for item in items:
            if isinstance(item, DroppedRecord):
                self.dropped[item.reason] += 1
                if item.detail:
                    self.problems.append(f"{item.place}: {item.reason}: {item.detail}")
            elif not _key(item.question):
                self.dropped["no question"] += 1
                self.problems.append(f"{item.id}: no question: its text is empty")
            elif self.known and self.known(item):
                self.dropped["known without context"] += 1
            elif _key(item.question) in self.asked:
                self.dropped["asked twice"] += 1
            elif (kept := partition.keep(item, split)) is None:
                self.dropped["evidence shown to a test question"] += 1
            else:
                self.asked.add(_key(item.question))
                yield kept


def _key(question: str) -> str:
    return " ".join(question.lower().split())


def _row(item: Item, writer: PassageWriter, split: int, one_per_title: bool) -> dict[str, Any]:
    numbers = [writer.add(p.title, p.text, split) for p in item.paragraphs]
    gold = [numbers[i] for i in item.gold]
    own = numbers
    if one_per_title:
        titles = [p.title for p in item.paragraphs]
        # Evidence before others: of two paragraphs with one title, the one that counts stays.
        order = [*item.gold, *(i for i in range(len(numbers)) if i not in item.gold)]
        first = {titles[i]: i for i in reversed(order)}
        own = [number for i, number in enumerate(numbers) if i in first.values()]
    return {
        "id": item.id,
        "question": item.question,
        "answers": list(item.answers),
        "category": item.category,
        "own": list(dict.fromkeys(own)),
        "gold": list(dict.fromkeys(gold)),
        "fixed": None,
    }


def write_items(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write questions with the numbers of their passages, as they come, and count them."""
    count = 0
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, ITEMS, compression="zstd") as file,
    ):
        for batch in _batches(rows, 4096):
            file.write_table(pa.Table.from_pylist(storable_values(batch), schema=ITEMS))
            count += len(batch)
    return count


def _batches(rows: Iterable[Mapping[str, Any]], size: int) -> Iterator[list[Mapping[str, Any]]]:
    """Take rows together, by the numbers in them: one of 25,600 documents has as many."""
    held: list[Mapping[str, Any]] = []
    numbers = 0
    for row in rows:
        held.append(row)
        numbers += 1 + len(row["fixed"] or ())
        if numbers >= size:
            yield held
            held, numbers = [], 0
    if held:
        yield held

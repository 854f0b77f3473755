"""`recollect data hotpotqa` and its kind: questions among documents, and MemAgent's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from recollect.commands.data.output import say
from recollect.errors import UserError
from recollect.tasks.base import Split
from recollect.tasks.documents.document_files import build_documents, sort_inputs
from recollect.tasks.documents.documents import DocumentTasks
from recollect.tasks.documents.hotpotqa import HOTPOTQA, HotpotQA
from recollect.tasks.documents.known import read_closed_book
from recollect.tasks.documents.memagent import build_memagent, sort_rows, write_eval, write_rows
from recollect.tasks.documents.musique import MUSIQUE, Musique
from recollect.tasks.documents.paragraphs import DocumentSource
from recollect.tasks.documents.squad import SQUAD, Squad
from recollect.tasks.documents.twowiki import TWOWIKI, TwoWiki
from recollect.tasks.files.manifest import Manifest, building, checked, write_manifest
from recollect.types import Task

SOURCES: dict[str, tuple[DocumentSource, type[DocumentTasks]]] = {
    "hotpotqa": (HOTPOTQA, HotpotQA),
    "2wikimultihopqa": (TWOWIKI, TwoWiki),
    "musique": (MUSIQUE, Musique),
    "squad": (SQUAD, Squad),
}
SHOWN = 10
"""Problems that are printed; all of them are in the folder's manifest.json."""


@dataclass(frozen=True)
class DocumentOptions:
    """Turn the official files of a data set into questions among documents."""

    input: tuple[Path, ...]
    """Files, or folders of files; those with `train` in their names are for training."""
    output: Path
    """The folder to write."""
    distractors: tuple[Path, ...] = ()
    """More files, of any of these data sets, whose paragraphs may be among the documents."""
    repeat: bool = False
    """Repeat distractors where there are too few paragraphs for a length."""
    closed_book: Path | None = None
    """Leave out what a model answers without any text: a file that `data closed-book` wrote."""
    documents: tuple[int, ...] = ()
    """Also write MemAgent's rows of the test questions, at these numbers of documents."""
    train_documents: int = 0
    """Also write MemAgent's rows of the training questions, with this many documents; 200 is
    published."""
    rows: Literal["parquet", "json"] = "parquet"
    """How rows of test questions are written: test_50.parquet, or eval_50.json."""
    questions: int = 128
    """Test questions in these files, the same ones at every length."""
    seed: int = 0
    """Draws the documents and their order in these files."""


def run_documents(name: str, options: DocumentOptions, console: Console) -> int:
    """Build a folder of questions and documents, and the rows that were asked for."""
    source, kind = SOURCES[name]
    known = read_closed_book(options.closed_book) if options.closed_book else None
    sources = sort_inputs(source, options.input, options.distractors)
    with building(options.output) as folder:
        manifest = build_documents(source, sources, folder, options.repeat, known)
        _tell(manifest, options.output, console)
        written = _write_all(kind(folder), options, console)
        if written:
            outputs = (*manifest.outputs, *checked(written))
            write_manifest(folder, replace(manifest, outputs=outputs))
    say(console, f"written to {options.output}")
    return 0


def _write_all(family: DocumentTasks, options: DocumentOptions, console: Console) -> list[Path]:
    written = []
    if options.train_documents:
        longer = replace(family, documents=options.train_documents)
        path = family.folder / f"train_{options.train_documents}.parquet"
        count = write_rows(path, _tasks(longer, family.size("train"), options.seed, "train"))
        say(console, f"{path.name:<20} {count:>8,} rows")
        written.append(path)
    for documents in options.documents:
        name = f"eval_{documents}.json" if options.rows == "json" else f"test_{documents}.parquet"
        write = write_eval if options.rows == "json" else write_rows
        longer = replace(family, documents=documents)
        questions = min(options.questions, family.size("test"))
        path = family.folder / name
        count = write(path, _tasks(longer, questions, options.seed, "test"))
        say(console, f"{name:<20} {count:>8,} rows of {documents:,} documents")
        written.append(path)
    return written


def _tasks(family: DocumentTasks, count: int, seed: int, split: Split) -> Iterator[Task]:
    return (family.task(i, seed, split) for i in range(count))


@dataclass(frozen=True)
class MemAgentOptions:
    """Turn files of MemAgent's rows, Parquet or JSON, into questions with fixed texts."""

    input: tuple[Path, ...]
    """Files; those with `train` in their names are for training."""
    output: Path
    """The folder to write."""


def run_memagent(options: MemAgentOptions, console: Console) -> int:
    """Read MemAgent's rows into a folder."""
    if not options.input:
        raise UserError("there is no input", "name files with --input")
    _tell(build_memagent(sort_rows(options.input), options.output), options.output, console)
    say(console, f"written to {options.output}")
    return 0


def _tell(manifest: Manifest, output: Path, console: Console) -> None:
    for file in manifest.inputs:
        say(console, f"read {file.name}, {file.bytes:,} bytes, sha256 {file.sha256[:16]}")
    for split in ("train", "test"):
        say(console, f"{split + '.parquet':<20} {manifest.counts[split]:>8,} questions")
    say(console, f"{'passages.arrow':<20} {manifest.counts['passages']:>8,} different documents")
    for what in manifest.counts.keys() - {"train", "test", "passages"}:
        say(console, f"{manifest.counts[what]:,} {what}")
    for reason, count in manifest.dropped.items():
        say(console, f"left out: {count:,} {reason}")
    for problem in manifest.problems[:SHOWN]:
        say(console, f"  {problem}")
    if (more := len(manifest.problems) - SHOWN) > 0:
        say(console, f"  and {more} more: see {output / 'manifest.json'}")

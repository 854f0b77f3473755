"""Texts to read: files, folders, PDF, standard input. Each becomes one document with a name."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import UserError
from recollect.foreign import decoded, one_line, storable
from recollect.keeping.pdf import BadPdf, pdf_text
from recollect.keeping.windows import Item, digest

STANDARD_INPUT = "-"
LARGEST = 1 << 30
"""Bytes of one file."""
_SNIFFED = 1 << 12
_HIDDEN = "."


@dataclass(frozen=True)
class Document:
    """One text."""

    name: str
    text: str
    whole: bool = True
    """Whether every byte could be read; a gap is a mark in the text."""

    @property
    def item(self) -> Item:
        """What is read of it."""
        return Item(self.text, digest(self.text))


def is_source(word: str) -> bool:
    """Tell a file to read from a question."""
    if word == STANDARD_INPUT:
        return True
    if not word.strip():
        raise UserError("a question is empty", "write it between quotation marks")
    with suppress(OSError, ValueError):  # too long for a name, or not one
        if Path(word).expanduser().exists():
            return True
    looks_named = not any(char.isspace() for char in word) and not word.endswith("?")
    if looks_named and ("/" in word or Path(word).suffix):
        name = one_line(word, 80)
        raise UserError(f"there is no file {name}", "check its name; a question has several words")
    return False


@dataclass(frozen=True)
class Sources:
    """What was named, and what of it is no text."""

    documents: Sequence[Document] = ()
    left_out: Sequence[str] = ()
    """Files of folders that hold no text that can be read."""
    empty: Sequence[str] = ()
    """Files in which no text was found, such as a scan; of folders, damaged PDF too."""


def read_sources(names: Sequence[str]) -> Sources:
    """Read every file that is named, and every text in the folders that are."""
    left_out: list[str] = []
    found = [document for name in names for document in _documents(name, left_out)]
    texts = [document for document in found if document.text.strip()]
    if names and not texts:
        raise UserError(f"there is no text in {', '.join(names)}", "name files that hold text")
    empty = [document.name for document in found if not document.text.strip()]
    return Sources(texts, left_out, empty)


def _documents(name: str, left_out: list[str]) -> Iterator[Document]:
    if name == STANDARD_INPUT:
        data = sys.stdin.buffer.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UserError(f"standard input has more than {LARGEST >> 30} GiB", "split it")
        text, whole = decoded(data)
        yield Document("standard input", storable(text), whole)
        return
    path = Path(name).expanduser()
    if not path.is_dir():
        yield Document(path.name, *_text(path))
        return
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        shown = file.relative_to(path)
        if any(part.startswith(_HIDDEN) for part in shown.parts):
            continue
        if not _is_text(file):
            left_out.append(str(shown))
            continue
        try:
            yield Document(str(shown), *_text(file))
        except BadPdf:  # the others are worth reading
            yield Document(str(shown), "")


def _is_text(path: Path) -> bool:
    if path.suffix.lower() == ".pdf":
        return True
    try:
        with open(path, "rb") as file:
            start = file.read(_SNIFFED)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return b"\0" not in start


def _text(path: Path) -> tuple[str, bool]:
    """Read a file, and tell whether all of it could be read."""
    try:
        if not path.is_file():
            raise UserError(f"{path} is not a file", "name a file or a folder")
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} has more than {LARGEST >> 30} GiB", "split it")
        if path.suffix.lower() == ".pdf":
            return pdf_text(path), True
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    if b"\0" in data[:_SNIFFED]:
        raise UserError(f"{path} is not a text file", "name PDF files, or texts in UTF-8")
    text, whole = decoded(data)
    return text.replace("\r\n", "\n").replace("\r", "\n"), whole


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read: {error.strerror or error}", "check its permissions")

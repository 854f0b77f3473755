"""Texts to read: files, folders, PDF, standard input. Each becomes one document with a name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import UserError
from recollect.foreign import storable
from recollect.keeping.pdf import pdf_text
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
    try:
        if Path(word).expanduser().exists():
            return True
    except (OSError, ValueError):  # too long for a name, or not one
        return False
    looks_named = not any(char.isspace() for char in word) and not word.endswith("?")
    if looks_named and ("/" in word or Path(word).suffix):
        raise UserError(f"there is no file {word}", "check its name; a question has several words")
    return False


def read_sources(names: Sequence[str]) -> list[Document]:
    """Read every file that is named, and every text in the folders that are."""
    found = [document for name in names for document in _documents(name)]
    texts = [document for document in found if document.text.strip()]
    if names and not texts:
        raise UserError(f"there is no text in {', '.join(names)}", "name files that hold text")
    return texts


def _documents(name: str) -> Iterator[Document]:
    if name == STANDARD_INPUT:
        data = sys.stdin.buffer.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UserError(f"standard input has more than {LARGEST >> 30} GiB", "split it")
        yield Document("standard input", storable(data.decode(errors="replace")))
        return
    path = Path(name).expanduser()
    if not path.is_dir():
        yield Document(path.name, _text(path))
        return
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        shown = file.relative_to(path)
        if any(part.startswith(_HIDDEN) for part in shown.parts) or not _is_text(file):
            continue
        yield Document(str(shown), _text(file))


def _is_text(path: Path) -> bool:
    if path.suffix.lower() == ".pdf":
        return True
    try:
        with open(path, "rb") as file:
            start = file.read(_SNIFFED)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        start[:-3].decode()  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return b"\0" not in start


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise UserError(f"{path} is not a file", "name a file or a folder")
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path} has more than {LARGEST >> 30} GiB", "split it")
        if path.suffix.lower() == ".pdf":
            return pdf_text(path)
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    if b"\0" in data[:_SNIFFED]:
        raise UserError(f"{path} is not a text file", "name text or PDF files")
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read: {error.strerror or error}", "check its permissions")

"""Records: the objects in a JSON or JSONL file, one at a time, gzipped or not, with their places.

A list of any size is read piece by piece and never held whole. What is wrong is named with its
line (JSONL) or its number in the list. A folder and an empty file are refused.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from recollect.errors import UserError
from recollect.files import loads
from recollect.tasks.files.unpacked import open_bytes

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_PIECE = 1 << 20
LONGEST = 256 << 20
"""Characters of one record: a conversation of ten million tokens has a fifth of them."""
_SOMETHING = re.compile(r"[^\s,]|$")
_FIX = "check that the file is whole and is JSON or JSON lines, gzipped or not"


def refuse_folder(path: Path, fix: str, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse a folder where a file is wanted, and name a file in it that may be meant.

    A pipe or a device is refused as well: it would be waited for, or never end.
    """
    if not path.is_dir():
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a file", fix)
        return
    inside = sorted(file for file in path.iterdir() if file.name.endswith(suffixes))
    meant = f"name a file in it, such as {inside[0]}" if inside else fix
    raise UserError(f"{path} is a folder, and a file is wanted", meant)


def refuse_empty(count: int, files: Sequence[Path], what: str, fix: str) -> None:
    """Refuse files in which there is nothing to build from."""
    if not count:
        names = ", ".join(file.name for file in files) or "the input"
        raise UserError(f"there is no {what} in {names}", fix)


def read_records(path: Path, what: str = "record") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a file's objects, each with a text that says where it is."""
    refuse_folder(path, "name a file of JSON or JSON lines, gzipped or not")
    count = 0
    try:
        with _open(path) as file:
            lines = path.name.removesuffix(".gz").endswith(".jsonl")
            for place, record in _lines(file, path) if lines else _sequence(file, path):
                if not isinstance(record, dict):
                    raise UserError(f"{place} is not an object but {str(record)[:40]!r}", _FIX)
                count += 1
                yield place, record
    except FileNotFoundError:
        raise UserError(f"there is no file {path}", "check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}", _FIX) from None
    refuse_empty(count, [path], what, f"leave it out, or {_FIX}")


def _open(path: Path) -> IO[str]:
    # -sig: some editors put an invisible mark before the first character. A byte that is no UTF-8
    # spoils a character, not the file.
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="replace")


def _lines(file: IO[str], path: Path) -> Iterator[tuple[str, Any]]:
    lines = iter(partial(file.readline, LONGEST), "")
    for number, line in enumerate(lines, start=1):
        place = f"{path.name} line {number}"
        if len(line) == LONGEST:
            raise _too_long(place)
        if line.strip():
            try:
                yield place, loads(line)
            except ValueError as error:
                raise UserError(f"{place} is not JSON: {_why(error)}", _FIX) from None


def _too_long(place: str) -> UserError:
    return UserError(f"{place} has more than {LONGEST >> 20} million characters", _FIX)


def _why(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def _sequence(file: IO[str], path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a list, or objects one after another, holding a piece of the file."""
    decode = json.JSONDecoder().raw_decode
    held = file.read(_PIECE).lstrip()
    listed = held.startswith("[")
    at, number, ended = int(listed), 1, False
    while True:
        found = _SOMETHING.search(held, at)
        start = found.start() if found else len(held)
        if listed and held.startswith("]", start):
            return
        try:
            record, at = decode(held, start)
        except RecursionError:
            what = f"{path.name}: item {number} is nested too deeply"
            raise UserError(what, _FIX) from None
        except ValueError as error:
            if not isinstance(error, json.JSONDecodeError):  # a number of thousands of digits
                raise UserError(f"{path.name}: item {number}: {error}", _FIX) from None
            if ended and not listed and start == len(held):
                return
            if ended:
                message = f"{path.name}: item {number} is not JSON: {error.msg}"
                raise UserError(message, _FIX) from None
            if len(held) - start > LONGEST:
                raise _too_long(f"{path.name}: item {number}") from None
            # Doubling what is read keeps the work linear where one object is very long.
            piece = file.read(max(_PIECE, len(held) - start))
            held, at, ended = held[start:] + piece, 0, not piece
            continue
        yield f"{path.name} item {number}", record
        number += 1

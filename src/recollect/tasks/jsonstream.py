"""Items of a JSON list, one after the other: a file may be larger than memory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from recollect.errors import UserError

_BLOCK = 1 << 20
_SPACE = " \t\r\n"


def json_items(path: Path) -> Iterator[Any]:
    """Yield the items of a JSON list, or of a file with one item per line; maybe gzipped."""
    try:
        with path.open("rb") as raw:
            gzipped = raw.read(2) == b"\x1f\x8b"
        opened = gzip.open if gzipped else open
        with opened(path, "rt", encoding="utf-8") as file:
            yield from _items(file)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}", "name the file as it was downloaded") from None
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}", "download it again") from None


def _items(file: IO[str]) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    text, done, wanted = file.read(_BLOCK), False, _BLOCK
    text = text.lstrip(_SPACE + "\ufeff")
    is_list = text.startswith("[")
    text = text.removeprefix("[")
    while True:
        text = text.lstrip(_SPACE + ",")
        if is_list and text.startswith("]"):
            return
        if text or done:
            if not text and not is_list:
                return
            try:
                item, end = decoder.raw_decode(text)
            except ValueError:
                if done:
                    raise
            else:
                yield item
                text, wanted = text[end:], _BLOCK
                continue
        more = file.read(wanted)
        # Twice as much every time, so that a large item is not parsed again for every block.
        text, done, wanted = text + more, not more, 2 * wanted

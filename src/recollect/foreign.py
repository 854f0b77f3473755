"""Text that others wrote (models, servers, files), made fit for where it goes.

Logs keep such text exactly: JSON spells out whatever UTF-8 cannot hold. Everything else that has to
be UTF-8 (Parquet, pages, tokenizers, requests) gets `storable` text, and everything that people
look at gets `shown` text, which can neither repaint a terminal nor turn its neighbours around.
"""

from __future__ import annotations

import html
import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

BROKEN = "\N{REPLACEMENT CHARACTER}"
LONGEST = 600
"""Characters that are shown of an error that others wrote."""

_HALF_PAIRS = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs: JSON and file names can carry them, UTF-8 cannot."""
_COMBINING = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_UNSAFE = re.compile(
    # Control codes except tabs and new lines, and what no file format for text can hold.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
    # What turns the direction of the text around it, or cannot be seen and hides something.
    "|[\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
    # Marks piled up on one letter cover the lines above and below it.
    f"|(?<=[{_COMBINING}]{{8}})[{_COMBINING}]+"
)
# An underscore inside a word is no emphasis, and names are full of them.
_MARKDOWN = re.compile(r"([\\`*\[\]<>|#~&]|(?<![^\W_])_|_(?![^\W_]))")

_SECRET_NAMES = {
    *("KEY", "KEYS", "APIKEY", "TOKEN", "SECRET", "PASS", "PASSWORD", "PASSWD"),
    *("CREDENTIAL", "CREDENTIALS"),
}
"""Words in the name of an environment variable that say what its value is."""
_LOGIN = re.compile(r"://[^\s/?#@\"']+@")
_QUERY = re.compile(
    r"([?&](?:[\w.-]*(?:key|token|secret|password|passwd|signature)|sig|auth)=)[^&#\s\"']+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"([Bb]earer )[\w.~+/=-]{8,}")


def storable(text: str) -> str:
    """Return text that UTF-8 can hold: half a surrogate pair becomes a replacement character."""
    return text if text.isascii() else _HALF_PAIRS.sub(BROKEN, text)


def storable_values(value: Any) -> Any:
    """Make every text in plain data storable: in lists, and in the names and values of objects."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable_values(name): storable_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(storable_values, value))
    return value


def readable_json(value: Any, **settings: Any) -> str:
    """Write JSON that people can read: letters as they are, and nothing that UTF-8 cannot hold."""
    return storable(json.dumps(value, ensure_ascii=False, **settings))


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def short_json(value: Any) -> bytes:
    """Write JSON without spaces, as it is sent; nothing is in it that UTF-8 cannot hold."""
    return storable(_encode(value)).encode()


def redact(text: str) -> str:
    """Take keys and passwords out of text before it reaches a file or a screen.

    Those are the values of environment variables that are named like secrets, and what an address
    or a header carries. Secrets of digits alone are left, because they could be any number.
    """
    for name, value in _secrets():
        if value in text:
            text = text.replace(value, f"[{name}]")
    if "://" in text:
        text = _QUERY.sub(r"\1[hidden]", _LOGIN.sub("://[hidden]@", text))
    return _BEARER.sub(r"\1[hidden]", text) if "earer " in text else text


def has_credentials(url: str) -> bool:
    """Tell whether an address carries a password or a key."""
    return bool(_LOGIN.search(url) or _QUERY.search(url))


class _Secrets:
    """The secrets of the environment, looked for again only when it has changed."""

    def __init__(self) -> None:
        self._seen: tuple[dict[bytes, bytes], tuple[tuple[str, str], ...]] = {}, ()

    def __call__(self) -> tuple[tuple[str, str], ...]:
        # The environment's own table, as it is: every line that is written comes by here, and
        # decoding all variables takes as long as the rest of the line does.
        table: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
        if table != self._seen[0]:
            self._seen = table.copy(), _secrets_now()  # in one piece: there are threads
        return self._seen[1]


_secrets = _Secrets()


def _secrets_now() -> tuple[tuple[str, str], ...]:
    found = []
    for name, value in os.environ.items():
        if _SECRET_NAMES.isdisjoint(name.upper().split("_")) or not _is_secret(value.strip()):
            continue
        own = value.strip()
        # As it is, and as JSON and an address would spell it.
        spelled = {own, json.dumps(own)[1:-1], quote(own, safe="")}
        found += [(name, text) for text in spelled]
    # One may be a part of another.
    return tuple(sorted(found, key=lambda pair: -len(pair[1])))


def _is_secret(value: str) -> bool:
    """Tell a secret from a word, a switch or a number."""
    if len(value) < 8 or not any(char.isalpha() for char in value.replace("e", "").lower()):
        return False
    return len(value) >= 16 or not value.isalpha()


def decoded(data: bytes) -> tuple[str, bool]:
    """Read UTF-8, and tell whether it was: any other byte spoils a character, and no more.

    Some editors put an invisible mark before the first character.
    """
    data = data.removeprefix(BOM_UTF8)
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        return data.decode(errors="replace"), False


def shown(text: str) -> str:
    """Return text that is safe to show: lines and tabs stay, control characters are removed."""
    return inert(redact(text))


def inert(text: str) -> str:
    """Return text that cannot act on a screen, with its secrets if there are any.

    Our own files hold none: they were taken out as the text was written.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(BROKEN, text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str, limit: int = 0, clean: Callable[[str], str] = shown) -> str:
    """Return text that is safe to show on one line, its middle cut at `limit` characters."""
    if limit and len(text) > 64 * limit:
        text = f"{text[: 32 * limit]} {text[-32 * limit :]}"  # only the ends can be seen
    line = clean(" ".join(text.split()))
    if not line.isprintable():  # what joins letters, or is no letter yet, has no place in a table
        line = "".join(char if char.isprintable() else BROKEN for char in line)
    if not limit or len(line) <= limit:
        return line
    head, tail = line[: limit * 2 // 3], line[3 + limit * 2 // 3 - limit :]
    return f"{_whole_words(head)} … {_whole_words(tail[::-1])[::-1]}"


def _whole_words(text: str) -> str:
    """Drop a last word that was cut, unless it is most of the text."""
    kept = text.rpartition(" ")[0].rstrip()
    return kept if 2 * len(kept) > len(text) else text


def for_page(text: str) -> str:
    """Return text that is text and nothing else, wherever in HTML or SVG it is put."""
    return html.escape(shown(text))


def for_markdown(text: str) -> str:
    """Return text on one line that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", one_line(text))

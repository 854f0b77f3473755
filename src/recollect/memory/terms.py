"""The words of a text, as BM25 counts them."""

from __future__ import annotations

import re

_ASCII = re.compile(r"[a-z0-9_]+")
# Scripts without spaces count by character: a whole sentence as one word would match nothing.
_SPACELESS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_ANY = re.compile(rf"[{_SPACELESS}]|[^\W{_SPACELESS}]+")


def words(text: str) -> list[str]:
    """Split a text into lower-case words; the same text always gives the same words."""
    text = text.lower()
    return (_ASCII if text.isascii() else _ANY).findall(text)

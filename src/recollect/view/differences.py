"""Texts in pieces: what changed between two of them, and which parts of one are marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Literal

Change = Literal["=", "+", "-"]
_WORDS = re.compile(r"\s+|\w+|[^\w\s]+")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
MOST = 3000
"""Words up to which texts are compared word by word; longer ones line by line."""


def changes(before: str, after: str) -> list[tuple[Change, str]]:
    """Return what stayed, came and went, in the order of reading."""
    if before == after:
        return [("=", after)] if after else []
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if max(len(old), len(new)) > MOST:
        old, new = _LINES.findall(before), _LINES.findall(after)
    if max(len(old), len(new)) > MOST:
        return [("-", before), ("+", after)]
    found: list[tuple[Change, str]] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            found.append(("=", "".join(new[c:d])))
            continue
        if a < b:
            found.append(("-", "".join(old[a:b])))
        if c < d:
            found.append(("+", "".join(new[c:d])))
    return found


def marked(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[str, bool]]:
    """Cut a text into pieces, and say which are marked."""
    pieces: list[tuple[str, bool]] = []
    at = 0
    for start, end in sorted(spans):
        if end <= at:
            continue
        start = max(start, at)
        if start > at:
            pieces.append((text[at:start], False))
        pieces.append((text[start:end], True))
        at = end
    if at < len(text):
        pieces.append((text[at:], False))
    return pieces


def marked_changes(
    found: Sequence[tuple[Change, str]], spans: Iterable[tuple[int, int]]
) -> list[tuple[Change, str, bool]]:
    """Mark places of the later text in what changed."""
    spans = sorted(spans)
    pieces: list[tuple[Change, str, bool]] = []
    at = 0
    for change, text in found:
        if change == "-":
            pieces.append((change, text, False))
            continue
        own = [(s - at, e - at) for s, e in spans if s < at + len(text) and e > at]
        inside = [(max(0, s), min(len(text), e)) for s, e in own]
        pieces += [(change, piece, hit) for piece, hit in marked(text, inside)]
        at += len(text)
    return pieces

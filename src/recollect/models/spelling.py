"""The bytes that tokens of a byte-level vocabulary stand for, which are all that decoding takes.

A rollout decodes all that is said; the library's own decode looks every token up and copies it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that stand for themselves in such a vocabulary; the others are written from U+0100 on."""
HIDDEN = tuple(byte for byte in range(256) if byte not in PRINTED)
BYTES = {chr(b): b for b in PRINTED} | {chr(0x100 + i): b for i, b in enumerate(HIDDEN)}
BEFORE = (
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
)
"""What files of llama.cpp do before bytes are joined: it changes no token that is so spelled."""
FALLBACK = "<0x"
"""How a token begins that may be a byte in other words."""


class Spelling(dict[int, bytes | None]):
    """The bytes of tokens, each found when it is first asked for; no bytes for a control token."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is one of the `tokenizers` library."""
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        # Not those that are marked so now: one that was marked at any time stays hidden.
        self._control = {t for t in added if not tokenizer.decode([t], skip_special_tokens=True)}

    def __missing__(self, token: int) -> bytes | None:
        """Find the bytes of a token; None if the library has to decode it."""
        text = "" if token in self._control else self._tokenizer.id_to_token(token) or ""
        plain = not text.startswith(FALLBACK) and all(map(BYTES.__contains__, text))
        self[token] = found = bytes(BYTES[c] for c in text) if plain else None
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Decode tokens, leaving control tokens out; bytes that are no text become U+FFFD."""
        found: Iterable[Any] = map(self.__getitem__, ids)
        try:
            return b"".join(found).decode("utf-8", "replace")
        except TypeError:  # one of them is None
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def spelling_of(tokenizer: Any) -> Spelling | None:
    """Return how a tokenizer's tokens are spelled, if their bytes have only to be joined."""
    try:
        decoder = json.loads(tokenizer.decoder.__getstate__())
    except Exception:  # the library's own for a decoder in Python; there may be none at all
        return None
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    spelled = bool(steps) and steps[-1]["type"] == "ByteLevel"
    return Spelling(tokenizer) if spelled and all(own in BEFORE for own in steps[:-1]) else None

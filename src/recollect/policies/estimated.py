"""Tokens by estimate: what a server reads, where nobody knows its tokenizer.

A token counts as three bytes. English text has about four to a token, code and numbers about three
and less, so that what is counted rarely exceeds a window in the server's own tokens.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from recollect.foreign import storable
from recollect.policies.bytes import END, Utf8Tokenizer

BYTES = 3
"""What counts as one token. Ids hold the bytes themselves, so that every text can be read back."""
FULL = 1 << (8 * BYTES)
"""The least id of a piece that has all its bytes."""
NATIVE = FULL.to_bytes(BYTES + 1, sys.byteorder)
PLACES = (2, 1, 0) if sys.byteorder == "little" else (1, 2, 3)
"""Where a piece's bytes are in its id, as this machine holds a number of four bytes."""
SHORT = 512
"""Characters up to which pieces are remembered: a prompt's fixed texts come with every call."""
KEPT = 1024
"""Short texts that are remembered."""
COUNTED = "tokens are estimated, at three bytes each, because nothing here knows the tokenizer"
COUNTED += " of the served model"
REMEDY = "name its folder with --tokenizer to count in its own tokens"


class EstimatedTokenizer(Utf8Tokenizer):
    """`rendering.Tokenizer` in pieces of up to three bytes, cut between characters."""

    vocab_size = 2 * FULL
    end_ids: tuple[int, ...] = (0,)

    def __init__(self) -> None:
        self._ids: dict[str, tuple[int, ...]] = {}
        """The tokens of short texts."""
        self._texts: dict[tuple[int, ...], str] = {}
        """The same the other way round: what is counted is sent as text."""

    def encode(self, text: str, control: bool = False) -> list[int]:
        """Return a token for every three bytes; the end sign is one only if `control`."""
        if not control:
            known = self._ids.get(text)
            return self._encode(text) if known is None else [*known]
        first, *rest = text.split(END)
        return self.encode(first) + [i for piece in rest for i in (0, *self.encode(piece))]

    def _encode(self, text: str) -> list[int]:
        own = storable(text)
        ids = _pieces(own.encode())
        if len(text) <= SHORT:
            if len(self._ids) >= KEPT:  # all of them at once: there are threads
                self._ids.clear()
                self._texts.clear()
            known = self._ids[text] = tuple(ids)
            self._texts[known] = own
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens."""
        end = len(ids)
        if end <= SHORT:
            own = tuple(ids if not end or ids[-1] else ids[:-1])  # without its end
            if (known := self._texts.get(own)) is not None:
                return known
        while end and ids[end - 1] < FULL:  # the last piece may be shorter, and an end may follow
            end -= 1
        whole = ids[:end]
        if not end or min(whole) < FULL:
            return b"".join(map(_bytes, ids)).decode(errors="replace")
        laid = array("I", whole).tobytes()
        data = bytearray(BYTES * end)
        for at, place in enumerate(PLACES):
            data[at::BYTES] = laid[place :: BYTES + 1]
        return (data + b"".join(map(_bytes, ids[end:]))).decode(errors="replace")

    def decode_control(self, token_id: int) -> str:
        """Return the text of one token."""
        return END if token_id == 0 else self.decode([token_id])


def _pieces(data: bytes) -> list[int]:
    if data.isascii():
        # Every call of an evaluation comes by here several times, mostly with short texts.
        count = len(data) // BYTES
        whole = BYTES * count
        laid = bytearray(NATIVE * count)
        for at, place in enumerate(PLACES):
            laid[place :: BYTES + 1] = data[at:whole:BYTES]
        ids = memoryview(laid).cast("I").tolist()
        return ids + ([_id(data[whole:])] if whole < len(data) else [])
    ids, start = [], 0
    while start < len(data):
        end = min(len(data), start + BYTES)
        while end < len(data) and data[end] & 0xC0 == 0x80 and end > start + 1:
            end -= 1  # not into a character
        if end < len(data) and data[end] & 0xC0 == 0x80:  # one of four bytes has to be cut
            end = start + BYTES
        ids.append(_id(data[start:end]))
        start = end
    return ids


def _bytes(token_id: int) -> bytes:
    return int(token_id).to_bytes(BYTES + 1, "big").lstrip(b"\0")[1:]


def _id(piece: bytes) -> int:
    """Return the bytes as a number, behind a 1 that keeps their zeros."""
    return int.from_bytes(b"\1" + piece, "big")

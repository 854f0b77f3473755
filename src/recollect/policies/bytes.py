"""Bytes as tokens: counts what a server reads where nobody knows its tokenizer.

No tokenizer makes more tokens of a text than it has bytes, so a window that holds the bytes holds
the tokens. Settings in tokens then mean bytes; a tokenizer folder makes them tokens again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.foreign import storable

END_ID = 256
END = "\u2404"  # the sign for the end of a transmission


class Utf8Tokenizer:
    """`rendering.Tokenizer` over UTF-8, with one token to end a turn."""

    vocab_size = END_ID + 1
    end_ids: tuple[int, ...] = (END_ID,)

    def encode(self, text: str, control: bool = False) -> list[int]:
        """Return the bytes; the end sign is a token only if `control`."""
        if not control:
            return list(storable(text).encode())
        first, *rest = text.split(END)
        return self.encode(first) + [i for piece in rest for i in (END_ID, *self.encode(piece))]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of bytes; half a character at the edge becomes a question mark."""
        own = [i for i in ids if i != END_ID] if END_ID in ids else ids
        return bytes(own).decode(errors="replace")

    def decode_control(self, token_id: int) -> str:
        """Return the text of one token."""
        return END if token_id == END_ID else self.decode([token_id])

    def template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], prompt: bool
    ) -> str:
        """Write down what a server will be sent, with room for what its template adds."""
        head = f"tools\n{list(tools)}{END}\n" if tools else ""
        body = "".join(f"role: {m['role']}\n{m['content']}{END}\n" for m in messages)
        return head + body + ("role: assistant\n" if prompt else "")

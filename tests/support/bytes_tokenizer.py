"""A tokenizer of bytes with a plain-Python chat template: no torch, no transformers.

Text encodes greedily with one merge ("th"), so that tokens drawn one by one need not be the ones
their text encodes to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

START, END, STOP, TH = 256, 257, 258, 259
CONTROL = {START: "<|start|>", END: "<|end|>", STOP: "<|stop|>"}
_IDS = {text: i for i, text in CONTROL.items()}
_TEXTS = {i: bytes([i]) for i in range(256)} | {TH: b"th"}
_SHOWN = _TEXTS | {i: text.encode() for i, text in CONTROL.items()}
_DECODED = _TEXTS | dict.fromkeys(CONTROL, b"")
_CONTROL = re.compile("(" + "|".join(map(re.escape, _IDS)) + ")")

Template = Callable[[Sequence[Mapping[str, Any]], Sequence[Any], bool], str]


def chatml(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], prompt: bool) -> str:
    """Write every message between control tokens, and the tools before them."""
    head = f"<|start|>tools\n{', '.join(map(str, tools))}<|end|>\n" if tools else ""
    body = "".join(f"<|start|>{m['role']}\n{m['content']}<|end|>\n" for m in messages)
    return head + body + ("<|start|>assistant\n" if prompt else "")


@dataclass(frozen=True, eq=False)
class ByteTokenizer:
    """`rendering.Tokenizer` over bytes, three control tokens and one merge."""

    template: Template = chatml
    end_ids: tuple[int, ...] = (END,)
    vocab_size: int = 260

    def encode(self, text: str, control: bool = False) -> list[int]:
        """Encode text; control tokens are recognised only if `control`."""
        if control:
            return [i for piece in _CONTROL.split(text) for i in self._encode_control(piece)]
        first, *rest = text.encode().split(b"th")
        ids = list(first)
        for piece in rest:
            ids.append(TH)
            ids += piece
        return ids

    def _encode_control(self, piece: str) -> list[int]:
        return [_IDS[piece]] if piece in _IDS else self.encode(piece)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode to text, leaving control tokens out."""
        return b"".join(map(_DECODED.__getitem__, ids)).decode(errors="replace")

    def decode_control(self, token_id: int) -> str:
        """Return the text of one token, a control token included."""
        return self.show([token_id])

    def show(self, ids: Sequence[int]) -> str:
        """Decode to text with the control tokens in it."""
        return b"".join(map(_SHOWN.__getitem__, ids)).decode(errors="replace")

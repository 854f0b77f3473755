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
_TEXTS = {TH: b"th", **{i: text.encode() for i, text in CONTROL.items()}}
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
        ids: list[int] = []
        data, at = text.encode(), 0
        while at < len(data):
            merged = data[at : at + 2] == b"th"
            ids.append(TH if merged else data[at])
            at += 2 if merged else 1
        return ids

    def _encode_control(self, piece: str) -> list[int]:
        return [_IDS[piece]] if piece in _IDS else self.encode(piece)

    def decode(self, ids: Sequence[int]) -> str:
        """Decode to text, leaving control tokens out."""
        return self.show([i for i in ids if i not in CONTROL])

    def decode_control(self, token_id: int) -> str:
        """Return the text of one token, a control token included."""
        return self.show([token_id])

    def show(self, ids: Sequence[int]) -> str:
        """Decode to text with the control tokens in it."""
        data = b"".join(_TEXTS[i] if i in _TEXTS else bytes([i]) for i in ids)
        return data.decode(errors="replace")

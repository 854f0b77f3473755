"""Messages to tokens through the model's own chat template, suffix by suffix.

The template's own text and the contents of messages are encoded apart and joined as tokens. So a
content may itself be tokens (a chunk, a sampled memory) and is then used exactly; and text inside a
content never becomes a control token, whatever it spells. What has been rendered is never rendered
again: a context grows by suffixes only. Knows nothing of torch or transformers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from recollect.errors import UserError

Part = str | Sequence[int]
"""A piece of a message: text, or token ids to splice in as they are."""

_MARK = "\u2983{}\u2984"  # rare brackets around a number: survives trimming, found again afterwards
_MARKS = re.compile("\u2983(\\d+)\u2984")


@dataclass(frozen=True)
class Message:
    """One message of a chat; its content is a list of parts."""

    role: str
    parts: tuple[Part, ...]


def token_array(ids: Sequence[int]) -> np.ndarray:
    """Return token ids as an array for reading; `np.array` takes three times as long."""
    try:
        return np.frombuffer(struct.pack(f"{len(ids)}q", *ids), dtype=np.int64)
    except struct.error:
        odd = next(i for i in ids if not hasattr(i, "__index__") or not -1 <= int(i) >> 63 <= 0)
        raise ValueError(f"{odd!r:.40} is not a token id") from None


def system(*parts: Part) -> Message:
    """Make a system message."""
    return Message("system", parts)


def user(*parts: Part) -> Message:
    """Make a user message."""
    return Message("user", parts)


def tool(*parts: Part) -> Message:
    """Make a tool message: what a tool answered."""
    return Message("tool", parts)


class Tokenizer(Protocol):
    """What rendering needs of a tokenizer."""

    vocab_size: int
    """Ids are below this: the size of the model's embedding."""
    end_ids: tuple[int, ...]
    """Tokens that end a turn; the first is the usual one."""

    def encode(self, text: str, control: bool = False) -> list[int]:
        """Encode text; control tokens are recognised only if `control`."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode to text, leaving control tokens out."""

    def decode_control(self, token_id: int) -> str:
        """Return the text of one token, a control token included."""

    def template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], prompt: bool
    ) -> str:
        """Apply the chat template; `prompt` opens the assistant's next turn."""


@runtime_checkable
class AheadTokenizer(Protocol):
    """A tokenizer that takes less time for many texts than for one after the other."""

    def encode_ahead(self, texts: Sequence[str]) -> None:
        """Encode texts that are asked for soon."""


@dataclass
class Renderer:
    """Render messages for one tokenizer, remembering the template's own text as tokens."""

    tokenizer: Tokenizer
    _skeletons: dict[Any, list[list[int] | int]] = field(default_factory=dict)

    def opening(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> list[int]:
        """Render the start of a context, up to where the assistant speaks."""
        return self._splice(messages, tools, after_reply=False, closed=True)

    def suffix(
        self, messages: Sequence[Message], tools: Sequence[Any] = (), closed: bool = True
    ) -> list[int]:
        """Render what follows an assistant's turn, up to where it speaks again.

        `closed` says that the turn ended with an end token; otherwise the template's comes first.
        """
        return self._splice(messages, tools, after_reply=True, closed=closed)

    def text(self, message: Message) -> str:
        """Return a message's content as text, for people and for message-level endpoints."""
        return "".join(p if isinstance(p, str) else self.tokenizer.decode(p) for p in message.parts)

    def _splice(
        self, messages: Sequence[Message], tools: Sequence[Any], after_reply: bool, closed: bool
    ) -> list[int]:
        roles = tuple(message.role for message in messages)
        key = (roles, repr(tools), after_reply, closed)
        if key not in self._skeletons:
            self._skeletons[key] = self._skeleton(roles, tools, after_reply, closed)
        ids: list[int] = []
        for piece in self._skeletons[key]:
            if isinstance(piece, list):
                ids += piece
            else:
                for part in messages[piece].parts:
                    ids += self._encode_part(part)
        return ids

    def _encode_part(self, part: Part) -> Sequence[int]:
        if isinstance(part, str):
            return self.tokenizer.encode(part)
        size, ids = self.tokenizer.vocab_size, token_array(part)
        if len(ids) and ids.view(np.uint64).max() >= size:  # a negative one is huge then
            bad = next(i for i in part if not 0 <= i < size)
            raise ValueError(f"token id {bad} is outside the vocabulary of {size}")
        return part

    def _skeleton(
        self, roles: tuple[str, ...], tools: Sequence[Any], after_reply: bool, closed: bool
    ) -> list[list[int] | int]:
        """Render the template with a mark in place of every content, and cut it at the marks."""
        marked = [{"role": r, "content": _MARK.format(i)} for i, r in enumerate(roles)]
        if after_reply:
            # A short made-up exchange stands for all that came before: only what follows its
            # reply is used, so templates that rewrite old turns cannot touch the real ones.
            reply = _MARK.format(len(roles))
            before = [{"role": "user", "content": "."}, {"role": "assistant", "content": reply}]
            text = self.tokenizer.template([*before, *marked], tools, True).partition(reply)[2]
            if closed:
                text = self._after_end(text)
        else:
            text = self.tokenizer.template(marked, tools, True)
        pieces: list[list[int] | int] = []
        for i, piece in enumerate(_MARKS.split(text)):
            if i % 2:
                pieces.append(int(piece))
            elif piece:
                pieces.append(self.tokenizer.encode(piece, control=True))
        used = [p for p in pieces if isinstance(p, int)]
        if used != list(range(len(roles))):
            raise UserError(
                f"the chat template shows messages {used} of {list(range(len(roles)))}"
                f" (roles: {', '.join(roles)})",
                "use roles that this model's chat template knows, each once and in order",
            )
        return pieces

    def _after_end(self, text: str) -> str:
        """Leave out the end token that the template puts after a reply: it was sampled already."""
        for end in map(self.tokenizer.decode_control, self.tokenizer.end_ids):
            before, found, after = text.partition(end)
            if found and not before.strip():
                return after
        return text

"""One text, replaced as a whole: the memory of a fold.

Setting `memory.text` replaces it, too: every edit is an operation that can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.errors import AgentError
from recollect.types import MemoryOp

MOST = 1 << 28
"""Characters of all edits of one memory together: each is kept, with the whole text."""


class MemoryFull(AgentError):
    """An agent rewrites its memory without end."""

    on_purpose = False


@dataclass
class TextMemory:
    """A text with the exact tokens it was sampled as; empty before the first write."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    ops: list[MemoryOp] = field(default_factory=list)
    writer: Callable[[], str] = field(default=str, repr=False, compare=False, kw_only=True)
    """Names the context that writes, for edits without a label."""
    written: int = field(default=0, repr=False, compare=False, kw_only=True)
    """Characters of all edits together."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "text" and "ops" in vars(self):  # not while it is made
            self.replace(value)
        else:
            super().__setattr__(name, value)

    def replace(self, text: str, token_ids: Sequence[int] = (), label: str = "") -> None:
        """Put a new text in place of the old one."""
        if not isinstance(text, str):
            raise TypeError(f"a memory is a text, not {type(text).__name__}: {text!r:.80}")
        data = {"text": text, "token_ids": tuple(token_ids)}
        self.apply(MemoryOp("replace", data, label or self.writer()))

    def apply(self, op: MemoryOp) -> None:
        """Carry out one operation and record it."""
        if op.kind != "replace":
            raise ValueError(f"a text memory knows no operation {op.kind!r}")
        self.written += len(op.data["text"])
        if self.written > MOST:
            raise MemoryFull(f"the edits of the memory have more than {MOST:,} characters together")
        super().__setattr__("text", op.data["text"])
        self.token_ids = tuple(op.data["token_ids"])
        self.ops.append(op)

    def snapshot(self) -> dict[str, Any]:
        """Return the text."""
        return {"text": self.text}

    def fork(self) -> TextMemory:
        """Return an independent copy."""
        return TextMemory(self.text, self.token_ids, list(self.ops), written=self.written)

    def close(self) -> None:
        """Hold nothing, so give nothing back."""

"""One text, replaced as a whole: the memory of a fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.types import MemoryOp


@dataclass
class TextMemory:
    """A text with the exact tokens it was sampled as; empty before the first write."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    ops: list[MemoryOp] = field(default_factory=list)

    def replace(self, text: str, token_ids: Sequence[int] = (), label: str = "") -> None:
        """Put a new text in place of the old one."""
        self.apply(MemoryOp("replace", {"text": text, "token_ids": tuple(token_ids)}, label))

    def apply(self, op: MemoryOp) -> None:
        """Carry out one operation and record it."""
        if op.kind != "replace":
            raise ValueError(f"a text memory knows no operation {op.kind!r}")
        self.text, self.token_ids = op.data["text"], tuple(op.data["token_ids"])
        self.ops.append(op)

    def snapshot(self) -> dict[str, Any]:
        """Return the text."""
        return {"text": self.text}

    def fork(self) -> TextMemory:
        """Return an independent copy."""
        return TextMemory(self.text, self.token_ids, list(self.ops))

    def close(self) -> None:
        """Hold nothing, so give nothing back."""

"""The Policy protocol: something that continues tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from recollect.types import Completion, Sampling


class Policy(Protocol):
    """Continue a prompt. Many calls may be in flight at once."""

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion: ...

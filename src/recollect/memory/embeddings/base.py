"""The Embedder protocol, and the one way of calling it: whole batches, checked, never made up.

A vector that is missing, zero or not a number is a failure with the text it belongs to. Knows
nothing of models, files or stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from recollect.errors import UserError

Kind = Literal["document", "query"]
"""Some models embed what is searched and what is sought differently."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def id(self) -> str:
        """Names the model and its weights: vectors under one id can be compared."""

    @property
    def batch_size(self) -> int:
        """How many texts it should be given at once."""

    async def embed(self, texts: Sequence[str], kind: Kind = "document") -> np.ndarray:
        """Return one row per text, of any length but zero."""


class EmbeddingFailed(Exception):
    """A text that an embedder gave no usable vector for, and why."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"no vector for {_shown(text)}: {why}")
        self.text = text


async def unit_vectors(
    embedder: Embedder, texts: Sequence[str], kind: Kind = "document"
) -> np.ndarray:
    """Embed texts as float32 rows of length 1; what fails is named by its text.

    An embedder fails for a whole batch, so a failed one is halved until a single text is left.
    """
    try:
        rows = np.asarray(await embedder.embed(texts, kind), np.float32)
    except UserError:
        raise  # about the embedder, not about a text
    except Exception as error:
        if len(texts) == 1:
            raise EmbeddingFailed(texts[0], f"{type(error).__name__}: {error}") from error
        half = len(texts) // 2
        parts = [await unit_vectors(embedder, part, kind) for part in (texts[:half], texts[half:])]
        return np.concatenate(parts)
    if rows.ndim != 2 or len(rows) != len(texts):
        raise EmbeddingFailed(texts[0], f"{len(texts)} texts gave an array of shape {rows.shape}")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    wrong = np.flatnonzero(~((norms[:, 0] > 1e-6) & np.isfinite(norms[:, 0])))
    if len(wrong):
        raise EmbeddingFailed(texts[wrong[0]], f"its length is {norms[wrong[0], 0]}")
    return rows / norms


def _shown(text: str) -> str:
    shown = " ".join(text.split())
    return repr(shown if len(shown) <= 200 else f"{shown[:200]}…")

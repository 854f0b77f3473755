"""A deterministic embedder for tests: words hashed to signs. Says nothing about meaning."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from recollect.memory.terms import words

DIM = 32


def vector(text: str) -> np.ndarray:
    total = np.zeros(DIM, np.float32)
    for word in words(text) or [text]:
        bits = np.frombuffer(hashlib.sha256(word.encode()).digest(), np.uint8)
        total += bits.astype(np.float32) - 127.25
    return total / np.linalg.norm(total)


def matrix(texts: Sequence[str]) -> np.ndarray:
    return np.array([vector(text) for text in texts], np.float32).reshape(-1, DIM)


async def embed(texts: Sequence[str], kind: str = "document") -> np.ndarray:
    return matrix(texts)

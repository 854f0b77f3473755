"""Seeds derived from what they are for, so that no draw depends on another's order."""

from __future__ import annotations

import hashlib

Key = tuple[str | int, ...]


def derive(*key: str | int) -> int:
    """Hash a key such as (seed, step, task, rollout, turn) to a 63-bit seed."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1

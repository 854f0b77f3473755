"""Damage inside of JSON: values of other types at any depth, names that are gone, no end of it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    None,
    [],
    {},
    -1,
    "x",
    10**30,
    10**400,
    1e308,
    True,
    [[]],
    {"a": 1},
    "\ud800",
    "",
)
LINES = (".jsonl", ".gz")


def deep(path: Path, draw: random.Random) -> None:
    """Nest 200,000 lists."""
    _write(path, b"[" * 200_000 + b"]" * 200_000 + b"\n")


def long_number(path: Path, draw: random.Random) -> None:
    """Write a number that takes a while to read."""
    _write(path, b'{"step": ' + b"9" * 6000 + b"}\n")


def other_inside(path: Path, draw: random.Random) -> None:
    """Put other values in place of some, at any depth."""
    _rewrite(path, lambda value: _other(value, draw))


def gone_inside(path: Path, draw: random.Random) -> None:
    """Leave out some values, at any depth."""
    _rewrite(path, lambda value: _fewer(value, draw))


def _other(value: Any, draw: random.Random) -> Any:
    if isinstance(value, dict):
        return {name: _other(inner, draw) for name, inner in value.items()}
    if isinstance(value, list):
        return [_other(inner, draw) for inner in value]
    return draw.choice(ODD) if draw.random() < 0.3 else value


def _fewer(value: Any, draw: random.Random) -> Any:
    if isinstance(value, dict):
        return {n: _fewer(inner, draw) for n, inner in value.items() if draw.random() > 0.25}
    if isinstance(value, list):
        return [_fewer(inner, draw) for inner in value if draw.random() > 0.25]
    return value


def _rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    held = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    first, end, rest = held.partition(b"\n") if path.suffix in LINES else (held, b"", b"")
    try:
        value = json.loads(first)
    except ValueError:
        value = {"no": "JSON"}
    _write(path, json.dumps(change(value)).encode() + end + rest)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

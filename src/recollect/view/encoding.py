"""Answers as JSON that every browser reads: what is not a finite number is null."""

from __future__ import annotations

import json
import math
from typing import Any

from recollect.foreign import storable


def as_json(value: Any) -> str:
    """Write plain data as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, default=str)
    return storable(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

"""Lengths of texts: "8k" as a number of tokens, and how many tokens a text has, about.

Data must not depend on the model that is measured on them: so no tokenizer is asked. A token counts
as 4.1 bytes of UTF-8, which is what HotpotQA's paragraphs have under Qwen's tokenizer (140 tokens
for 579 bytes). English text comes out within some 10% for the usual vocabularies of 50,000 to
150,000 tokens; code, numbers and other scripts within less than a factor of two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from recollect.errors import UserError

BYTES_PER_TOKEN = 4.1
_UNITS = {"": 1, "k": 1024, "m": 1024 * 1024}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([km]?)")


def parse_length(text: str) -> int:
    """Read a number of tokens: "8k" is 8,192 as in RULER, "1m" is 1,048,576, "5000" itself."""
    found = _LENGTH.fullmatch(text.strip().lower())
    tokens = round(float(found[1]) * _UNITS[found[2]]) if found else 0
    if tokens < 1:
        raise UserError(
            f"{text!r} is not a length", "write a number of tokens such as 8k, 1.75m or 5000"
        )
    return tokens


def show_length(tokens: int) -> str:
    """Write a number of tokens so that `parse_length` reads it back: 8k, 1.75m, 5000."""
    for unit in ("m", "k"):
        quarters, rest = divmod(tokens * 4, _UNITS[unit])
        if quarters >= 4 and not rest:
            return f"{quarters / 4:.2f}".rstrip("0").rstrip(".") + unit
    return str(tokens)


def bytes_per_token(meta: Mapping[str, Any], place: str) -> float:
    """Return how dense a task says that its text is; refuse what no text can be."""
    found = meta.get("bytes_per_token", BYTES_PER_TOKEN)
    if isinstance(found, int | float) and 0 < found < math.inf:
        return float(found)
    raise UserError(f"{place} has bytes_per_token {found!r:.80}", "give a number above 0")


def estimate_tokens(text: str) -> int:
    """Estimate a text's tokens from its bytes, the same for every model."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return round(size / BYTES_PER_TOKEN)

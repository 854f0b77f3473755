"""Clipping: exactly the wanted tokens of a text, without making the rest of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.agents.baselines import TRUNCATIONS, Truncation, clip
from recollect.chat.chat import ContextFull
from tests.support.bytes_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
CHUNKS = st.lists(st.text(alphabet="ath ", max_size=12), max_size=8)


def whole(chunks: Sequence[str], end: int) -> list[int]:
    """Tokenise everything, as the description says, and only then cut."""
    pieces = [TOKENIZER.encode("\n\n" + text if i else text) for i, text in enumerate(chunks[:end])]
    return [token for piece in pieces for token in piece]


def cut(ids: list[int], limit: int, truncation: Truncation) -> list[int]:
    if truncation == "tail":
        return ids[len(ids) - limit :]
    if truncation == "head":
        return ids[:limit]
    head = limit - limit // 2
    return ids[:head] + ids[len(ids) - limit // 2 :]


@given(CHUNKS, st.integers(0, 8), st.integers(0, 40), st.sampled_from(TRUNCATIONS))
def test_a_clip_is_the_cut_of_the_whole(
    chunks: list[str], end: int, limit: int, truncation: Truncation
) -> None:
    end = min(end, len(chunks))
    ids = whole(chunks, end)
    if len(ids) <= limit:
        assert clip(chunks, end, limit, truncation, TOKENIZER) == (ids, False)
    elif truncation == "error":
        with pytest.raises(ContextFull, match=f"longer than the {limit} tokens"):
            clip(chunks, end, limit, truncation, TOKENIZER)
    else:
        expected = cut(ids, limit, truncation)
        assert clip(chunks, end, limit, truncation, TOKENIZER) == (expected, True)


@dataclass
class Lazy(Sequence[str]):
    """A text of a million chunks that remembers which were made."""

    made: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, i: int) -> str:  # type: ignore[override]
        self.made.append(i)
        return f"chunk {i:07d}"


@pytest.mark.parametrize(
    ("truncation", "first", "last"),
    [("head", 8, 0), ("error", 8, 0), ("tail", 1, 8), ("middle", 4, 4)],
)
def test_what_is_left_out_is_not_made(truncation: Truncation, first: int, last: int) -> None:
    text = Lazy()  # 15 tokens per chunk with its separator, 13 for the first
    try:
        ids, left_out = clip(text, len(text), 100, truncation, TOKENIZER)
        assert len(ids) == 100 and left_out
    except ContextFull:
        assert truncation == "error"
    near_start = sum(i < 500_000 for i in text.made)
    assert near_start <= first and len(text.made) - near_start <= last

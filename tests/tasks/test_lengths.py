"""Lengths: what is read is shown again, and the estimate counts bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.tasks.lengths import estimate_tokens, parse_length, show_length


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8k", 8192),
        ("8K", 8192),
        ("1m", 1048576),
        ("1.75m", 1835008),
        ("5000", 5000),
        ("0.5k", 512),
    ],
)
def test_lengths_are_read_and_shown(text, tokens):
    assert parse_length(text) == tokens
    assert parse_length(show_length(tokens)) == tokens


@given(st.integers(1, 10**9))
def test_every_length_survives_being_shown(tokens):
    assert parse_length(show_length(tokens)) == tokens


@pytest.mark.parametrize("text", ["", "k", "8q", "-1", "0", "8 k", "1e3", "0.0001"])
def test_other_texts_are_refused(text):
    with pytest.raises(UserError, match="not a length"):
        parse_length(text)


@given(st.text())
def test_the_estimate_counts_bytes(text):
    assert estimate_tokens(text) == round(len(text.encode("utf-8", "surrogatepass")) / 4.1)


def test_so_many_bytes_are_so_many_tokens():
    assert estimate_tokens("x" * 41_000) == 10_000

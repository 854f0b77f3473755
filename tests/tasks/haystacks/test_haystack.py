"""Haystacks: needles are where they should be, chunks are made one by one, lengths are kept."""

from __future__ import annotations

import gzip
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.tasks.haystacks.haystack import (
    BANDS,
    NOISE,
    Cycle,
    Listing,
    Sentences,
    check_place,
    draw_depths,
    plant,
    read_books,
    split_sentences,
)
from recollect.tasks.lengths import estimate_tokens


@given(
    st.integers(300, 5000),
    st.integers(16, 700),
    st.lists(st.floats(0, 1), max_size=6),
    st.integers(0, 3),
)
def test_planted_text_is_the_haystack_with_the_needles(tokens, chunk_tokens, depths, start):
    needles = [f"Needle {i}." for i in range(len(depths))]
    depths = sorted(depths)
    planted = plant(Cycle(Sentences(NOISE), start), needles, depths, tokens, chunk_tokens)
    text = " ".join(planted)
    places = [text.index(needle) for needle in needles]
    assert places == sorted(places) and len(set(places)) == len(places)
    assert all(needle in planted[planted.chunk_of(i)] for i, needle in enumerate(needles))
    for needle in needles:
        text = text.replace(needle, "")
    words = " ".join(NOISE[start:] + NOISE[:start])
    whole = " ".join(text.split())
    assert (f"{words} " * (len(whole) // len(words) + 1)).startswith(whole)
    assert all(planted) and planted[-1] == planted[len(planted) - 1] == list(planted)[-1]
    assert 0.85 * tokens <= estimate_tokens(" ".join(planted)) <= tokens
    # A chunk is its share of the text, one sentence, and the needles that fell into it.
    most = 1.5 * tokens / max(1, round(tokens / chunk_tokens)) + 12 + 5 * len(needles)
    assert max(map(estimate_tokens, planted)) <= most
    with pytest.raises(IndexError):
        planted[len(planted)]


def test_depths_of_needles_are_depths_of_the_text():
    for depth in (0.0, 0.25, 0.5, 0.75, 1.0):
        text = " ".join(plant(Cycle(Sentences(NOISE)), ["NEEDLE"], [depth], 8000, 512))
        assert text.index("NEEDLE") / len(text) == pytest.approx(depth, abs=0.01)


def test_a_listing_is_made_sentence_by_sentence():
    listing = Listing.measured(lambda i: f"Sentence number {i:04}.")
    planted = plant(listing, ["NEEDLE"], [0.5], 1000, 100, "\n")
    lines = "\n".join(planted).split("\n")
    lines.remove("NEEDLE")
    assert lines == [f"Sentence number {i:04}." for i in range(len(lines))]
    assert 970 <= estimate_tokens("\n".join(planted)) <= 1000


def test_positions():
    for position, (low, high) in BANDS.items():
        drawn = draw_depths(200, Random(0), position, None)
        assert drawn == sorted(drawn) and low <= drawn[0] and drawn[-1] <= high
        assert drawn[-1] - drawn[0] > 0.9 * (high - low)
    assert draw_depths(2, Random(0), "any", 0.3) == [0.3, 0.3]
    for place in (("centre", None), ("any", 1.5), ("first", 0.5)):
        with pytest.raises(UserError):
            check_place(*place)


def test_a_text_that_is_too_short():
    with pytest.raises(UserError, match="too few"):
        plant(Cycle(Sentences(NOISE)), ["A needle that is longer than the whole text."], [0], 8, 8)


def test_books(tmp_path):
    (tmp_path / "b.txt").write_text("Second book. It ends.\r\n\r\n* * *\r\n")
    (tmp_path / "a.txt.gz").write_bytes(
        gzip.compress("\ufeff“First,”\nhe said. Mr. X left!".encode())
    )
    (tmp_path / "notes.md").write_text("No book.")
    assert read_books(tmp_path).sentences == (
        "“First,” he said.",
        "Mr.",
        "X left!",
        "Second book.",
        "It ends.",
    )
    with pytest.raises(UserError, match="cannot be read"):
        read_books(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \.txt"):
        read_books(tmp_path / "empty")
    (tmp_path / "empty" / "blank.txt").write_text("* * *")
    with pytest.raises(UserError, match="holds no text"):
        read_books(tmp_path / "empty")


def test_what_is_not_the_book_is_left_out(tmp_path):
    (tmp_path / "book.txt").write_text(
        "Produced by somebody.\n\n*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***\n\n"
        "It was night.\n\n*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***\n\nTerms of use.\n"
    )
    assert read_books(tmp_path).sentences == ("It was night.",)


def test_endless_sentences_are_cut():
    pieces = split_sentences("word " * 500 + "x" * 1500)
    assert max(map(len, pieces)) <= 600
    assert "".join("".join(pieces).split()) == "word" * 500 + "x" * 1500

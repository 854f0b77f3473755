"""Pages against a plain account of who reads what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.sampler.pages import OutOfPages, Pages

SIZE = 4


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_full_pages_are_found_by_what_comes_before_them_too():
    pages = Pages(10, SIZE)
    first = pages.take(3)
    pages.name(first, ids(1, 1, 1, 1, 2, 2, 2, 2, 3))
    assert pages.find(ids(1, 1, 1, 1, 2, 2, 2, 2, 9)) == first[:2]
    assert pages.find(ids(1, 1, 1, 1, 2, 2, 2, 2)) == first[:1]  # the last token is always read
    assert pages.find(ids(2, 2, 2, 2, 5)) == []  # the same tokens after nothing
    assert pages.readers[first[0]] == 3


def test_an_unread_page_stays_until_its_place_is_needed_the_oldest_last_page_first():
    pages = Pages(4, SIZE)
    old = pages.take(2)
    pages.name(old, ids(1, 1, 1, 1, 2, 2, 2, 2))
    pages.give_back(old)
    assert pages.room == 3
    pages.take(2)  # one was free, and one of the unread ones went
    assert pages.find(ids(1, 1, 1, 1, 2, 2, 2, 2, 3)) == old[:1]
    with pytest.raises(OutOfPages):
        pages.take(1)


def test_the_place_of_padding_is_never_lent():
    assert set(Pages(5, SIZE).take(4)) == {1, 2, 3, 4}


@settings(max_examples=60)
@given(st.data())
def test_nothing_is_lent_twice_or_lost(data):
    pages = Pages(9, SIZE)
    held: list[tuple[list[int], np.ndarray]] = []
    for _ in range(data.draw(st.integers(1, 25))):
        if held and data.draw(st.booleans()):
            own, _ = held.pop(data.draw(st.integers(0, len(held) - 1)))
            pages.give_back(own)
        else:
            tokens = np.array(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=20)))
            found = pages.find(tokens)
            missing = -(-len(tokens) // SIZE) - len(found)
            if missing > pages.room:
                pages.give_back(found)
                continue
            own = found + pages.take(missing)
            pages.name(own, tokens)
            held.append((own, tokens))
        # Whoever holds a place holds the same tokens there as all others that hold it.
        content: dict[int, bytes] = {}
        for own, tokens in held:
            for i, place in enumerate(own):
                shown = tokens[: (i + 1) * SIZE].tobytes()
                assert content.setdefault(place, shown) == shown
        lent = {place for own, _ in held for place in own}
        assert 0 not in lent
        assert pages.room == 8 - len(lent)

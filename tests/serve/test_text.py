"""Texts while they grow: nothing given out is ever taken back, and nothing waits for no reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.serve.text import Growing, cut
from tests.support.bytes_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
PIECES = st.sampled_from(["a", "b", "ab", " ", "\n", "é", "船", "🛶", "<tool_call>", "<to", "th"])
TEXTS = st.lists(PIECES, max_size=20).map("".join)


@given(st.lists(st.integers(0, 259), max_size=40))
def test_any_tokens_give_their_own_text_in_the_end(ids):
    growing = Growing(TOKENIZER.decode)
    said = "".join([growing.add(i) for i in ids])
    whole = TOKENIZER.decode(ids)
    assert whole.startswith(said)
    assert said + growing.end(whole) == whole


@given(TEXTS, st.lists(st.sampled_from(["ab", "b ", "é", "aba", "船🛶"]), max_size=3))
def test_a_stop_text_is_never_given_out_in_part(text, stops):
    growing = Growing(TOKENIZER.decode, tuple(stops))
    said = ""
    for i in TOKENIZER.encode(text):
        said += growing.add(i)
        if any(stop in growing.text for stop in stops):
            break
    stopped = any(stop in growing.text for stop in stops)
    kept, stop = cut(growing.text, stops)
    assert kept.startswith(said) and said + growing.end(kept) == kept
    assert (stop is not None) == stopped and not any(s in kept for s in stops)


def test_what_stands_before_a_call_is_given_at_once_and_the_call_held():
    growing = Growing(TOKENIZER.decode, held="<tool_call>")
    said = [growing.add(i) for i in TOKENIZER.encode("I see. <tool_call>{}")]
    assert said[:6] == ["I", "", " s", "e", "e", "."]  # white space waits for what follows it
    assert "".join(said) == "I see."
    growing = Growing(TOKENIZER.decode, held="<tool_call>")
    assert "".join(growing.add(i) for i in TOKENIZER.encode("a <tool box")) == "a <tool box"


def test_characters_come_whole():
    growing = Growing(TOKENIZER.decode)
    assert [growing.add(i) for i in "é🛶".encode()] == ["", "é", "", "", "", "🛶"]

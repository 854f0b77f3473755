"""The tokenizer of a model folder: what it remembers, and what it leaves out of transformers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.models import tokenizer as module
from recollect.models.tokenizer import HFTokenizer
from tests.support.tiny import byte_tokenizer


@pytest.fixture(scope="module")
def hf():
    return byte_tokenizer()


@pytest.fixture(scope="module")
def both(hf) -> tuple[HFTokenizer, HFTokenizer]:
    """Return a tokenizer, and the same one with all of transformers' layers."""
    fast, slow = (HFTokenizer(hf, len(hf), [hf.eos_token_id]) for _ in range(2))
    assert fast._inner is not None
    slow._inner = None
    return fast, slow


TEXTS = st.lists(
    st.sampled_from(["a", " é", "<|end|>", "<|start|>", "\n", "🛶", "\ud83d", "n't ."])
)


@given(TEXTS.map("".join), st.booleans())
def test_texts_have_the_tokens_that_transformers_gives(both, text, control):
    fast, slow = both
    ids = fast.encode(text, control)
    assert ids == slow.encode(text, control)
    assert fast.decode(ids) == slow.decode(ids) == fast.decode(np.array(ids, dtype=np.int64))


def test_a_class_that_changes_texts_is_asked_itself():
    class Loud(type(byte_tokenizer())):
        def _decode(self, *given, **settings):
            return super()._decode(*given, **settings).upper()

    hf = byte_tokenizer()
    loud = Loud(tokenizer_object=hf.backend_tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer = HFTokenizer(loud, len(loud), [loud.eos_token_id])
    assert tokenizer._inner is None
    assert tokenizer.decode(tokenizer.encode("hello")) == "HELLO"


def test_texts_encoded_ahead_have_the_same_tokens(hf):
    ahead, plain = (HFTokenizer(hf, len(hf), [hf.eos_token_id]) for _ in range(2))
    texts = ["one", "two <|end|>", "\ud83d", "one", "x" * (module.LONGEST_REMEMBERED + 1)]
    ahead.encode_ahead(texts)
    found = [ahead._remembered.get((text, False)) for text in texts]
    assert found[-1] is None  # too long to be kept
    assert [list(ids) for ids in found[:-1]] == [plain.encode(text) for text in texts[:-1]]
    assert ahead.encode("two <|end|>", control=True) == plain.encode("two <|end|>", control=True)


def test_the_text_asked_for_longest_ago_is_forgotten(hf, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 2)
    tokenizer = HFTokenizer(hf, len(hf), [hf.eos_token_id])
    for text in ("one", "two", "one", "three"):
        tokenizer.encode(text)
    kept = [text in tokenizer._remembered for text in (("one", False), ("two", False))]
    assert kept == [True, False]

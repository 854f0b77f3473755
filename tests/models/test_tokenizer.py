"""The tokenizer of a model folder: what it remembers, and what it leaves out of transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders
from transformers import AutoTokenizer

from recollect.models import tokenizer as module
from recollect.models.spelling import spelling_of
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
    assert fast._spelling is not None
    slow._inner = slow._spelling = None
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


@given(st.lists(st.integers(0, 300), max_size=12))
def test_any_tokens_are_spelled_as_the_library_does(both, ids):
    fast, _ = both
    assert fast.decode(ids) == fast._inner.decode(ids, skip_special_tokens=True)


def test_added_words_are_spelled_and_no_token_is_taken_for_another():
    hf = byte_tokenizer()
    hf.add_tokens(["<tool>", "héllo wörld", "漢"])
    hf.add_tokens(["<|secret|>"], special_tokens=True)
    tokenizer = HFTokenizer(hf, len(hf), [hf.eos_token_id])
    every = range(len(hf))
    assert tokenizer.decode(every) == tokenizer._inner.decode(list(every))
    assert tokenizer.decode(every).endswith("<tool>héllo wörld漢")
    with pytest.raises(OverflowError):
        tokenizer.decode([-1])


def test_a_token_that_was_hidden_once_stays_so(tmp_path):
    hf = byte_tokenizer()
    hf.add_tokens(["<tool>"], special_tokens=True)
    hf.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    told = {"content": "<tool>", "special": False, "normalized": False}
    settings["added_tokens_decoder"] = {str(hf.convert_tokens_to_ids("<tool>")): told}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True, trust_remote_code=False)
    tokenizer = HFTokenizer(again, len(again), [again.eos_token_id])
    assert tokenizer._spelling is not None
    ids = tokenizer.encode("a<tool>b", True)
    assert tokenizer.decode(ids) == again.decode(ids, skip_special_tokens=True)


def test_the_decoder_of_llama_cpp_s_files_is_spelled_too():
    fused = [decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("\u2581", " ")]
    hf = byte_tokenizer()
    hf.backend_tokenizer.decoder = decoders.Sequence([*fused, decoders.ByteLevel()])
    hf.add_tokens(["<tool>", "<0x41>", "<0x+F>", "\u2581x", "a b"])
    tokenizer = HFTokenizer(hf, len(hf), [hf.eos_token_id])
    assert tokenizer._spelling is not None
    plain = tokenizer.encode("é ") + hf.convert_tokens_to_ids(["<tool>"])
    assert tokenizer.decode(plain) == "é <tool>"
    for token in range(len(hf)):
        ids = [*plain, token, *plain]
        assert tokenizer.decode(ids) == tokenizer._inner.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip("b")]),
        decoders.Sequence([decoders.Replace("a", "o"), decoders.ByteLevel()]),
        decoders.Sequence([]),
        decoders.WordPiece(),
        None,
    ],
)
def test_tokens_that_are_more_than_bytes_are_left_to_the_library(decoder):
    hf = byte_tokenizer()
    if decoder is not None:
        hf.backend_tokenizer.decoder = decoder
    assert (spelling_of(hf.backend_tokenizer) is None) == (decoder is not None)
    tokenizer = HFTokenizer(hf, len(hf), [hf.eos_token_id])
    ids = tokenizer.encode("banana")
    assert tokenizer.decode(ids) == hf.decode(ids, skip_special_tokens=True)


def test_a_decoder_of_someone_s_own_is_left_to_the_library():
    class Loud:
        def decode_chain(self, tokens):
            return [token.upper() for token in tokens]

    inner = byte_tokenizer().backend_tokenizer
    inner.decoder = decoders.Decoder.custom(Loud())
    assert spelling_of(inner) is None


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

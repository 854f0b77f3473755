"""The stemmer against the worked examples of Porter's paper, rule by rule."""

from __future__ import annotations

import pytest

from recollect.metrics.stemmer import _measure, stem

# What the paper gives for each rule alone; the whole algorithm goes on from there, so only those
# whose end is the word itself, or that no later step changes, are listed as they stand there.
TABLE = """
caresses caress  ponies poni  ties ti  caress caress  cats cat
feed feed  agreed agre  plastered plaster  bled bled  motoring motor  sing sing
conflated conflat  troubled troubl  sized size  hopping hop  tanned tan  falling fall
hissing hiss  fizzed fizz  failing fail  filing file
happy happi  sky sky
relational relat  conditional condit  rational ration  valenci valenc  hesitanci hesit
digitizer digit  conformabli conform  radicalli radic  differentli differ  vileli vile
analogousli analog  vietnamization vietnam  predication predic  operator oper  feudalism feudal
decisiveness decis  hopefulness hope  callousness callous  formaliti formal
sensitiviti sensit  sensibiliti sensibl
triplicate triplic  formative form  formalize formal  electriciti electr  electrical electr
hopeful hope  goodness good
revival reviv  allowance allow  inference infer  airliner airlin  gyroscopic gyroscop
adjustable adjust  defensible defens  irritant irrit  replacement replac  adjustment adjust
dependent depend  adoption adopt  homologou homolog  communism commun  activate activ
angulariti angular  homologous homolog  effective effect  bowdlerize bowdler
probate probat  rate rate  cease ceas  controll control  roll roll
generalizations gener  oscillators oscil
"""
STEMS = TABLE.split()


@pytest.mark.parametrize(("word", "expected"), list(zip(STEMS[::2], STEMS[1::2], strict=True)))
def test_the_examples_of_the_paper(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (0, "tr ee tree y by"),
        (1, "trouble oats trees ivy"),
        (2, "troubles private oaten orrery"),
    ],
)
def test_the_measure_of_the_paper(measure: int, words: str) -> None:
    assert [_measure(word) for word in words.split()] == [measure] * len(words.split())


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        ("tries tried try", 2),
        ("flies fly", 2),
        ("dies dying", 2),
        ("play playing playful", 2),
        ("hope hopefully", 2),
        ("connect connected connecting connection connections", 1),
    ],
)
def test_words_that_meet_when_repaired(words: str, plain: int) -> None:
    assert len({stem(word, extended=True) for word in words.split()}) == 1
    assert len({stem(word) for word in words.split()}) == plain


def test_short_words_do_not_meet_longer_ones() -> None:
    pairs = [("on", "one"), ("us", "use"), ("at", "ate"), ("new", "news")]
    assert all(stem(a, extended=True) != stem(b, extended=True) for a, b in pairs)
    assert [stem(b) for _, b in pairs] == [a for a, _ in pairs]  # the paper's own weakness


def test_what_is_no_english_word_is_left_alone_or_shortened() -> None:
    assert [stem(word) for word in ("", "a", "is", "7", "2023", "東京", "été")] == [
        *("", "a", "is", "7", "2023", "東京", "été")
    ]

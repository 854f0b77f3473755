"""Porter's stemmer: English words to their stems ("An algorithm for suffix stripping", 1980).

With the three departures of the author's own program: words of one or two letters stay as they are,
"bli" becomes "ble", and "logi" becomes "log". `extended` adds the repairs of NLTK, whose stemmer
LoCoMo's scorer uses: "tries" meets "try", and "one" does not meet "on".
"""

from __future__ import annotations

import functools
import re

_STEP_2 = {
    **{"ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize"},
    **{"bli": "ble", "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous"},
    **{"ization": "ize", "ation": "ate", "ator": "ate", "alism": "al", "iveness": "ive"},
    **{"fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble"},
    "logi": "log",
}
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic"}
_STEP_3 |= {"ful": "", "ness": ""}
_STEP_4 = dict.fromkeys(
    (
        *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion"),
        *("ou", "ism", "ate", "iti", "ous", "ive", "ize"),
    ),
    "",
)
_IRREGULAR = {
    **{"skies": "sky", "dying": "die", "lying": "lie", "tying": "tie"},
    **{"innings": "inning", "outings": "outing", "cannings": "canning"},
    **{w: w for w in ("sky", "news", "inning", "outing", "canning", "howe")},
    **{w: w for w in ("proceed", "exceed", "succeed")},
}


@functools.lru_cache(1 << 16)
def stem(word: str, extended: bool = False) -> str:
    """Return the stem of a lower-case word."""
    if extended and word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _past(_plural(word, extended), extended)
    before = word[:-1]
    if word.endswith("y"):
        turns = len(before) > 1 and _kinds(before)[-1] == "c" if extended else _has_vowel(before)
        word = f"{before}i" if turns else word
    word = _second(word, extended)
    word = _replaced(word, _STEP_3, 0)
    word = _replaced(word, _STEP_4, 1)
    return _tidy(word, extended)


def _plural(word: str, extended: bool) -> str:
    """Step 1a."""
    if extended and word.endswith("ies") and len(word) == 4:
        return word[:-1]
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str, extended: bool) -> str:
    """Step 1b."""
    if extended and word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if not word.endswith(suffix):
            continue
        rest = word.removesuffix(suffix)
        if not _has_vowel(rest):
            return word
        if rest.endswith(("at", "bl", "iz")):
            return f"{rest}e"
        if _ends_double(rest) and rest[-1] not in "lsz":
            return rest[:-1]
        return f"{rest}e" if _measure(rest) == 1 and _ends_cvc(rest, extended) else rest
    return word


def _second(word: str, extended: bool) -> str:
    """Step 2."""
    if not extended:
        return _replaced(word, _STEP_2, 0)
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _second(word[:-2], extended)  # "rationalli" ends in "tional" now
    if word.endswith("fulli"):
        return word[:-2] if _measure(word[:-5]) > 0 else word
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) > 0 else word  # the l counts
    return _replaced(word, _STEP_2, 0)


def _replaced(word: str, rules: dict[str, str], least: int) -> str:
    """Apply the rule of the longest suffix, if what precedes it has a large enough measure."""
    for size in range(min(len(word), 7), 0, -1):
        if word[-size:] in rules:
            rest = word[:-size]
            short = _measure(rest) <= least
            if short or (word[-size:] == "ion" and not rest.endswith(("s", "t"))):
                return word
            return rest + rules[word[-size:]]
    return word


def _tidy(word: str, extended: bool) -> str:
    """Step 5."""
    if word.endswith("e"):
        rest = word[:-1]
        if _measure(rest) > 1 or (_measure(rest) == 1 and not _ends_cvc(rest, extended)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _kinds(word: str) -> str:
    """Write v for a vowel and c for a consonant; y is a vowel after a consonant."""
    kinds = ""
    for char in word:
        vowel = char in "aeiou" or (char == "y" and kinds.endswith("c"))
        kinds += "v" if vowel else "c"
    return kinds


def _measure(word: str) -> int:
    """Count the times a vowel is followed by a consonant."""
    return len(re.findall("vc", _kinds(word)))


def _has_vowel(word: str) -> bool:
    return "v" in _kinds(word)


def _ends_double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _kinds(word)[-1] == "c"


def _ends_cvc(word: str, extended: bool) -> bool:
    kinds = _kinds(word)
    return (kinds.endswith("cvc") and word[-1] not in "wxy") or (extended and kinds == "vc")

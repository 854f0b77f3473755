"""Scores for answers: `(prediction, answers) -> float` in [0, 1], the best over all accepted."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

Metric = Callable[[str, tuple[str, ...]], float]

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_WORD = re.compile(r"[^\W_]+")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d)")
_DASHES = str.maketrans(
    {**dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"), **dict.fromkeys("\u2014\u2015", " ")}
)
# A number stands alone, not as in "covid-19" or "5th". A date, a time or a range is one token.
_NUMBER = re.compile(r"(?<!\w)(?<!\w[-.:/])([-+]?(?:(?<!\.)\.)?\d+(?:[-.:/]\d+)*)(?!\w|[-.:/]\w)")
_PLAIN_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)")
_SIGNED_MONEY = re.compile(r"(?<![\w.)])-\s*\\?[$€£¥]\s*(?=[\d.])")
_STYLED = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathit)\s*\{([^{}]*)\}")
_AMOUNT = re.compile(rf"[\s$€£¥\\]*(?:{_PLAIN_NUMBER.pattern})[\s$%\\]*")


# Text against text


def normalise(text: str) -> str:
    """Lower the case, drop punctuation and articles, and join what is left with single spaces.

    SQuAD's rule on ASCII. Beyond ASCII it also folds compatibility forms (NFKC: full-width digits,
    ligatures) and drops Unicode punctuation and invisible characters; a long dash parts words.
    """
    kept = _fold(text).translate(_NOISE)
    # Marks that stood apart may touch now, and must compose as they would in a clean text.
    return " ".join(_ARTICLE.sub(" ", unicodedata.normalize("NFKC", kept)).split())


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).lower().translate(_DASHES)


class _Noise(dict[int, int | None]):
    """Drops punctuation and invisible characters; a character is looked up once."""

    def __missing__(self, code: int) -> int | None:
        category = unicodedata.category(chr(code))
        noise = chr(code) in string.punctuation or category[0] == "P" or category == "Cf"
        self[code] = None if noise else code
        return self[code]


_NOISE = _Noise()


def exact_match(prediction: str, answers: tuple[str, ...]) -> float:
    """Score 1 if the prediction equals an answer after normalisation.

    Unlike SQuAD's, texts of which nothing is left ("", "the") match nothing, not even each other.
    """
    found = normalise(prediction)
    return float(found != "" and any(found == normalise(answer) for answer in answers))


def token_f1(prediction: str, answers: tuple[str, ...]) -> float:
    """Score the overlap of normalised tokens: the harmonic mean of precision and recall."""
    found = Counter(normalise(prediction).split())
    golds = [Counter(normalise(answer).split()) for answer in answers]
    return _best(f1((found & gold).total(), found.total(), gold.total()) for gold in golds)


def sub_exact_match(prediction: str, answers: tuple[str, ...]) -> float:
    """Score 1 if the prediction contains an answer as whole tokens; never the other way round.

    Numbers keep their sign, decimal point and inner separators: "5.00" is found neither in "45.00"
    nor in "500" or "5.00-6.00". An empty answer is found nowhere.
    """
    found = f" {' '.join(tokens(prediction))} "
    golds = [" ".join(tokens(answer)) for answer in answers]
    return float(any(gold and f" {gold} " in found for gold in golds))


def tokens(text: str) -> list[str]:
    """Split into numbers, kept whole, and the normalised words between them."""
    found: list[str] = []
    for i, piece in enumerate(_NUMBER.split(_plain_digits(_fold(text)))):
        found += [piece.removeprefix("+")] if i % 2 else normalise(piece).split()
    return found


def _plain_digits(text: str) -> str:
    """Write "1,234" as "1234" and "-$5" as "-5"; part other digits at a comma: "1,2" is a list."""
    text = _SIGNED_MONEY.sub("-", text)
    joined = _GROUPED.sub(lambda match: match.group().replace(",", ""), text.replace("{,}", ","))
    return re.sub(r"(?<=\d),(?=\d)", " ", joined)


def rouge_l(prediction: str, answers: tuple[str, ...]) -> float:
    """Score the longest common subsequence of words (ROUGE-L's F1, without stemming).

    Articles are words here, but a text of nothing else ("the") earns nothing, as everywhere.
    """
    found = _WORD.findall(_fold(prediction)) if normalise(prediction) else []
    golds = [_WORD.findall(_fold(answer)) for answer in answers if normalise(answer)]
    return _best(f1(_lcs_length(found, gold), len(found), len(gold)) for gold in golds)


def _lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
    # One big integer holds a row of the usual table, a bit per word of `first` (Hyyrö 2004): a
    # whole book against its summary takes milliseconds.
    places: dict[str, int] = {}
    for i, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << i
    full = (1 << len(first)) - 1
    row = full
    for word in second:
        met = row & places.get(word, 0)
        row = ((row + met) | (row - met)) & full
    return len(first) - row.bit_count()


def f1(common: int, found: int, gold: int) -> float:
    """Return the harmonic mean of precision and recall of `common` things."""
    return 2 * common / (found + gold) if common else 0.0


def _best(scores: Iterable[float]) -> float:
    return max(scores, default=0.0)


# Boxed answers, and numbers


def unstyled(text: str) -> str:
    r"""Take LaTeX's styles off: \text{Paris} is Paris."""
    while (plain := _STYLED.sub(r"\1", text)) != text:
        text = plain
    return text


def boxed(text: str) -> str | None:
    r"""Return what the last \boxed{...} holds, or the last \fbox{...}, or what follows "\boxed ".

    A last box that is never closed is no answer, even if an earlier one was.
    """
    start = max(text.rfind("\\boxed{"), text.rfind("\\boxed "))
    if start < 0:
        start = text.rfind("\\fbox{")
    if start < 0:
        return None
    content = re.sub(r"^\\(?:boxed|fbox)", "", text[start:])
    if not content.lstrip().startswith("{"):
        return content.partition("$")[0].strip() or None
    return _braced(content.lstrip())


def _braced(text: str) -> str | None:
    """Return what is inside the braces that a text begins with, if they are closed."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return text[1:i] if char == "}" else None
    return None


def boxed_exact_match(prediction: str, answers: tuple[str, ...]) -> float:
    r"""Score 1 if the last box is an answer: MemAgent's reward as published, quirks included.

    Of the last 300 characters, in lower case: what follows the last "\boxed " up to a dollar sign
    where there is one, else what the last \boxed{...} holds. Spaces and some ornaments of LaTeX do
    not count; units, names ("k = 5") and bare signs do, and an \fbox is no answer. `boxed_match`
    is the wider one.
    """
    found = _published_box(prediction[-300:].lower())
    golds = [_published_form(answer.lower()) for answer in answers]
    return float(found is not None and _published_form(found) in golds)


def _published_box(text: str) -> str | None:
    if "\\boxed " in text:
        return text.rpartition("\\boxed ")[2].partition("$")[0]
    _, box, rest = text.rpartition("\\boxed")
    return _braced(rest) if box else None


_PUBLISHED_FORM = (
    *(("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac")),
    *((ornament, "") for ornament in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$", "\\%")),
    *((" .", " 0."), ("{.", "{0."), (" ", "")),
)
"""One after the other; their order decides."""


def _published_form(text: str) -> str:
    for old, new in _PUBLISHED_FORM:
        text = text.replace(old, new)
    return text


def boxed_match(prediction: str, answers: tuple[str, ...]) -> float:
    r"""Score 1 if the box in the last 300 characters equals an answer, however it is written.

    Wider than `boxed_exact_match`: an \fbox is a box, and units, dollar and percent signs, and the
    name in "k = 5" do not count either. An empty box is never right.
    """
    found = boxed(prediction[-300:].lower())
    stripped = "" if found is None else _strip_latex(found)
    golds = (_strip_latex(answer.lower()) for answer in answers)
    return float(stripped != "" and any(stripped == gold for gold in golds))


def _strip_latex(text: str) -> str:
    """Remove what writes the same answer differently: the clean-up of the MATH benchmark."""
    text = text.replace("\n", "").replace("\\!", "").replace("\\\\", "\\")
    text = text.replace("tfrac", "frac").replace("dfrac", "frac")
    for ornament in ("\\left", "\\right", "^{\\circ}", "^\\circ", "\\$", "\\%", "$", "%"):
        text = text.replace(ornament, "")
    text = text.partition("\\text{ ")[0]  # units, as in 5 \text{ cm}
    name, equals, value = text.partition("=")
    if equals and "=" not in value and len(name.strip()) <= 2:
        text = value  # "k = 5" answers with 5
    text = text.replace(" ", "")
    return re.sub(r"(^|\{)\.(?=\d)", r"\g<1>0.", text)


def listed(text: str) -> list[str]:
    """Return the items of a list in one order, whatever the order they come in."""
    parts = re.split(r"[,;\n]|\band\b", _fold(text))
    return sorted(filter(None, map(normalise, parts)))


def is_amount(text: str) -> bool:
    """Tell whether a text is one number, perhaps with a sign of money or percent."""
    return _AMOUNT.fullmatch(_plain_digits(_fold(text))) is not None


def plain_number(token: str) -> bool:
    """Tell whether a token is a number, and not a date, a time or a range."""
    return _PLAIN_NUMBER.fullmatch(token) is not None

"""The questions about a ledger: eight kinds, each answered from the books, exactly.

Ranges cover every session equally often, and where the largest of something is asked for, the
answer is drawn before the range: so the largest of the whole ledger is no better a guess than any.
Knows nothing of how the sessions are worded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from types import MappingProxyType
from typing import Literal, get_args

from recollect.tasks.made.ledger_book import CATEGORIES, Book, Transaction, money
from recollect.types import Question

Kind = Literal[
    "time_range_scene_amount",
    "time_range_multiple_scenes_amount",
    "time_range_total_amount",
    "max_scene",
    "max_frequency_date",
    "max_single_amount",
    "single_date_scene_amount",
    "total_amount",
]
"""The names of the published data set; a scene is a category of spending."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class _Span:
    """A range of days, and what was spent in it: never nothing."""

    start: date
    end: date
    spent: list[Transaction]

    @property
    def words(self) -> str:
        return f"from {self.start} to {self.end} (both days included)"

    @property
    def categories(self) -> list[str]:
        return sorted({t.category for t in self.spent})


def _draw_span(book: Book, rng: Random) -> _Span:
    """Draw which sessions a range covers: it may begin before the first and end after the last, so
    that the first and the last are covered as often as those in the middle."""
    length = rng.randint(1, len(book))
    start = rng.randint(1 - length, len(book) - 1)
    return _dated(book, max(0, start), min(len(book), start + length) - 1, rng)


def _span_around(book: Book, session: int, rng: Random) -> _Span:
    """Draw a range that covers a session, short ones as often as long ones."""
    length = round(len(book) ** rng.random())
    start = rng.randint(session - length + 1, session)
    return _dated(book, max(0, start), min(len(book), start + length) - 1, rng)


def _dated(book: Book, first: int, last: int, rng: Random) -> _Span:
    """End a range anywhere before the next sessions."""
    days = [book[i][0].day if 0 <= i < len(book) else None for i in (first - 1, last + 1)]
    begins, ends = book[first][0].day, book[last][0].day
    before, after = days[0] or begins - timedelta(days=30), days[1] or ends + timedelta(days=30)
    start = begins - timedelta(days=rng.randrange((begins - before).days))
    end = ends + timedelta(days=rng.randrange((after - ends).days))
    return _Span(start, end, [t for session in book[first : last + 1] for t in session])


def _span_won(
    book: Book, sessions: Sequence[int], wins: Callable[[_Span], bool], rng: Random
) -> _Span | None:
    """Draw a range around one of some sessions until what was chosen is the largest in it."""
    for _ in range(_TRIES):
        span = _span_around(book, rng.choice(sessions), rng)
        if wins(span):
            return span
    return None


def ask(kind: Kind, book: Book, rng: Random) -> Question:
    """Draw a question of a kind about what is in the books, and answer it."""
    text, answer, needed = _ASK[kind](book, rng)
    evidence = tuple(sorted({t.session for t in needed}))
    return Question(text, (answer,), kind, evidence)


Asked = tuple[str, str, list[Transaction]]
"""A question's text, its answer, and the transactions that must be known for it."""
_TRIES = 60
_AMOUNT = " Answer with an amount such as 12.50."


def _scene_in_range(book: Book, rng: Random) -> Asked:
    span = _draw_span(book, rng)
    category = rng.choice(span.categories)
    spent = [t for t in span.spent if t.category == category]
    text = f"How much did I spend in the category {category} {span.words}?"
    return text + _AMOUNT, _total(spent), spent


def _scenes_in_range(book: Book, rng: Random) -> Asked:
    span = _draw_span(book, rng)
    known = rng.choice(span.categories)
    others = [category for category in CATEGORIES if category != known]
    wanted = sorted([known, *rng.sample(others, rng.randint(1, 2))])
    spent = [t for t in span.spent if t.category in wanted]
    names = f"{', '.join(wanted[:-1])} and {wanted[-1]}"
    text = f"How much did I spend in the categories {names} together {span.words}?"
    return text + _AMOUNT, _total(spent), spent


def _total_in_range(book: Book, rng: Random) -> Asked:
    span = _draw_span(book, rng)
    return f"How much did I spend in total {span.words}?" + _AMOUNT, _total(span.spent), span.spent


def _max_scene(book: Book, rng: Random) -> Asked:
    at: dict[str, list[int]] = {}
    for i, session in enumerate(book):
        for category in {t.category for t in session}:
            at.setdefault(category, []).append(i)
    drawn = (
        _scene_span(book, category, at[category], rng)
        for category in rng.sample(sorted(at), len(at))
    )
    span = next((span for span in drawn if span), None) or _draw_span(book, rng)
    text = (
        f"In which category did I spend the most {span.words}? If several are equal, name them all"
        " in alphabetical order, separated by commas."
    )
    return text, ", ".join(_top_scenes(span)), span.spent


def _scene_span(book: Book, category: str, at: Sequence[int], rng: Random) -> _Span | None:
    return _span_won(book, at, lambda span: category in _top_scenes(span), rng)


def _top_scenes(span: _Span) -> list[str]:
    totals: Counter[str] = Counter()
    for t in span.spent:
        totals[t.category] += t.cents
    return largest(totals)


def _max_frequency_date(book: Book, rng: Random) -> Asked:
    at = rng.randrange(len(book))
    day = book[at][0].day.isoformat()
    span = _span_won(book, [at], lambda span: day in _busiest(span), rng) or _dated(
        book, at, at, rng
    )
    text = (
        f"On which date did I have the most transactions {span.words}? Answer with a date such as"
        " 2023-12-31. If several are equal, give them all, earliest first, separated by commas."
    )
    return text, ", ".join(_busiest(span)), span.spent


def _busiest(span: _Span) -> list[str]:
    return largest(Counter(t.day.isoformat() for t in span.spent))


def _max_single_amount(book: Book, rng: Random) -> Asked:
    at = rng.choice([t for session in book for t in session]).session
    most = max(t.cents for t in book[at])
    won = _span_won(book, [at], lambda span: max(t.cents for t in span.spent) == most, rng)
    span = won or _dated(book, at, at, rng)
    text = f"What was the largest single amount I spent {span.words}?"
    return text + _AMOUNT, money(most), span.spent


def _scene_on_date(book: Book, rng: Random) -> Asked:
    # Any payment with the same chance: those of short sessions would else be asked more often.
    chosen = rng.choice([t for session in book for t in session])
    spent = [t for t in book[chosen.session] if t.category == chosen.category]
    text = f"How much did I spend in the category {chosen.category} on {chosen.day}?"
    return text + _AMOUNT, _total(spent), spent


def _total_amount(book: Book, rng: Random) -> Asked:
    spent = [t for session in book for t in session]
    return (
        "How much have I spent in total over all sessions so far?" + _AMOUNT,
        _total(spent),
        spent,
    )


_ASK: Mapping[Kind, Callable[[Book, Random], Asked]] = MappingProxyType(
    {
        "time_range_scene_amount": _scene_in_range,
        "time_range_multiple_scenes_amount": _scenes_in_range,
        "time_range_total_amount": _total_in_range,
        "max_scene": _max_scene,
        "max_frequency_date": _max_frequency_date,
        "max_single_amount": _max_single_amount,
        "single_date_scene_amount": _scene_on_date,
        "total_amount": _total_amount,
    }
)


def largest(counts: Mapping[str, int]) -> list[str]:
    """Name the keys with the largest count, all of them if several tie, sorted."""
    most = max(counts.values())
    return sorted(key for key, count in counts.items() if count == most)


def _total(spent: Sequence[Transaction]) -> str:
    return money(sum(t.cents for t in spent))

"""The questions about a ledger: eight kinds, each answered from the books, exactly.

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
    """Draw which sessions a range covers, then end it anywhere before the next ones."""
    first, last = sorted(rng.choices(range(len(book)), k=2))
    days = [session[0].day for session in book]
    before = days[first - 1] if first else days[first] - timedelta(days=30)
    after = days[last + 1] if last + 1 < len(book) else days[last] + timedelta(days=30)
    start = days[first] - timedelta(days=rng.randrange((days[first] - before).days))
    end = days[last] + timedelta(days=rng.randrange((after - days[last]).days))
    return _Span(start, end, [t for session in book[first : last + 1] for t in session])


def ask(kind: Kind, book: Book, rng: Random) -> Question:
    """Draw a question of a kind about what is in the books, and answer it."""
    text, answer, needed = _ASK[kind](book, rng)
    evidence = tuple(sorted({t.session for t in needed}))
    return Question(text, (answer,), kind, evidence)


Asked = tuple[str, str, list[Transaction]]
"""A question's text, its answer, and the transactions that must be known for it."""
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
    span = _draw_span(book, rng)
    totals: Counter[str] = Counter()
    for t in span.spent:
        totals[t.category] += t.cents
    text = (
        f"In which category did I spend the most {span.words}? If several are equal, name them all"
        " in alphabetical order, separated by commas."
    )
    return text, top(totals), span.spent


def _max_frequency_date(book: Book, rng: Random) -> Asked:
    span = _draw_span(book, rng)
    text = (
        f"On which date did I have the most transactions {span.words}? Answer with a date such as"
        " 2023-12-31. If several are equal, give them all, earliest first, separated by commas."
    )
    return text, top(Counter(t.day.isoformat() for t in span.spent)), span.spent


def _max_single_amount(book: Book, rng: Random) -> Asked:
    span = _draw_span(book, rng)
    text = f"What was the largest single amount I spent {span.words}?"
    return text + _AMOUNT, money(max(t.cents for t in span.spent)), span.spent


def _scene_on_date(book: Book, rng: Random) -> Asked:
    session = rng.choice(book)
    category = rng.choice(sorted({t.category for t in session}))
    spent = [t for t in session if t.category == category]
    text = f"How much did I spend in the category {category} on {session[0].day}?"
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


def top(counts: Mapping[str, int]) -> str:
    """Name the keys with the largest count, all of them if several tie, sorted."""
    most = max(counts.values())
    return ", ".join(sorted(key for key, count in counts.items() if count == most))


def _total(spent: Sequence[Transaction]) -> str:
    return money(sum(t.cents for t in spent))

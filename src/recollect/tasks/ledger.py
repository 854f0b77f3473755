"""Ledger: talks about spending, one session a chunk, and questions that need sums and maxima.

The shape of Ledger-QA: sessions on days of their own, eight categories, eight kinds of question,
amounts to the cent. Worded by templates, made from a seed; nothing is downloaded. Knows nothing of
agents or models.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import chain
from random import Random
from types import MappingProxyType
from typing import ClassVar, Literal, get_args

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.types import Question, Task

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

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Dining": ("breakfast", "lunch", "dinner", "coffee", "a takeaway", "drinks with a friend"),
        "Transportation": ("a taxi", "petrol", "a train ticket", "parking", "a bus pass"),
        "Shopping": ("shoes", "a jacket", "groceries", "kitchenware", "a phone case", "bedding"),
        "Entertainment": ("a film", "a concert", "a video game", "a museum visit", "streaming"),
        "Utilities": ("electricity", "water", "gas", "the internet bill", "the phone bill"),
        "Medical": ("the dentist", "medicine", "a check-up", "glasses", "physiotherapy"),
        "Education": ("a textbook", "a language course", "exam fees", "an online class"),
        "Other": ("a birthday gift", "a donation", "postage", "a haircut", "pet food"),
    }
)
_FIRST_DAY = date(2023, 1, 1)
_DAYS = 731  # to the end of 2024
_MOST_SESSIONS = 1_000_000  # twice as many days still end before the year 9999
_CENTS = ((150, 2_000), (1_000, 10_000), (5_000, 60_000))

# Every exchange gives the item, the amount and the category once, in one line or spread over a few.
_EXCHANGES: tuple[tuple[str, ...], ...] = (
    (
        "User: I spent ${amount} on {item}. That belongs under {category}.",
        "Assistant: All right, I have noted it.",
    ),
    (
        "User: Please record ${amount} for {item}, category {category}.",
        "Assistant: Done.",
    ),
    (
        "User: There was also {item}, which cost me ${amount}.",
        "Assistant: I have filed that as {category}.",
    ),
    (
        "User: Oh, and {item}: ${amount}.",
        "Assistant: Thanks. I am putting it down under {category}.",
    ),
    (
        "Assistant: Did you pay for anything in {category} today?",
        "User: Yes, {item}, for ${amount}.",
    ),
    (
        "User: Something for {category} came up today: {item}.",
        "Assistant: How much was it?",
        "User: It was ${amount}.",
    ),
    (
        "Assistant: Shall I add anything else?",
        "User: The receipt for {item} says ${amount}, so add that to {category}.",
    ),
)
_CHATTER: tuple[tuple[str, ...], ...] = (
    ("User: It has been raining all day here.", "Assistant: I hope it clears up soon."),
    ("User: I slept badly last night.", "Assistant: That happens. Try to rest this evening."),
    (
        "User: Do you think I spend too much?",
        "Assistant: We can look at it at the end of the month.",
    ),
    ("User: My sister is visiting next week.", "Assistant: That sounds nice."),
    ("Assistant: Keep the receipts, please.", "User: I always do. Well, nearly always."),
    ("User: Let me think what else there was.", "Assistant: Take your time."),
    ("User: I walked home to save some money.", "Assistant: Good for you."),
    ("User: The neighbours were noisy again.", "Assistant: That must be tiring."),
    ("Assistant: How was the rest of your day?", "User: Busy, but fine."),
    ("User: I nearly bought a lamp, but left it.", "Assistant: Then there is nothing to record."),
)
_OPENINGS = (
    "User: Hello, let us go through what I spent today.",
    "User: Hi. Time to do the accounts.",
    "Assistant: Good evening. What shall we record today?",
)
_CLOSINGS = (
    "Assistant: That is everything for today, then.",
    "User: That was all. Thank you.",
    "User: Nothing else. Good night.",
)


@dataclass(frozen=True)
class Transaction:
    """One amount spent, in whole cents."""

    session: int
    day: date
    category: str
    item: str
    cents: int


@dataclass(frozen=True)
class Ledger:
    """A family of ledger tasks: any number of sessions, exact answers."""

    name: ClassVar[str] = "ledger"
    metric: ClassVar[str] = "value_match"

    sessions: int = 10
    """One chunk each, on days of their own, in order."""
    questions: int = 8
    """Of the kinds in turn, no two alike."""
    positions: Literal["end", "any"] = "end"
    """Ask after the last session, or each question after a session drawn for it, about those until
    then."""
    kinds: tuple[Kind, ...] = KINDS
    max_transactions: int = 10
    """A session has at least 1 and at most this many."""
    max_chatter: int = 6
    """Exchanges in a session that are about nothing to be recorded, at most."""

    def __post_init__(self) -> None:
        if self.sessions < 1 or self.questions < 1 or self.max_transactions < 1:
            raise UserError(
                f"ledger tasks need sessions, questions and transactions, not {self.sessions},"
                f" {self.questions} and {self.max_transactions}",
                "set sessions, questions and max_transactions to 1 or more",
            )
        if self.sessions > _MOST_SESSIONS or self.max_chatter < 0:
            raise UserError(
                f"{self.sessions} sessions with up to {self.max_chatter} idle exchanges each"
                " are not possible",
                f"set sessions to at most {_MOST_SESSIONS}, and max_chatter to 0 or more",
            )
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise UserError(
                f"there is no kind of ledger question {unknown[0]!r}"
                if unknown
                else "ledger tasks need at least one kind of question",
                f"choose from {', '.join(KINDS)}",
            )

    def size(self, split: Split) -> int | None:
        """Say that there is no end."""
        return None

    def longer(self, times: int) -> Ledger:
        """Return the same family with so many times the sessions."""
        return dataclasses.replace(self, sessions=self.sessions * times)

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; it depends on nothing but the settings and these three."""
        rng = Random(derive("ledger", seed, split, index))
        book = [self._spend(i, day, rng) for i, day in enumerate(_days(self.sessions, rng))]
        chunks = tuple(self._dialogue(session, rng) for session in book)
        name = f"ledger-{split}-{seed}-{index}-of-{self.sessions}-sessions"
        return Task(name, chunks, self._questions(book, rng), self.name)

    def _spend(self, session: int, day: date, rng: Random) -> list[Transaction]:
        spent = []
        for _ in range(rng.randint(1, self.max_transactions)):
            category = rng.choice(list(CATEGORIES))
            item = rng.choice(CATEGORIES[category])
            cents = rng.randint(*rng.choice(_CENTS))
            spent.append(Transaction(session, day, category, item, cents))
        return spent

    def _dialogue(self, session: Sequence[Transaction], rng: Random) -> str:
        """Word a session as a talk, its idle exchanges anywhere between the others."""
        exchanges = [
            [
                line.format(amount=_money(t.cents), item=t.item, category=t.category)
                for line in lines
            ]
            for t, lines in ((t, rng.choice(_EXCHANGES)) for t in session)
        ]
        idle = min(rng.randint(0, self.max_chatter), len(_CHATTER))
        for lines in rng.sample(_CHATTER, idle):
            exchanges.insert(rng.randint(0, len(exchanges)), list(lines))
        spoken = [rng.choice(_OPENINGS), *chain.from_iterable(exchanges), rng.choice(_CLOSINGS)]
        day = session[0].day.isoformat()
        parts = (line.partition(": ") for line in spoken)
        return "\n".join(f'[{day}] {role} said, "{said}"' for role, _, said in parts)

    def _questions(
        self, book: Sequence[Sequence[Transaction]], rng: Random
    ) -> tuple[Question, ...]:
        found: dict[str, Question] = {}
        # A kind that only repeats itself drops out: a short ledger has few questions of some kinds.
        turns = {kind: 0 for kind in rng.sample(self.kinds, len(self.kinds))}
        while len(found) < self.questions:
            for kind in list(turns):
                asked = len(book) if self.positions == "end" else rng.randint(1, len(book))
                question = _ask(kind, book[:asked], rng)
                if self.positions == "any":
                    question = dataclasses.replace(question, position=asked - 1)
                turns[kind] = turns[kind] + 1 if question.text in found else 0
                if turns[kind] > 20 or kind == "total_amount":
                    del turns[kind]
                found.setdefault(question.text, question)
            if not turns and len(found) < self.questions:
                raise UserError(
                    f"a ledger of {self.sessions} sessions has only {len(found)} questions of these"
                    f" kinds, not {self.questions}",
                    "ask fewer questions, or set more sessions or kinds",
                )
        return tuple(list(found.values())[: self.questions])


def _days(n: int, rng: Random) -> list[date]:
    """Draw distinct days in order; beyond two years' worth of sessions the calendar goes on."""
    offsets = rng.sample(range(_DAYS if n <= _DAYS else 2 * n), n)
    return [_FIRST_DAY + timedelta(days=offset) for offset in sorted(offsets)]


# Questions


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


def _draw_span(book: Sequence[Sequence[Transaction]], rng: Random) -> _Span:
    """Draw which sessions a range covers, then end it anywhere before the next ones."""
    first, last = sorted(rng.choices(range(len(book)), k=2))
    days = [session[0].day for session in book]
    before = days[first - 1] if first else days[first] - timedelta(days=30)
    after = days[last + 1] if last + 1 < len(book) else days[last] + timedelta(days=30)
    start = days[first] - timedelta(days=rng.randrange((days[first] - before).days))
    end = days[last] + timedelta(days=rng.randrange((after - days[last]).days))
    return _Span(start, end, [t for session in book[first : last + 1] for t in session])


def _ask(kind: Kind, book: Sequence[Sequence[Transaction]], rng: Random) -> Question:
    text, answer, needed = _ASK[kind](book, rng)
    evidence = tuple(sorted({t.session for t in needed}))
    return Question(text, (answer,), kind, evidence)


Asked = tuple[str, str, list[Transaction]]
"""A question's text, its answer, and the transactions that must be known for it."""
_AMOUNT = " Answer with an amount such as 12.50."


def _scene_in_range(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    span = _draw_span(book, rng)
    category = rng.choice(span.categories)
    spent = [t for t in span.spent if t.category == category]
    text = f"How much did I spend in the category {category} {span.words}?"
    return text + _AMOUNT, _total(spent), spent


def _scenes_in_range(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    span = _draw_span(book, rng)
    known = rng.choice(span.categories)
    others = [category for category in CATEGORIES if category != known]
    wanted = sorted([known, *rng.sample(others, rng.randint(1, 2))])
    spent = [t for t in span.spent if t.category in wanted]
    names = f"{', '.join(wanted[:-1])} and {wanted[-1]}"
    text = f"How much did I spend in the categories {names} together {span.words}?"
    return text + _AMOUNT, _total(spent), spent


def _total_in_range(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    span = _draw_span(book, rng)
    return f"How much did I spend in total {span.words}?" + _AMOUNT, _total(span.spent), span.spent


def _max_scene(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    span = _draw_span(book, rng)
    totals: Counter[str] = Counter()
    for t in span.spent:
        totals[t.category] += t.cents
    text = (
        f"In which category did I spend the most {span.words}? If several are equal, name them all"
        " in alphabetical order, separated by commas."
    )
    return text, top(totals), span.spent


def _max_frequency_date(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    span = _draw_span(book, rng)
    text = (
        f"On which date did I have the most transactions {span.words}? Answer with a date such as"
        " 2023-12-31. If several are equal, give them all, earliest first, separated by commas."
    )
    return text, top(Counter(t.day.isoformat() for t in span.spent)), span.spent


def _max_single_amount(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    span = _draw_span(book, rng)
    text = f"What was the largest single amount I spent {span.words}?"
    return text + _AMOUNT, _money(max(t.cents for t in span.spent)), span.spent


def _scene_on_date(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    session = rng.choice(book)
    category = rng.choice(sorted({t.category for t in session}))
    spent = [t for t in session if t.category == category]
    text = f"How much did I spend in the category {category} on {session[0].day}?"
    return text + _AMOUNT, _total(spent), spent


def _total_amount(book: Sequence[Sequence[Transaction]], rng: Random) -> Asked:
    spent = [t for session in book for t in session]
    return "How much did I spend in total over all sessions?" + _AMOUNT, _total(spent), spent


_ASK: Mapping[Kind, Callable[[Sequence[Sequence[Transaction]], Random], Asked]] = MappingProxyType(
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
    return _money(sum(t.cents for t in spent))


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"

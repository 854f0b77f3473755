"""The books of a ledger: what was spent, on which day, in which category. Whole cents.

Knows nothing of words or questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from types import MappingProxyType

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Dining": (
            *("breakfast", "lunch", "dinner", "coffee", "a takeaway", "drinks with a friend"),
            *("brunch", "ice cream", "a sandwich"),
        ),
        "Transportation": (
            *("a taxi", "petrol", "a train ticket", "parking", "a bus pass", "a rental bike"),
            *("a flight", "the motorway toll", "a car wash"),
        ),
        "Shopping": (
            *("shoes", "a jacket", "groceries", "kitchenware", "a phone case", "bedding"),
            *("a backpack", "detergent", "a new kettle"),
        ),
        "Entertainment": (
            *("a film", "a concert", "a video game", "a museum visit", "streaming"),
            *("a theatre ticket", "bowling", "a board game"),
        ),
        "Utilities": (
            *("electricity", "water", "gas", "the internet bill", "the phone bill", "heating"),
            *("the rubbish collection", "the chimney sweep"),
        ),
        "Medical": (
            *("the dentist", "medicine", "a check-up", "glasses", "physiotherapy"),
            *("a vaccination", "plasters", "the eye doctor"),
        ),
        "Education": (
            *("a textbook", "a language course", "exam fees", "an online class"),
            *("piano lessons", "a library card", "printing my thesis"),
        ),
        "Other": (
            *("a birthday gift", "a donation", "postage", "a haircut", "pet food"),
            *("a new key", "flowers", "a passport photo"),
        ),
    }
)
"""What is spent on, by category."""
FIRST_DAY = date(2023, 1, 1)
DAYS = 731  # to the end of 2024
CENTS = ((150, 2_000), (1_000, 10_000), (5_000, 60_000))


@dataclass(frozen=True)
class Transaction:
    """One amount spent, in whole cents."""

    session: int
    day: date
    category: str
    item: str
    cents: int

    @property
    def amount(self) -> str:
        """The amount as it is written."""
        return money(self.cents)


Book = Sequence[Sequence[Transaction]]
"""What was spent, session by session; never nothing in one."""


def draw_book(sessions: int, max_transactions: int, rng: Random) -> list[list[Transaction]]:
    """Draw sessions on days of their own, in order, each with at least one transaction."""
    # Beyond two years' worth of sessions the calendar goes on.
    offsets = rng.sample(range(DAYS if sessions <= DAYS else 2 * sessions), sessions)
    days = [FIRST_DAY + timedelta(days=offset) for offset in sorted(offsets)]
    return [_spend(i, day, max_transactions, rng) for i, day in enumerate(days)]


def _spend(session: int, day: date, most: int, rng: Random) -> list[Transaction]:
    spent = []
    for _ in range(rng.randint(1, most)):
        category = rng.choice(list(CATEGORIES))
        item = rng.choice(CATEGORIES[category])
        cents = rng.randint(*rng.choice(CENTS))
        spent.append(Transaction(session, day, category, item, cents))
    return spent


def money(cents: int) -> str:
    """Write an amount."""
    return f"{cents // 100}.{cents % 100:02d}"

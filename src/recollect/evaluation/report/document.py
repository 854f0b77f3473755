"""What a report is made of, before it is Markdown or HTML: sections of blocks.

Both are written from the same document, so they cannot show different numbers. Texts are plain:
the writer escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.display.numbers import estimate
from recollect.evaluation.results import Estimate


@dataclass(frozen=True)
class AgentName:
    """An agent's name, where its mark belongs beside it."""

    name: str


@dataclass(frozen=True)
class Bar:
    """A score with its interval."""

    score: Estimate
    drawn: bool = True
    """Also as a picture, where there is room for one."""


def scored(score: Estimate) -> str:
    """Write a score with its interval, and how much of it failed."""
    failed = f", {score.n_failed} failed" if score.n_failed else ""
    return f"{estimate(score.mean, score.low, score.high)}{failed}"


@dataclass(frozen=True)
class Best:
    """A value that stands out."""

    value: Value


@dataclass(frozen=True)
class Subtitled:
    """A word with a smaller one beneath it."""

    text: str
    note: str


Value = str | AgentName | Bar | Best | Subtitled
"""What a table's cell holds."""


@dataclass(frozen=True)
class Table:
    """Rows under a head; the first `names` columns are words, the others numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[Value]]
    names: int = 1
    caption: str = ""


@dataclass(frozen=True)
class Prose:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Notice:
    """Running text that must not be missed."""

    text: str


@dataclass(frozen=True)
class Code:
    """Text to be copied as it is."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Names and values, short ones."""

    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Charts:
    """Drawings side by side; `table` says the same in numbers where nothing can be drawn."""

    svgs: Sequence[str]
    table: Table
    legend: Sequence[str] = ()
    """Agents whose marks are used."""


@dataclass(frozen=True)
class Quote:
    """An answer to look at, under a line that names it: fields of model text and of data."""

    title: str
    fields: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown when asked for."""

    title: str
    blocks: Sequence[Block]
    open: bool = False


Block = Table | Prose | Notice | Code | Facts | Charts | Quote | Folded


@dataclass(frozen=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    subtitle: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section] = field(default_factory=tuple)
    agents: Sequence[str] = ()
    """In the order that decides their marks and colours."""

"""What reading a data set finds: how many questions of which kind, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Findings:
    """Filled in while a file is read."""

    categories: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    """What was corrected, left out or merely noticed, and where."""

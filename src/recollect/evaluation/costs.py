"""What episodes spent: tokens to build a memory and to answer from it, calls, time, size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from recollect.errors import UserError
from recollect.evaluation.records import Record
from recollect.evaluation.results import Cost


@dataclass(frozen=True)
class Prices:
    """Dollars per million tokens."""

    read: float
    written: float


def parse_prices(text: str) -> Prices | None:
    """Read "IN,OUT" in dollars per million tokens; an empty text gives no prices."""
    if not text:
        return None
    try:
        read, written = map(float, text.split(","))
        if min(read, written) >= 0:
            return Prices(read, written)
    except ValueError:
        pass
    raise UserError(
        f"{text!r} are not prices",
        "write dollars per million tokens, in and out: --prices 0.15,0.6",
    )


class Spending:
    """Adds up what the episodes of one cell spent."""

    def __init__(self) -> None:
        self._total = Cost()
        self._sizes = [0.0, 0.0]
        self._sized = 0
        self._seconds: list[float] = []  # added up at the end, exactly, whatever their order

    def add(self, record: Record) -> None:
        """Count one episode."""
        spent = {"memory": [0, 0, 0], "answer": [0, 0, 0]}
        for context in record["contexts"]:
            # Whatever is not an answer serves the memory.
            own = spent["answer" if context["role"] == "answer" else "memory"]
            for read, written, *_rest in context["turns"]:
                own[0] += read
                own[1] += written
                own[2] += 1
        for role, counted in record.get("told", {}).items():
            # What the server counted and charges for, where it says so.
            spent["answer" if role == "answer" else "memory"][:2] = counted
        total, build, answer = self._total, spent["memory"], spent["answer"]
        self._total = Cost(
            total.episodes + 1,
            total.questions + len(record["questions"]),
            total.build_read + build[0],
            total.build_written + build[1],
            total.build_calls + build[2],
            total.answer_read + answer[0],
            total.answer_written + answer[1],
            total.answer_calls + answer[2],
        )
        self._seconds.append(record["seconds"])
        if record["memory"]:
            self._sizes[0] += record["memory"]["tokens"]
            self._sizes[1] += record["memory"]["chars"]
            self._sized += 1

    def cost(self, prices: Prices | None) -> Cost:
        """Return the sum, and its price if prices are given."""
        total = self._total
        tokens, chars = (size / max(1, self._sized) for size in self._sizes)
        dollars = None
        if prices is not None:
            read = total.build_read + total.answer_read
            written = total.build_written + total.answer_written
            dollars = (read * prices.read + written * prices.written) / 1e6
        return replace(
            total,
            seconds=round(math.fsum(self._seconds), 3),
            memory_tokens=tokens,
            memory_chars=chars,
            dollars=dollars,
        )

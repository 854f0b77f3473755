"""Why answers fail, over all episodes of a folder: classified in the background, then counted.

Shares are of all answers, with intervals that respect tasks asked several times.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from recollect.errors import UserError
from recollect.foreign import one_line
from recollect.metrics import cluster_scores, score_interval
from recollect.view.causes import CAUSES
from recollect.view.films import trace
from recollect.view.rows import Row
from recollect.view.sources import Source

_DAMAGE = (UserError, OSError, ValueError, KeyError, TypeError, IndexError)


class Analysis:
    """What became of every answer of a source, as far as it is known."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.causes: dict[tuple[int, int], tuple[str, int, int | None]] = {}
        """By episode and question: the cause, the turns until it was asked, and the turn that
        lost it."""
        self.error = ""
        self._seen: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Classify what is not yet, without making anybody wait."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self.finish, daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Classify what is not yet."""
        generation = getattr(self.source, "generation", 0)
        if self._seen.get(-1) != generation:
            self.causes, self._seen = {}, {-1: generation}
        for n in dict.fromkeys(row["n"] for row in list(self.source.rows)):
            if n not in self._seen:
                self._classify(n)
                self._seen[n] = 1

    def _classify(self, n: int) -> None:
        try:
            found = trace(self.source.stored(n))
        except _DAMAGE as error:
            self.error = one_line(f"episode {n} cannot be read: {error}", 300)
            return
        for q, life in enumerate(found.lives):
            self.causes[n, q] = life.cause, life.asked, life.died

    @property
    def done(self) -> bool:
        """Whether all rows are classified."""
        return all(row["n"] in self._seen for row in self.source.rows)

    def length(self, row: Row) -> str:
        """Name how long a text is: the task set of an evaluation, else the turns of reading."""
        if self.source.kind == "evaluation":
            return str(row["set"])
        known = self.causes.get((row["n"], row["q"]))
        return f"{known[1]} turns" if known else ""

    def table(self) -> dict[str, Any]:
        """Count the causes: in all, by length, by step, by split or agent."""
        rows = [r for r in list(self.source.rows) if (r["n"], r["q"]) in self.causes]
        scored = [r for r in rows if r["score"] is not None]
        held_out = [r for r in scored if r["split"] != "train"]
        return {
            "done": self.done,
            "known": len(rows),
            "total": len(self.source.rows),
            "error": self.error,
            "causes": list(CAUSES),
            "all": self._by(scored, lambda _row: "all answers"),
            "split": self._by(scored, lambda row: row["split"]),
            "length": self._by(scored, self.length),
            "step": self._by(held_out, lambda row: row["step"]) if self._steps(scored) else [],
            "rows": {f"{n}.{q}": own[0] for (n, q), own in list(self.causes.items()) if own[0]},
            "lengths": {f"{r['n']}.{r['q']}": self.length(r) for r in rows},
        }

    @staticmethod
    def _steps(rows: Iterable[Row]) -> bool:
        return len({row["step"] for row in rows}) > 1

    def _by(self, rows: Sequence[Row], key: Any) -> list[dict[str, Any]]:
        parts: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            parts[key(row)].append(row)
        return [{"name": name, "n": len(parts[name]), "shares": self._shares(parts[name])}
                for name in sorted(parts, key=_natural)]  # fmt: skip

    def _shares(self, rows: Sequence[Row]) -> dict[str, Any]:
        found = {}
        for cause in CAUSES:
            hits = [self.causes[row["n"], row["q"]][0] == cause for row in rows]
            named = ((r["cluster"], f"{r['task']}#{r['q']}", float(h))
                     for r, h in zip(rows, hits, strict=True))  # fmt: skip
            share = score_interval(cluster_scores(named))
            found[cause] = {"count": sum(hits), "mean": share.mean, "low": share.low,
                            "high": share.high}  # fmt: skip
        return found


def _natural(name: Any) -> tuple[int, Any, str]:
    """Sort numbers as numbers, also at the start of a text."""
    text = str(name)
    digits = text.partition(" ")[0]
    return (0, int(digits), text) if digits.isdigit() else (1, 0, text)

"""What the page asks for, by address, as plain data. Knows nothing of a web server.

The server answers these addresses, and an exported page holds the answers to some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recollect.errors import UserError
from recollect.files import is_locked
from recollect.foreign import one_line
from recollect.packaging import version
from recollect.view import comparison, curves
from recollect.view.analysis import Analysis
from recollect.view.films import film
from recollect.view.siblings import siblings
from recollect.view.sources import RunSource, Source
from recollect.view.tokens import tokens
from recollect.view.weights import Weights
from recollect.view.whatif import Question, what_if

Query = Mapping[str, str]
GROUP = 64
"""Siblings that are shown side by side."""


class Answers:
    """Answers about some folders."""

    def __init__(self, sources: Sequence[Source], trust: bool = False) -> None:
        self.sources = {source.id: source for source in sources}
        self.analyses = {source.id: Analysis(source) for source in sources}
        self.weights = {s.id: Weights(s, trust) for s in sources if isinstance(s, RunSource)}
        self._by_name: dict[str, Callable[[Source, list[str], Query], Any]] = {
            "rows": self._rows,
            "curves": lambda source, _rest, _query: curves.curves(source),
            "metric": lambda source, _rest, query: curves.metric(source, query.get("name", "")),
            "lengths": lambda source, _rest, _query: curves.lengths(source),
            "causes": self._causes,
            "film": self._film,
            "siblings": self._siblings,
            "tokens": self._tokens,
        }

    def get(self, path: str, query: Query) -> Any:
        """Answer an address such as s/demo/film/3."""
        parts = path.strip("/").split("/")
        match parts:
            case ["state"]:
                return self.state()
            case ["settings"]:
                names = [name for name in query.get("of", "").split(",") if name]
                return curves.differences([self.source(name) for name in names])
            case ["compare"]:
                return self._compare(query)
            case ["s", id, name, *rest] if name in self._by_name:
                return self._by_name[name](self.source(id), rest, query)
        raise UserError(f"there is nothing at {one_line(path, 100)}", "reload the page")

    def source(self, id: str) -> Source:
        """Return a folder by its id, with all that has come since the last time."""
        if id not in self.sources:
            raise UserError(
                f"there is no folder {one_line(id, 100)!r}",
                f"choose from {', '.join(self.sources)}",
            )
        self.sources[id].refresh()
        return self.sources[id]

    def state(self) -> dict[str, Any]:
        """Return all folders, each with a stamp that changes when it does."""
        return {
            "version": version(),
            "sources": [self._described(source) for source in self.sources.values()],
        }

    def _described(self, source: Source) -> dict[str, Any]:
        source.refresh()
        config = source.config()
        return {
            "id": source.id,
            "name": source.name,
            "kind": source.kind,
            "folder": one_line(str(source.folder), 300),
            "stamp": source.stamp(),
            "episodes": len({row["n"] for row in source.rows}),
            "answers": len(source.rows),
            "choices": comparison.Side(source).choices,
            "notes": source.notes,
            "state": _state(source),
            "about": _about(source, config),
        }

    def _rows(self, source: Source, _rest: list[str], query: Query) -> dict[str, Any]:
        """Return the rows from `since` on; what is the same in many rows is sent once."""
        rows = source.rows
        generation = getattr(source, "generation", 0)
        since = _number(query.get("since", "0"))
        if str(generation) != query.get("generation", str(generation)):
            since = 0
        kept = ("cluster", "evidence", "hash")
        names = [name for name in rows[0] if name not in kept] if rows else []
        return {
            "generation": generation,
            "since": since,
            "names": names,
            "rows": [[row.get(name) for name in names] for row in rows[since:]],
        }

    def _causes(self, source: Source, _rest: list[str], _query: Query) -> dict[str, Any]:
        self.analyses[source.id].start()
        return self.analyses[source.id].table()

    def _film(self, source: Source, rest: list[str], _query: Query) -> dict[str, Any]:
        n = _number(*rest)
        own = film(source.stored(n))
        first = next((row for row in source.rows if row["n"] == n), {})
        own |= {name: first.get(name) for name in ("step", "split", "set")}
        return own | {"n": n, "siblings": len(source.group(n)), "kind": source.kind}

    def _siblings(self, source: Source, rest: list[str], _query: Query) -> dict[str, Any]:
        numbers = source.group(_number(*rest))[:GROUP]
        found = siblings(numbers, [source.stored(n) for n in numbers])
        for own in found["rollouts"]:
            row = next(row for row in source.rows if row["n"] == own["n"])
            own["name"] = f"rollout {row['rollout']}" if source.kind == "run" else row["split"]
        return found

    def _tokens(self, source: Source, rest: list[str], query: Query) -> dict[str, Any]:
        if not isinstance(source, RunSource):
            raise UserError(
                "an evaluation keeps no tokens and no probabilities", "look at a training run"
            )
        n, context, turn = map(_number, rest)
        compare = query.get("compare") == "1"
        return tokens(source, self.weights[source.id], n, context, turn, compare)

    def _compare(self, query: Query) -> dict[str, Any]:
        first, second = (
            comparison.Side(self.source(query.get(side, "")), query.get(f"{side}_is", ""))
            for side in ("a", "b")
        )
        return comparison.compare(first, second)

    def what_if(self, id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Run what-if rollouts."""
        source = self.source(id)
        if not isinstance(source, RunSource):
            raise UserError(
                "an evaluation keeps no tokens to continue from",
                "ask from a training run's episode",
            )
        memory = asked.get("memory")
        mode = asked.get("mode", "roll")
        if mode not in ("ask", "roll") or not (memory is None or isinstance(memory, str)):
            raise UserError("the request cannot be read", "reload the page")
        numbers = {name: int(asked.get(name, 0)) for name in ("n", "turn", "number", "again")}
        times = int(asked.get("times", 8))
        question = Question(**numbers, times=times, mode=mode, memory=memory)
        return what_if(self.weights[id], question)


def _number(text: str = "", *rest: str) -> int:
    if rest or not text.isdigit() or len(text) > 12:
        raise UserError("the address cannot be read", "go back to the list")
    return int(text)


def _state(source: Source) -> str:
    if is_locked(source.folder):
        return "running"
    if source.kind == "run" and not (source.folder / "model" / "config.json").is_file():
        return "stopped"
    return "finished"


def _about(source: Source, config: Mapping[str, Any]) -> dict[str, str]:
    """Say in a few words what a folder is about."""
    if source.kind == "run":
        found = {name: _class(config.get(name)) for name in ("agent", "tasks", "reward")}
        return found | {"seed": str(config.get("seed", "")), "steps": str(config.get("steps", ""))}
    return {
        "agents": one_line(", ".join(config.get("agents", ())), 200),
        "tasks": one_line(", ".join(config.get("sets", ())), 200),
    }


def _class(part: Any) -> str:
    name = part.get("class", "") if isinstance(part, dict) else part
    return one_line(str(name).rpartition(":")[2], 100)

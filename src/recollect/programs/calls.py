"""Calls: what a function may be given, and the functions that reach out of the program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from recollect.programs.budget import Budget, ProgramError
from recollect.programs.functions import Function
from recollect.programs.host import Host
from recollect.programs.showing import shown
from recollect.programs.values import Value, items, text_of, whole

if TYPE_CHECKING:
    from recollect.programs.expressions import Expressions

MOST_FOUND = 100
"""Passages that one search returns."""


class Answered(Exception):
    """Ends a program with an answer."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


@lru_cache(maxsize=1024)
def _shape(function: Function) -> tuple[int, float, frozenset[str]]:
    """Return how many arguments a function needs and takes, and which can be named."""
    least, most, named = 0, 0.0, set()
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.VAR_POSITIONAL:
            most = float("inf")
        elif one.kind is one.VAR_KEYWORD:
            named |= {"key", "reverse"}
        elif one.kind is one.KEYWORD_ONLY:
            named.add(one.name)
        else:
            most += 1
            least += one.default is one.empty
            named |= {one.name} if one.default is not one.empty else set()
    return least, most, frozenset(named)


def arguments(
    name: str, function: Function, first: int, values: Sequence[Value], named: Mapping[str, Value]
) -> None:
    """Refuse a call that a function does not take; `first` arguments are not the program's."""
    least, most, known = _shape(function)
    if not named.keys() <= known:
        odd = next(one for one in named if one not in known)
        raise ProgramError(f"{name} takes no {odd}")
    given = first + len(values)
    if given > most or given < least:
        need = f"at least {least - first}" if given < least else f"at most {int(most) - first}"
        raise ProgramError(f"{name} takes {need} arguments, not {len(values)}")
    inner = list(inspect.signature(function).parameters)[:given] if named else ()
    if any(one in inner for one in named):
        raise ProgramError(f"{name} is given an argument twice")


def host_functions(own: Expressions, host: Host) -> dict[str, Function]:
    """Return the functions that one run has: its patterns, its output, and its host's."""
    budget, patterns = own.budget, own.patterns

    def ask(_budget: Budget, text: Value, question: Value) -> Value:
        words = text_of(question, "the question")
        if type(text) is list:
            return [ask(_budget, one, words) for one in items(text, budget)]
        part = text_of(text, "the part that is asked about")
        budget.step(10 + (len(part) >> 4))
        return host.ask(part, words)

    def search(_budget: Budget, query: Value, most: Value = 5) -> Value:
        words = text_of(query, "the query")
        count = min(MOST_FOUND, max(1, whole(most, "the number of passages")))
        budget.step(1000 + len(words))
        found = host.search(words, count)
        budget.take(sum(4 * len(one) + 56 for one in found))
        return found

    def note(_budget: Budget, value: Value) -> None:
        text = shown(value, budget)
        budget.take(4 * len(text) + 56)
        host.noted.append(text)

    def recall(_budget: Budget, word: Value = "") -> Value:
        found = host.recall(text_of(word, "the word"))
        budget.take(sum(4 * len(one) + 56 for one in found))
        return found

    def answer(_budget: Budget, value: Value) -> None:
        raise Answered(value)

    def say(_budget: Budget, *values: Value) -> None:
        own.show(*values)

    def sub(_budget: Budget, pattern: Value, new: Value, text: Value) -> Value:
        return patterns.sub(pattern, new, text)

    def bare(function: Callable[[Value, Value], Value]) -> Function:
        """Let a pattern's function take the budget that all others take."""
        return lambda _budget, pattern, text: function(pattern, text)

    regular = {
        "findall": bare(patterns.findall),
        "finditer": bare(patterns.finditer),
        "sub": sub,
    }
    return {
        "ask": ask,
        "search": search,
        "note": note,
        "recall": recall,
        "answer": answer,
        "print": say,
        **regular,
        "match": bare(patterns.match),
        **{f"re.{name}": function for name, function in regular.items()},
        "re.search": bare(patterns.match),
        "re.match": bare(patterns.match),
        "re.split": bare(patterns.cut),
    }

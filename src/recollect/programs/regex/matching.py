"""Searching: a deterministic automaton finds where a match ends, another where it begins.

Their states are made while they are needed (as in RE2), so that a text is read once, a character at
a time. Where groups are wanted, the match alone is read again, with all threads side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from recollect.programs.budget import Budget
from recollect.programs.regex.automaton import Automaton, Kind, Pattern, compiled, holds
from recollect.programs.regex.syntax import of_kind

FINAL = "\n\n"
"""Read in place of a line end that ends the text; no character looks like this."""
BLOCK = 4096
"""Characters that are read before their work is counted."""
MOST_CELLS = 1 << 18
"""Places in all states that are held; beyond them they are made anew."""
Span = tuple[int, int]
Groups = list[Span | None]
_TRY = -1
"""A thread that begins a match at every place."""


@dataclass(slots=True)
class State:
    """The threads that are alive, best first, and what was read last."""

    threads: tuple[int, ...]
    side: Kind
    matched: bool
    """Whether a match ended before the character that led here."""
    next: dict[str, State] = field(default_factory=dict)


class Scanner:
    """One direction of a pattern; its states belong to one program, as does their cost."""

    def __init__(self, automaton: Automaton, budget: Budget, *, backwards: bool) -> None:
        self.automaton = automaton
        self.budget = budget
        self.backwards = backwards
        self.states: dict[tuple[tuple[int, ...], Kind, bool], State] = {}
        self.cells = 0

    def begin(self, side: Kind) -> State:
        """Return the state before anything is read."""
        side = side if self.automaton.looks else "other"
        return self.state((self.automaton.start if self.backwards else _TRY,), side, False)

    def state(self, threads: tuple[int, ...], side: Kind, matched: bool) -> State:
        """Return a state, made if it is new."""
        key = (threads, side, matched)
        found = self.states.get(key)
        if found is None:
            if self.cells > MOST_CELLS:
                self.states, self.cells = {}, 0
            self.cells += len(threads) + 8
            self.budget.take(8 * len(threads) + 400)
            found = self.states[key] = State(threads, side, matched)
        return found

    def after(self, state: State, symbol: str) -> State:
        """Return the state after a character (or after the text's end, an empty symbol)."""
        self.budget.take(100)
        kind: Kind = kind_of(symbol, self.backwards) if self.automaton.looks else "other"
        threads, matched = self.closure(state, kind)
        code, char = self.automaton.code, symbol[:1]
        ahead: dict[int, None] = {}
        for thread in threads if char else ():
            if thread == _TRY:
                ahead[_TRY] = None
            else:
                chars = code[thread].chars
                if chars is not None and chars.has(char):
                    ahead[code[thread].to[0]] = None
        found = self.state(tuple(ahead), kind, matched)
        if len(state.next) < BLOCK:
            state.next[symbol] = found
        return found

    def closure(self, state: State, kind: Kind) -> tuple[list[int], bool]:
        """Follow all threads to what they read next; forwards, the best match ends the others."""
        code, start = self.automaton.code, self.automaton.start
        before, after = (kind, state.side) if self.backwards else (state.side, kind)
        left, seen, reading = list(reversed(state.threads)), set(), []
        matched = False
        while left:
            at = left.pop()
            if at in seen:
                continue
            seen.add(at)
            if at == _TRY:
                # The thread itself is worse than the match that it begins.
                left.extend((-2, start))
                continue
            if at == -2:
                reading.append(_TRY)
                continue
            one = code[at]
            if one.op == "char":
                reading.append(at)
            elif one.op == "match":
                matched = True
                if not self.backwards:
                    break
            elif one.op != "assert" or holds(one.kind, before, after):
                left.extend(reversed(one.to))
        self.budget.step(1 + 3 * len(seen))
        return reading, matched


class Matcher:
    """A pattern, as one program searches with it."""

    def __init__(self, pattern: str, budget: Budget) -> None:
        self.pattern: Pattern = compiled(pattern)
        budget.step(self.pattern.size)
        self.budget = budget
        self._forwards = Scanner(self.pattern.forwards, budget, backwards=False)
        self._backwards = Scanner(self.pattern.backwards, budget, backwards=True)

    @property
    def groups(self) -> int:
        """How many groups are reported."""
        return self.pattern.forwards.groups

    def search(self, text: str, at: int = 0) -> Span | None:
        """Return where the first match from a place on begins and ends."""
        end = self._end(text, at)
        if end is None:
            return None
        return self._start(text, at, end), end

    def every(self, text: str) -> Iterator[Span]:
        """Yield all matches that do not overlap; an empty one moves on by a character."""
        at = 0
        while at <= len(text):
            self.budget.step(10)
            found = self.search(text, at)
            if found is None:
                return
            yield found
            at = found[1] + (found[0] == found[1])

    def _end(self, text: str, at: int) -> int | None:
        scanner, size = self._forwards, len(text)
        first = scanner.begin(beside(text, at - 1))
        prefix, state, found = self.pattern.prefix, first, None
        final = size - 1 if scanner.automaton.looks and text.endswith("\n") else size
        while at < size:
            if prefix and (state is first or state.threads == (_TRY,)):
                ahead = text.find(prefix, at)
                self.budget.step(((ahead if ahead >= 0 else size) - at >> 6) + 1)
                if ahead < 0:
                    return None
                if ahead > at:
                    at = ahead
                    state = scanner.begin(beside(text, at - 1))
            begun, stop = at, min(at + BLOCK, size)
            while at < stop:
                symbol = text[at] if at != final else FINAL
                state = state.next.get(symbol) or scanner.after(state, symbol)
                if state.matched:
                    found = at
                if not state.threads:
                    break
                at += 1
                if prefix and state.threads == (_TRY,):
                    break
            self.budget.step((at - begun >> 2) + 1)
            if not state.threads:
                return found
        return size if scanner.after(state, "").matched else found

    def _start(self, text: str, least: int, end: int) -> int:
        """Read backwards from the end of a match to the first place where it can begin."""
        scanner = self._backwards
        state = scanner.begin(beside(text, end))
        found, at = end, end
        while at > least:
            begun, stop = at, max(at - BLOCK, least)
            while at > stop:
                symbol = text[at - 1]
                if symbol == "\n" and at == len(text):
                    symbol = FINAL
                state = state.next.get(symbol) or scanner.after(state, symbol)
                if state.matched:
                    found = at
                if not state.threads:
                    break
                at -= 1
            self.budget.step((begun - at >> 2) + 1)
            if not state.threads:
                return found
        symbol = text[at - 1] if at else ""
        return at if scanner.after(state, symbol).matched else found

    def spans(self, text: str, match: Span) -> Groups:
        """Return the places of a match and of its groups."""
        automaton = self.pattern.forwards
        if not automaton.groups:
            return [match]
        start, end = match
        threads: list[tuple[int, tuple[int, ...]]] = [
            (automaton.start, (-1,) * (2 * automaton.groups + 2))
        ]
        best: tuple[int, ...] = ()
        for at in range(start, end + 1):
            before, after = beside(text, at - 1), beside(text, at)
            reading, done = self._followed(threads, at, (before, after))
            best = done or best
            threads = []
            for thread, places in reading if at < end else ():
                one = automaton.code[thread]
                if one.chars is not None and one.chars.has(text[at]):
                    threads.append((one.to[0], places))
        pairs = zip(best[2::2], best[3::2], strict=True)
        return [match, *((a, b) if a >= 0 and b >= 0 else None for a, b in pairs)]

    def _followed(
        self, threads: list[tuple[int, tuple[int, ...]]], at: int, sides: tuple[Kind, Kind]
    ) -> tuple[list[tuple[int, tuple[int, ...]]], tuple[int, ...]]:
        """Follow all threads, with the places they noted; also those of the best match."""
        code = self.pattern.forwards.code
        left, seen, reading = list(reversed(threads)), set(), []
        while left:
            thread, places = left.pop()
            if thread in seen:
                continue
            seen.add(thread)
            one = code[thread]
            if one.op == "char":
                reading.append((thread, places))
            elif one.op == "match":
                self.budget.step(1 + len(seen))
                return reading, places
            elif one.op == "save":
                self.budget.step(1 + len(places) // 8)
                noted = (*places[: one.slot], at, *places[one.slot + 1 :])
                left.append((one.to[0], noted))
            elif one.op != "assert" or holds(one.kind, *sides):
                left.extend((to, places) for to in reversed(one.to))
        self.budget.step(1 + len(seen))
        return reading, ()


def kind_of(symbol: str, backwards: bool) -> Kind:
    """Tell what a symbol is to a place beside it; none is the end that is read towards."""
    if not symbol:
        return "start" if backwards else "end"
    if symbol == FINAL:
        return "final"
    if symbol == "\n":
        return "line"
    return "word" if of_kind(symbol, "w") else "other"


def beside(text: str, at: int) -> Kind:
    """Tell what is at a place in a text, for the places beside it."""
    if at < 0:
        return "start"
    if at >= len(text):
        return "end"
    return kind_of(FINAL if text[at] == "\n" and at == len(text) - 1 else text[at], False)

"""A pattern as a nondeterministic automaton: a list of instructions (Thompson's construction)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from recollect.programs.budget import ProgramError
from recollect.programs.regex.syntax import (
    Assertion,
    Chars,
    Either,
    Group,
    Node,
    Repeat,
    Sequence,
    parse,
)

MOST = 2000
"""Parts of a pattern, once repetitions are written out."""

Kind = Literal["start", "line", "final", "word", "other", "end"]
"""What is beside a place in the text; `final` is a line end that ends the text."""


@dataclass
class Instruction:
    """`char` reads one; `split` tries `to` in order; `save` notes a place; `assert` looks."""

    op: Literal["char", "split", "save", "assert", "match"]
    to: list[int] = field(default_factory=list)
    chars: Chars | None = None
    slot: int = 0
    kind: str = ""


@dataclass(frozen=True)
class Automaton:
    """Instructions, and where to start."""

    code: list[Instruction]
    start: int
    groups: int
    names: dict[str, int]
    looks: bool
    """Whether it looks at places, so that what is beside them matters."""


@dataclass(frozen=True)
class Pattern:
    """A pattern, ready to be searched: forwards with its groups, and backwards."""

    forwards: Automaton
    backwards: Automaton
    prefix: str
    """What every match begins with; may be empty."""

    @cached_property
    def size(self) -> int:
        """The work of one step, at most."""
        return len(self.forwards.code)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    """Parse and lay out a pattern."""
    found = parse(pattern)
    forwards = _Writer(found.groups).automaton(found.node, found.names)
    backwards = _Writer(0, reverse=True).automaton(found.node, {})
    return Pattern(forwards, backwards, _prefix(found.node))


def holds(assertion: str, before: Kind, after: Kind) -> bool:
    """Tell whether a place is as asserted."""
    if assertion in ("^", "A"):
        return before == "start"
    if assertion == "Z":
        return after == "end"
    if assertion == "$":
        return after in ("end", "final")
    if assertion == "(":
        return before in ("start", "line", "final")
    if assertion == ")":
        return after in ("end", "line", "final")
    return ((before == "word") != (after == "word")) is (assertion == "b")


def _prefix(node: Node) -> str:
    """Return the letters that a match must begin with."""
    match node:
        case Chars(ranges=((low, high),), kinds="", negated=False, ignore_case=False):
            return low if low == high else ""
        case Sequence(parts=parts):
            found = ""
            for part in parts:
                if isinstance(part, Assertion):
                    continue
                own = _prefix(part) if isinstance(part, Chars) else ""
                if not own:
                    return found
                found += own
            return found
    return ""


class _Writer:
    """Writes instructions from the last to the first: each knows what follows it."""

    def __init__(self, groups: int, reverse: bool = False) -> None:
        self.code: list[Instruction] = [Instruction("match")]
        self.groups = groups
        self.reverse = reverse
        self.looks = False
        self.writes = 0

    def automaton(self, node: Node, names: dict[str, int]) -> Automaton:
        start = self.write(node, 0)
        return Automaton(self.code, start, self.groups, names, self.looks)

    def add(self, instruction: Instruction) -> int:
        self.code.append(instruction)
        return len(self.code) - 1

    def write(self, node: Node, then: int) -> int:
        """Write a node that continues at `then`; return where it begins."""
        self.writes += 1  # a part that needs no instruction is not written without end, either
        if self.writes > MOST:
            raise ProgramError(f"the pattern is too large: its repetitions come to over {MOST}")
        match node:
            case Chars():
                return self.add(Instruction("char", [then], chars=node))
            case Assertion(kind=kind):
                self.looks = True
                return self.add(Instruction("assert", [then], kind=kind))
            case Sequence(parts=parts):
                for part in parts if self.reverse else reversed(parts):
                    then = self.write(part, then)
                return then
            case Either(parts=parts):
                return self.add(Instruction("split", [self.write(part, then) for part in parts]))
            case Group(part=part, number=number) if self.groups:
                end = self.add(Instruction("save", [then], slot=2 * number + 1))
                return self.add(Instruction("save", [self.write(part, end)], slot=2 * number))
            case Group(part=part):
                return self.write(part, then)
        return self.repeat(node, then)

    def repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self.add(Instruction("split"))
            body = self.write(node.part, loop)
            self.code[loop].to = [body, then] if node.greedy else [then, body]
            at = loop
        else:
            at = then
            for _ in range(node.most - node.least):
                body = self.write(node.part, at)
                at = self.add(Instruction("split", [body, then] if node.greedy else [then, body]))
        for _ in range(node.least):
            at = self.write(node.part, at)
        return at

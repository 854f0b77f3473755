"""The syntax of a regular expression: Python's, without what no automaton can match.

Backreferences, lookaround and possessive quantifiers are refused in a line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.programs.budget import ProgramError

LONGEST = 1000
"""Characters of a pattern."""
DEEPEST = 40
"""Groups inside one another."""
MOST_REPEATS = 1000

Ranges = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    ranges: Ranges = ()
    kinds: str = ""
    """Any of d, w, s and their opposites D, W, S; a dot is all but a line end, `*` is all."""
    negated: bool = False
    ignore_case: bool = False

    def has(self, char: str) -> bool:
        """Tell whether a character is in the set."""
        found = self._found(char)
        if not found and self.ignore_case:
            found = self._found(char.lower()) or self._found(char.upper())
        return found is not self.negated

    def _found(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) or any(
            of_kind(char, kind) for kind in self.kinds
        )


def of_kind(char: str, kind: str) -> bool:
    """Tell whether a character is a digit, of a word, a space, or none of one of these."""
    if kind == "*":
        return True
    if kind == ".":
        return char != "\n"
    test = {"d": char.isdecimal(), "w": char.isalnum() or char == "_", "s": char.isspace()}
    return test[kind.lower()] is kind.islower()


@dataclass(frozen=True)
class Assertion:
    """A place: `^`, `$`, `b` or `B`, `A` or `Z`, and the line-wise `(` and `)`."""

    kind: str


@dataclass(frozen=True)
class Sequence:
    """One after another."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    """The first that fits."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """As often as possible, or as rarely."""

    part: Node
    least: int
    most: int | None
    greedy: bool


@dataclass(frozen=True)
class Group:
    """What is reported by its number."""

    part: Node
    number: int


Node = Chars | Assertion | Sequence | Either | Repeat | Group


@dataclass(frozen=True)
class Parsed:
    """A pattern, and how many groups it has."""

    node: Node
    groups: int
    names: dict[str, int] = field(default_factory=dict)


def parse(pattern: str) -> Parsed:
    """Read a pattern; refuse what is malformed or not supported."""
    if len(pattern) > LONGEST:
        raise ProgramError(f"a pattern has at most {LONGEST} characters")
    parser = _Parser(pattern)
    node = parser.either(0)
    if parser.at < len(pattern):
        raise ProgramError("the pattern has a ) too many")
    return Parsed(node, parser.groups, parser.names)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


class _Parser:
    """Recursive descent; groups inside one another are limited."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups = 0
        self.names: dict[str, int] = {}
        self.flags = ""

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def next(self) -> str:
        if self.at >= len(self.pattern):
            raise ProgramError("the pattern ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def eat(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def either(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise ProgramError(f"a pattern has at most {DEEPEST} groups inside one another")
        parts = [self.sequence(depth)]
        while self.eat("|"):
            parts.append(self.sequence(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            part = self.atom(depth)
            if part is not None:
                parts.append(self.repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeated(self, part: Node) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return part
        greedy = not self.eat("?")
        if self.eat("+"):
            raise ProgramError("possessive quantifiers are not supported in patterns")
        node = Repeat(part, *bounds, greedy)
        if self.peek() in ("*", "+", "?") or (self.peek() == "{" and self.bounds() is not None):
            raise ProgramError("the pattern repeats a repetition: put a group around it")
        return node

    def bounds(self) -> tuple[int, int | None] | None:
        """Return how often what came before is repeated; None if the pattern does not say."""
        for mark, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.eat(mark):
                return found
        end = self.pattern.find("}", self.at)
        if self.peek() != "{" or end < 0:
            return None
        low, comma, high = self.pattern[self.at + 1 : end].partition(",")
        if not all(text == "" or (text.isascii() and text.isdigit()) for text in (low, high)):
            return None  # as in Python, it then is a brace
        if not low and not high:
            return None
        if max(len(low), len(high)) > 4 or max(int(low or 0), int(high or 0)) > MOST_REPEATS:
            raise ProgramError(f"a pattern repeats at most {MOST_REPEATS} times")
        self.at = end + 1
        least = int(low or 0)
        most = (int(high) if high else None) if comma else least
        if most is not None and most < least:
            raise ProgramError("the pattern repeats at most less often than at least")
        return least, most

    def atom(self, depth: int) -> Node | None:
        char = self.next()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return self.char_set()
        if char == ".":
            return Chars(kinds="*" if "s" in self.flags else ".")
        if char in "^$":
            return Assertion({"^": "(", "$": ")"}[char] if "m" in self.flags else char)
        if char in "*+?":
            raise ProgramError("the pattern has nothing to repeat")
        if char == "\\":
            return self.escaped()
        return self.literal(char)

    def literal(self, char: str) -> Chars:
        return Chars(((char, char),), ignore_case="i" in self.flags)

    def group(self, depth: int) -> Node | None:
        number = 0
        if self.eat("?"):
            if self.eat("P<"):
                end = self.pattern.find(">", self.at)
                name = self.pattern[self.at : end] if end >= 0 else ""
                if not name.isidentifier() or name in self.names:
                    raise ProgramError("the pattern names a group badly, or twice")
                self.at = end + 1
                self.names[name] = self.groups + 1
                number = self.numbered()
            elif self.flagged():
                return None
            elif not self.eat(":"):
                raise ProgramError("lookaround and backreferences are not supported in patterns")
        else:
            number = self.numbered()
        node = self.either(depth + 1)
        if not self.eat(")"):
            raise ProgramError("the pattern has a ( without a )")
        return Group(node, number) if number else node

    def flagged(self) -> bool:
        end = self.pattern.find(")", self.at)
        flags = self.pattern[self.at : end] if end >= 0 else ""
        if not flags or not set(flags) <= set("ims"):
            return False
        if self.at != 2:
            raise ProgramError("flags are given at the start of a pattern: (?i)")
        self.flags, self.at = flags, end + 1
        return True

    def numbered(self) -> int:
        self.groups += 1
        return self.groups

    def escaped(self) -> Node:
        char = self.next()
        if char in "dwsDWS":
            return Chars(kinds=char)
        if char in "bBAZ":
            return Assertion(char)
        if char.isdigit() and char != "0":
            raise ProgramError("backreferences are not supported in patterns")
        return self.literal(self.spelt(char))

    def spelt(self, char: str) -> str:
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in "xu":
            digits = "".join(self.next() for _ in range(2 if char == "x" else 4))
            if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ProgramError(f"the pattern has a bad \\{char}")
            return chr(int(digits, 16))
        if char.isalnum():
            raise ProgramError(f"the pattern has an unknown \\{char}")
        return char

    def char_set(self) -> Chars:
        negated = self.eat("^")
        ranges: list[tuple[str, str]] = []
        kinds = ""
        first = True
        while first or self.peek() != "]":
            first = False
            low, kind = self.member()
            kinds += kind
            if kind:
                continue
            if self.peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high, kind = self.member()
                if kind or high < low:
                    raise ProgramError("the pattern has a bad range of characters")
                ranges.append((low, high))
            else:
                ranges.append((low, low))
        self.at += 1
        return Chars(tuple(ranges), kinds, negated, "i" in self.flags)

    def member(self) -> tuple[str, str]:
        """Return a character, or a kind of characters."""
        char = self.next()
        if char != "\\":
            return char, ""
        char = self.next()
        if char in "dwsDWS":
            return "", char
        return ("\b", "") if char == "b" else (self.spelt(char), "")

"""The functions of the language that take a regular expression: findall, search in a text, sub.

The matchers of a program are kept as long as it runs, so that the same search costs the same.
"""

from __future__ import annotations

from recollect.programs.budget import Budget, ProgramError
from recollect.programs.regex.matching import Groups, Matcher, Span
from recollect.programs.values import Match, Value, text_of, whole


class Patterns:
    """The patterns that one program uses."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._matchers: dict[str, Matcher] = {}

    def matcher(self, pattern: Value) -> Matcher:
        """Return the matcher of a pattern."""
        pattern = text_of(pattern, "the pattern")
        if pattern not in self._matchers:
            self.budget.take(2000)
            self._matchers[pattern] = Matcher(pattern, self.budget)
        return self._matchers[pattern]

    def findall(self, pattern: Value, text: Value) -> list[Value]:
        """Return all matches: texts, or tuples of the groups if there are several."""
        matcher, text = self.matcher(pattern), text_of(text, "what is searched")
        found: list[Value] = []
        for match in matcher.every(text):
            texts = self._texts(text, matcher.spans(text, match), "")
            found.append(texts[0] if len(texts) == 1 else _groups(texts))
        return found

    def finditer(self, pattern: Value, text: Value) -> list[Value]:
        """Return all matches with their places."""
        matcher, text = self.matcher(pattern), text_of(text, "what is searched")
        return [self._match(matcher, text, match) for match in matcher.every(text)]

    def match(self, pattern: Value, text: Value) -> Match | None:
        """Return the first match anywhere in a text."""
        matcher, text = self.matcher(pattern), text_of(text, "what is searched")
        found = matcher.search(text)
        return self._match(matcher, text, found) if found else None

    def sub(self, pattern: Value, new: Value, text: Value) -> str:
        """Put a text in place of every match; \\1 in it is no group."""
        matcher, text = self.matcher(pattern), text_of(text, "what is searched")
        new = text_of(new, "what is put in place")
        pieces, at = [], 0
        for start, end in matcher.every(text):
            self.budget.take(4 * (start - at + len(new)) + 112)
            pieces += [text[at:start], new]
            at = end
        self.budget.take(8 * (len(text) - at))
        return "".join([*pieces, text[at:]])

    def cut(self, pattern: Value, text: Value) -> list[str]:
        """Cut a text wherever a pattern matches."""
        matcher, text = self.matcher(pattern), text_of(text, "what is cut")
        pieces, at = [], 0
        for start, end in matcher.every(text):
            if start == end:
                continue
            self.budget.take(4 * (start - at) + 56)
            pieces.append(text[at:start])
            at = end
        self.budget.take(4 * (len(text) - at) + 56)
        return [*pieces, text[at:]]

    def _match(self, matcher: Matcher, text: str, match: Span) -> Match:
        spans = matcher.spans(text, match)
        names = matcher.pattern.forwards.names
        return Match(self._texts(text, spans, None), list(spans), names)

    def _texts(self, text: str, spans: Groups, missing: str | None) -> list[Value]:
        self.budget.take(sum(4 * (s[1] - s[0]) + 56 for s in spans if s) + 112)
        return [missing if s is None else text[s[0] : s[1]] for s in spans]


def _groups(texts: list[Value]) -> Value:
    """Return what findall reports of a match with groups."""
    return texts[1] if len(texts) == 2 else tuple(texts[1:])


def group(match: Match, number: Value = 0) -> Value:
    """Return a group of a match by its number or name."""
    if type(number) is str:
        if number not in match.names:
            raise ProgramError(f"the pattern has no group {number[:40]!r}")
        return match.texts[match.names[number]]
    at = whole(number, "the group")
    if not 0 <= at < len(match.texts):
        raise ProgramError(f"the pattern has no group {at}")
    return match.texts[at]

"""Patterns against Python's own, and what is made to explode."""

from __future__ import annotations

import re
from random import Random

import pytest

from recollect.programs.budget import Budget, Limits, ProgramError
from recollect.programs.regex.matching import Matcher


def grown(rng: Random, depth: int = 0) -> str:
    """Grow a pattern whose parts are never empty, where our rules for empty matches differ."""
    kind = rng.random()
    if depth > 3 or kind < 0.4:
        return rng.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"\s", "ab", "[a-c1]"])
    one, two = grown(rng, depth + 1), grown(rng, depth + 1)
    if kind < 0.55:
        return one + two
    if kind < 0.65:
        return f"(?:{one}|{two})"
    if kind < 0.8:
        return f"(?:{one}){rng.choice(['+', '{1,2}', '{2}', '+?'])}{two}"
    if kind < 0.9:
        return f"({one})"
    before, after = rng.choice([r"\b", "^", ""]), rng.choice([r"\b", "$", "", r"\B", "?b", "*a"])
    return f"{before}(?:{one}){after}"


def test_patterns_match_as_pythons_do():
    rng = Random(0)
    for _ in range(400):
        pattern = rng.choice(["", "", "(?m)", "(?i)", "(?s)"]) + grown(rng)
        text = "".join(rng.choice("aabbc1 \nB") for _ in range(rng.randrange(14)))
        matcher = Matcher(pattern, Budget(Limits()))
        wanted = list(re.finditer(pattern, text))
        found = list(matcher.every(text))
        assert found == [match.span() for match in wanted], (pattern, text)
        for match, span in zip(wanted, found, strict=True):
            groups = [
                match.span(i) if match.span(i)[0] >= 0 else None for i in range(match.re.groups + 1)
            ]
            assert matcher.spans(text, span) == groups, (pattern, text)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "([a-z]+)*!!", "(x+x+)+y"])
def test_work_grows_with_the_text_and_not_faster(pattern):
    spent = []
    for size in (1000, 10_000):
        budget = Budget(Limits())
        assert Matcher(pattern, budget).search("a" * size + "!") is None
        spent.append(budget.steps)
    assert spent[1] < 12 * spent[0]


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(a)\\1",
        "(?<=a)b",
        "a++",
        "[",
        "(",
        ")",
        "[z-a]",
        "\\",
        "*",
        "(?:(?:){999}){999}",
        "a{999}{999}",
        "(" * 60 + ")" * 60,
    ],
)
def test_what_no_automaton_matches_is_refused_in_a_line(pattern):
    with pytest.raises(ProgramError) as caught:
        Matcher(pattern, Budget(Limits()))
    assert "\n" not in str(caught.value)

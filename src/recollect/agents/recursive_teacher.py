"""A teacher for the language: the program that solves a question of a task made from a seed.

It knows how `recall`, `ledger` and RULER's aggregations are worded, and nothing of their answers. A
warm-up shows its programs; a family of your own adds pairs of a pattern and a program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Solver = tuple[str, str]
"""A pattern that finds a kind of question, and its program with the pattern's groups as {name}."""

_FACTS = """\
hits = findall(r"{person}'s favourite {category} is now (\\w+)|favourite {category}, {person} has \
settled on (\\w+)|{person} said that the best {category} of all is (\\w+)|favourite {category}, \
{person} answered (\\w+)", text)
found = ["".join(h) for h in hits]
"""
_ROWS = """\
rows = []
for c in chunks:
    amounts = findall(r"\\$(\\d+\\.\\d\\d)", c)
    kinds = findall(r"\\b(Dining|Transportation|Shopping|Entertainment|Utilities|Medical|Education\
|Other)\\b", c)
    for a, k in zip(amounts, kinds):
        rows.append((c[1:c.find("]")], k, round(100 * float(a))))
"""
_SPAN = 'rows = [r for r in rows if "{start}" <= r[0] and r[0] <= "{end}"]\n'
_MONEY = 'answer(f"{{sum([r[2] for r in rows]) / 100:.2f}}")'
_MOST = """\
totals = {{}}
for r in rows:
    totals[r[{by}]] = totals.get(r[{by}], 0) + {what}
most = max(totals.values())
answer(sorted([k for k in totals if totals[k] == most]))"""
_DAYS = r"from (?P<start>\S+) to (?P<end>\S+) \(both"

SOLVERS: tuple[Solver, ...] = (
    (
        r"What was the first favourite (?P<category>\w+) that (?P<person>\w+) named",
        _FACTS + "answer(found[0])",
    ),
    (
        r"What is the latest favourite (?P<category>\w+) that (?P<person>\w+) named",
        _FACTS + "answer(found[-1])",
    ),
    (
        rf"spend in the category (?P<category>\w+) {_DAYS}",
        _ROWS + _SPAN + 'rows = [r for r in rows if r[1] == "{category}"]\n' + _MONEY,
    ),
    (
        rf"spend in the categories (?P<names>.+) together {_DAYS}",
        _ROWS + _SPAN + 'rows = [r for r in rows if r[1] in "{names}"]\n' + _MONEY,
    ),
    (rf"spend in total {_DAYS}", _ROWS + _SPAN + _MONEY),
    (rf"which category did I spend the most {_DAYS}", _ROWS + _SPAN + _MOST.replace("{by}", "1")
        .replace("{what}", "r[2]")),
    (rf"date did I have the most transactions {_DAYS}", _ROWS + _SPAN + _MOST.replace("{by}", "0")
        .replace("{what}", "1")),
    (
        rf"largest single amount I spent {_DAYS}",
        _ROWS + _SPAN + 'answer(f"{{max([r[2] for r in rows]) / 100:.2f}}")',
    ),
    (
        r"spend in the category (?P<category>\w+) on (?P<day>\S+)\?",
        _ROWS
        + 'rows = [r for r in rows if r[1] == "{category}" and r[0] == "{day}"]\n'
        + _MONEY,
    ),
    (r"spent in total over all sessions", _ROWS + _MONEY),
    (
        r"numbered list of words. Which (?P<n>\d+) words come most often",
        "words = [w for w in split(text) if not w[0].isdigit()]\nanswer(list(count(words))[:{n}])",
    ),
    (
        r"coded words; (?P<dots>\S+) is no word. Which (?P<n>\d+) words come most often",
        'words = [w for w in split(text) if w != "{dots}"]\nanswer(list(count(words))[:{n}])',
    ),
    (
        r"Which names have the value (?P<value>\d+),",
        'known = findall(r"Let (\\w+) be {value}\\.", text)\n'
        'pairs = findall(r"Let (\\w+) be the same as (\\w+)\\.", text)\n'
        "for i in range(9):\n"
        "    known += [a for a, b in pairs if b in known and a not in known]\n"
        "answer(known)",
    ),
)  # fmt: skip


def program_for(problem: str, more: Sequence[Solver] = ()) -> str | None:
    """Return the program that solves a question; None for a kind that nobody has taught.

    `more` are solvers of other families, which are looked at first.
    """
    for pattern, program in (*more, *SOLVERS):
        if found := re.search(pattern, problem):
            return filled(program, found.groupdict())
    return None


def filled(program: str, fields: dict[str, str]) -> str:
    """Put a question's words into a program; double braces are braces."""
    named = re.compile(r"\{\{|\}\}|\{(" + "|".join(map(re.escape, fields or {"-": ""})) + r")\}")
    return named.sub(lambda m: fields[m[1]] if m[1] else m[0][0], program)


def fenced(program: str) -> str:
    """Write a program as a reply."""
    return f"```\n{program}\n```"

"""A teacher for the language: the program that solves a question of a task made from a seed.

It knows how `recall`, `ledger`, `chronicle` and RULER's aggregations are worded, and nothing of
their answers. A warm-up shows its programs; a family of your own adds pairs of a pattern and a
program.
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
_HOMES = """\
moves = findall((r"It is false that @ has moved|@ has moved to (\\w+)|@ has settled in (\\w+)|"
    r"A cart came for @. It went to (\\w+)|house for @. It is in (\\w+)|@ packed up. The cart has "
    r"gone to (\\w+)|@ has a new home. It is in (\\w+)|@ of \\w+ and \\w+ \\w+ of (\\w+) have|"
    r"of (\\w+) and @ of|@, so far in \\w+, and \\w+ \\w+, so far in (\\w+)|"
    r"so far in (\\w+), and @|@ gave up the house in \\w+ for that of \\w+ \\w+ in (\\w+)|"
    r"house in (\\w+) for that of @|leaves (\\w+) for the home of @|"
    r"@ leaves \\w+ for the home of \\w+ \\w+ in (\\w+)|"
    r"(@ has undone the latest move|latest move of @ fell|@ gave up the new house|"
    r"came to nothing. @ is)").replace("@", who), "\\n".join([c for c in chunks if who in c]))
home, before = "", ""
for m in moves:
    to = "".join(m[:-1])
    if to:
        home, before = to, home
    elif m[-1] and before:
        home, before = before, ""
answer(home)"""
_SENT = """\
days = findall(r"On (\\d+ \\w+) {who} wrote|by {who} on (\\d+ \\w+)|note from {who} reached \\w+ \
\\w+ on (\\d+ \\w+)|was on (\\d+ \\w+) that \\w+ \\w+ heard from {who} by|the post of (\\d+ \\w+) \
\\w+ \\w+ had a few lines from {who}|{who} wrote to \\w+ \\w+ on (\\d+ \\w+)", text)
answer(len(set(["".join(d) for d in days])))"""
_RECEIVED = """\
days = findall(r"On (\\d+ \\w+) \\w+ \\w+ wrote to {who}\\.|{who} was written to by \\w+ \\w+ on \
(\\d+ \\w+)|reached {who} on (\\d+ \\w+)|was on (\\d+ \\w+) that {who} heard|the post of \
(\\d+ \\w+) {who} had|wrote to {who} on (\\d+ \\w+)", text)
answer(len(set(["".join(d) for d in days])))"""
_KEEPER = """\
names = findall(r"The {thing} was handed to (\\w+ \\w+)|(\\w+ \\w+) has taken charge of the \
{thing}|the {thing} is with (\\w+ \\w+)|The {thing} went to (\\w+ \\w+)", text)
who = "".join(names[-1])
"""
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
    (r"Where does (?P<who>[A-Z]\w+ [A-Z]\w+) live now", 'who = "{who}"\n' + _HOMES),
    (r"Where does the keeper of the (?P<thing>\w+ \w+) live now", _KEEPER + _HOMES),
    (r"how many different days did (?P<who>\w+ \w+) send a letter", _SENT),
    (r"how many different days did (?P<who>\w+ \w+) receive a letter", _RECEIVED),
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

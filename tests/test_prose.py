"""What people read is plain English: help, errors, docstrings and docs without certain habits.

The list is that of words which read as translated: they have a plainer one, named beside each.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.commands.data.verbs import VERBS as DATA_VERBS
from recollect.commands.verbs import VERBS
from tests.support.places import ROOT

HABITS = {
    r"\bso many\b": "say which number: `N steps`, `this many tokens`",
    r"\b(?:stands?|stood)\b(?!-| (?:for|in for|out)\b)": "is, comes, contains",
    r"\bwhoever\b": "name who it is",
    r"\btold\b": "gets, sees, is given",
    r"\b(?:go|goes|going|went|gone) on\b": "continue",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bnews\b": "say what is reported",
    r"(?<!or )(?<!why )\bnot(?=[.;:,)]|$)": "a clause does not end in its negation",
    r"\b(?:is|are|has|have|was|were) none(?=[.;:,)]|$)": "a clause does not end in its negation",
    r"\bleave it away\b|\bleft away\b": "leave it out",
    r"\btype the same command\b": "run the same command again",
    r"(?<!there )\bis no (?:file|folder|object|list|task|row|length)\b": "is not a ...",
}
FRAGMENT = re.compile(r"^Of\b")
"""How a text begins that has no subject: `Of the run.`"""
FOR_MODELS = {
    *("chat/tool_calls.py", "evaluation/graders.py", "evaluation/judge_pairs.py"),
    *("rewards/judge.py", "tasks/made/ledger_talk.py"),
}
"""Files with texts that models read: a change of words would change what they do."""
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")),
]


def habits(text: str) -> list[str]:
    """Return the habits found in a text, each with what surrounds it and what to write."""
    plain = re.sub(r"\s+", " ", text)
    return [
        f"...{plain[max(0, found.start() - 30) : found.end() + 10]}... ({better})"
        for habit, better in HABITS.items()
        for found in re.finditer(habit, plain, re.IGNORECASE)
    ]


def written(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a file, those under fields too, and other texts, as of errors."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    for_models = any(path.match(name) for name in FOR_MODELS)
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(p) for node in nodes if isinstance(node, ast.JoinedStr) for p in node.values}
    for node in nodes:
        text = shown(node)
        if (
            " " in text
            and id(node) not in parts
            and not (for_models and id(node) not in docstrings)
        ):
            yield node.lineno, text


def shown(node: ast.AST) -> str:
    """Return a text as it is written, with X for what is only known when it runs."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join("X" if isinstance(p, ast.FormattedValue) else shown(p) for p in node.values)
    return ""


def prose(page: str) -> str:
    """Return a page of Markdown without its code."""
    return re.sub(r"`[^`\n]*`", "X", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S))


@pytest.mark.parametrize(
    "text",
    [
        "Validate every so many steps.",
        "An answer stands in the text.",
        "What the agent is told.",
        "The run goes\non from there.",
        "0 if it does not.",
        "mend the file",
    ],
)
def test_a_habit_is_found(text):
    assert habits(text)


@pytest.mark.parametrize(
    "text",
    ["MEM stands for memory.", "It is not a file.", "in order or not.", "I understand."],
)
def test_plain_english_is_left_alone(text):
    assert not habits(text)


def test_docstrings_and_errors():
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "examples").glob("*.py")):
        for line, text in written(path):
            found += [f"{path.relative_to(ROOT)}:{line}: {habit}" for habit in habits(text)]
            if FRAGMENT.match(text):
                found.append(f"{path.relative_to(ROOT)}:{line}: {text[:40]} (has no subject)")
    assert not found, "\n".join(found)


def test_documentation():
    found = [
        f"{path.relative_to(ROOT)}: {habit}"
        for path in PAGES
        for habit in habits(prose(path.read_text()))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "args",
    [[], *([verb] for verb in sorted(VERBS)), *(["data", verb] for verb in sorted(DATA_VERBS))],
    ids=lambda args: " ".join(args) or "recollect",
)
def test_help(args, capsys):
    with suppress(SystemExit):
        main([*args, "--help"])
    text = re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out)
    assert len(text) > 20
    assert not habits(text)

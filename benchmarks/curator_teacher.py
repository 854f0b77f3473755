"""A scripted curator that shows the form of the calls on LoCoMo and is careless about the rest.

It knows neither answers nor evidence. It searches with the question or its rare words, in anybody's
memories, and creates, updates or deletes any of what it found. Which of this helps, only the reward
can tell.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from random import Random

from recollect.agents.curator import CuratorPrompts

PROMPTS = CuratorPrompts(
    system="",
    user="{card}\n\nLater somebody is asked: <question>{question}</question>\n"
    "They see only what a search for the question finds. Search first. Then edit the memories so"
    " that the search finds the answer, with the evidence ids of what you write. You may:"
    " {operations}. Say DONE at the end.",
)
COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about after ago an and any are as at be been before by can could did do does during for"
        " from had has have he her hers him his how if in into is it its kind likely long many"
        " might much of on one or she should so some than that the their them they this to type was"
        " were what when where which who whom whose why will with would you",
    )
)
LONGEST = 30
"""Words of a memory that it copies."""
EDITS = 2
"""At most; a second one follows the first half of the time."""

_PEOPLE = re.compile(r"about (\S+) and (\S+)\. Each has an id")
_FOUND = re.compile(r"^\d+\. (memory_\d+) \| (.*?) \| speaker: (.*?) \| evidence: (.*?) \|", re.M)
_NAMED = re.compile(r'"(?:memory_id|evidence)": "([^"]+)"')
"""Memories and turns that calls of the chat have named: each is edited once."""


@dataclass(frozen=True)
class Found:
    """One line of what a search returned."""

    id: str
    text: str
    speaker: str
    evidence: str


@dataclass
class Teacher:
    """Says the next turn of a chat; every turn has draws of its own."""

    seed: int = 0
    turns: int = 0

    def reply(self, prompt: str) -> str:
        """Search, edit once or twice, say DONE."""
        self.turns += 1
        rng = Random(f"{self.seed} {self.turns}")
        asked, _, chat = prompt.rpartition("</question>")
        question = asked.rpartition("<question>")[2]
        named = set(_NAMED.findall(chat))
        found = [Found(*line) for line in _FOUND.findall(chat)]
        left = [one for one in found if not {one.id, one.evidence} & named]
        calls = chat.count("<tool_call>")
        if not calls:
            return call("search_memory", search(question, people(prompt), rng))
        if not left or calls > EDITS or (calls > 1 and rng.random() < 0.5):
            return "DONE"
        return call("manage_memory", edit(question, people(prompt), rng.choice(left), rng))


def search(question: str, names: tuple[str, ...], rng: Random) -> dict[str, str]:
    """Look for the question or its rare words, in the memories of anybody."""
    query = rng.choice((question, " ".join(rare_words(question, names)) or question))
    whom = rng.choice((*names, "", ""))
    return {"query": query, **({"speaker_filter": whom} if whom else {})}


def edit(question: str, names: tuple[str, ...], one: Found, rng: Random) -> dict[str, str]:
    """Create, update or delete; a text is copied as it is, or after the question's rare words."""
    operation = rng.choice(("create", "create", "update", "delete"))
    if operation == "delete":
        return {"operation": operation, "memory_id": one.id}
    text = " ".join(one.text.split()[:LONGEST])
    subject = " ".join((one.speaker, *rare_words(question, names)))
    content = rng.choice((text, f"{subject}: {text}"))
    if operation == "update":
        return {"operation": operation, "memory_id": one.id, "content": content}
    return {"operation": operation, "content": content, "evidence": one.evidence}


def rare_words(question: str, names: tuple[str, ...]) -> list[str]:
    """Return the words of a question that say what it is about, without people's names."""
    said = [word.removesuffix("'s") for word in re.findall(r"[\w'-]+", question)]
    return [word for word in said if word not in names and word.lower() not in COMMON]


def people(prompt: str) -> tuple[str, ...]:
    """Return the two people that the card names."""
    match = _PEOPLE.search(prompt)
    return (match[1], match[2]) if match else ()


def call(name: str, arguments: dict[str, str]) -> str:
    """Write a call in the form of the chat template."""
    said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{said}\n</tool_call>"

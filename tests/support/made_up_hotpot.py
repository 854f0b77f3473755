"""A made-up data set in HotpotQA's own shape, and many paragraphs to lose its evidence among."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from recollect.tasks.documents.document_files import build_documents, sort_inputs
from recollect.tasks.documents.hotpotqa import HOTPOTQA
from recollect.tasks.files.manifest import Manifest
from tests.support.places import SHARED

REAL = SHARED
"""Where the real data sets lie, if they do."""
COLOURS = ("amber", "blue", "coral", "green", "ivory", "jade", "lilac", "mauve", "ochre", "plum")


def item(number: int) -> dict[str, Any]:
    """Ask for the colour of the house of a person's friend: two paragraphs, three others."""
    rng = Random(number)
    colour = rng.choice(COLOURS)
    person, friend = f"Person {number}", f"Friend {number}"
    context = [
        [person, [f"{person} lives by the sea.", f" {person} is a friend of {friend}."]],
        [friend, [f"{friend} has a house.", f" The house of {friend} is {colour}."]],
        *(
            [f"Village {number}-{i}", [f"A village of {i} houses.", " It is old."]]
            for i in range(3)
        ),
    ]
    rng.shuffle(context)
    return {
        "_id": f"item-{number}",
        "question": f"Which colour has the house of the friend of {person}?",
        "answer": colour,
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [[person, 1], [friend, 1]],
        "context": context,
    }


def write_source(folder: Path, test: int = 300, train: int = 30, others: int = 36_000) -> Path:
    """Write the files that a user would have got."""
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    (source / "dev.json").write_text(json.dumps([item(i) for i in range(test)]))
    if train:
        (source / "train.json").write_text(json.dumps([item(10_000 + i) for i in range(train)]))
    rivers = (
        {"title": f"River {i}", "text": f"River {i} is {i} miles long."} for i in range(others)
    )
    (source / "corpus.jsonl").write_text("".join(json.dumps(river) + "\n" for river in rivers))
    return source


def build(source: Path, output: Path, repeat: bool = False) -> Manifest:
    """Build them as `recollect data hotpotqa` does."""
    return build_documents(HOTPOTQA, sort_inputs(HOTPOTQA, [source]), output, repeat)

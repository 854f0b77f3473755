"""A small made-up world in LoCoMo's own shape, and the real LoCoMo where it lies beside the repo.

Both go through the same files: built as `recollect data locomo` builds them, and loaded back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from recollect.memory.corpus import Corpus
from recollect.tasks.conversations.locomo_files import (
    LocomoOptions,
    build_locomo,
    load_corpora,
    load_tasks,
)
from recollect.types import Task
from tests.support.places import SHARED

REAL = SHARED / "locomo" / "locomo10_dev5.json.gz"

PEOPLE = (("Ada", "Ben"), ("Cleo", "Dev"))
PLACES = ("Lisbon", "Oslo", "Kyoto", "Quito", "Tartu", "Perth", "Cork", "Lima")
HOBBIES = ("juggling", "fencing", "origami", "archery", "falconry", "glassblowing", "chess", "golf")
PETS = ("hedgehog", "parrot", "ferret", "tortoise", "goldfish", "rabbit", "iguana", "pony")
SMALL_TALK = (
    "How have you been? It was good to hear from you last time.",
    "That sounds lovely, tell me more about it when you can.",
    "Work keeps me busy, but the weekend is near.",
    "I am glad we talk, it has been a long week for me.",
)
MONTHS = ("January", "March", "May", "June", "August", "October")


@dataclass(frozen=True)
class World:
    """Tasks, and the memories they are about."""

    tasks: tuple[Task, ...]
    corpora: dict[str, Corpus]

    def corpus(self, task: Task) -> Corpus:
        return self.corpora[task.meta["sample_id"]]


def load(source: Path, folder: Path) -> World:
    """Build a LoCoMo file into a folder and load what was built."""
    build_locomo(LocomoOptions(source, folder))
    tasks = [t for part in ("train", "test") for t in load_tasks(folder / f"{part}.parquet")]
    return World(tuple(tasks), load_corpora(folder))


def made_up(folder: Path, seed: int = 0) -> World:
    """Make up conversations, write them as LoCoMo does, and load them."""
    path = folder / "made_up.json"
    path.write_text(json.dumps([_conversation(i, Random(seed + i)) for i in range(len(PEOPLE))]))
    return load(path, folder / "made_up")


def _conversation(number: int, random: Random) -> dict[str, Any]:
    people = PEOPLE[number]
    talk: dict[str, Any] = {"speaker_a": people[0], "speaker_b": people[1]}
    observation: dict[str, Any] = {}
    events: dict[str, Any] = {}
    qa: list[dict[str, Any]] = []
    places, hobbies, pets = (random.sample(kind, 6) for kind in (PLACES, HOBBIES, PETS))
    for n in range(1, 7):
        who = people[n % 2]
        place, hobby, pet, month = places[n - 1], hobbies[n - 1], pets[n - 1], MONTHS[n - 1]
        facts = {
            f"I had to move to {place} for work.": (f"Where did {who} move to?", place, 4),
            f"I took up {hobby} at the club yesterday.": (
                *(f"When did {who} take up {hobby}?", f"{9 + n} {month} 2023", 2),
            ),
            f"My sister gave me a {pet} for my birthday.": (
                *(f"Which animal did the sister of {who} give away in session {n}?", pet, 1),
            ),
        }
        turns: list[dict[str, str]] = []
        for fact, (question, answer, category) in facts.items():
            turns += [_turn(people, n, len(turns), who != people[0], random.choice(SMALL_TALK))]
            turns += [_turn(people, n, len(turns), who == people[0], fact)]
            turns[-1]["speaker"] = who
            evidence = [turns[-1]["dia_id"]]
            item = {"question": question, "answer": answer, "evidence": evidence}
            qa.append({**item, "category": category})
        talk[f"session_{n}"] = turns
        talk[f"session_{n}_date_time"] = f"1:56 pm on {10 + n} {month}, 2023"
        noted = [f"{who} likes to talk about {hobby}.", turns[3]["dia_id"]]
        observation[f"session_{n}_observation"] = {who: [noted]}
        events[f"events_session_{n}"] = {who: [f"{who} settles in {place}."], "date": month}
    return {
        "sample_id": f"conv-{900 + number}",
        "conversation": talk,
        "observation": observation,
        "event_summary": events,
        "qa": qa,
    }


def _turn(people: tuple[str, str], n: int, at: int, first: bool, text: str) -> dict[str, str]:
    return {"speaker": people[0 if first else 1], "dia_id": f"D{n}:{at + 1}", "text": text}

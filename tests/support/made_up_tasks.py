"""Made-up books and bAbI stories, so that no test needs a data set."""

from __future__ import annotations

from pathlib import Path
from random import Random

WORDS = (
    *("some", "grey", "ships", "waited", "near", "that", "old", "pier"),
    *("while", "gulls", "cried", "above", "cold", "water"),
)


def write_books(folder: Path, sentences: int = 400) -> None:
    """Write a book of meaningless sentences."""
    folder.mkdir(parents=True)
    rng = Random(0)
    text = [" ".join(rng.sample(WORDS, rng.randint(5, 12))).capitalize() for _ in range(sentences)]
    paragraphs = [". ".join(text[i : i + 8]) + "." for i in range(0, sentences, 8)]
    (folder / "book.txt").write_text("\n\n".join(paragraphs))


def write_babi(folder: Path, stories: int = 40) -> None:
    """Write stories of people in rooms, with two questions each, as all twenty tasks."""
    folder.mkdir(parents=True)
    rng = Random(0)
    lines = []
    for _ in range(stories):
        people = rng.sample(["Mary", "John", "Daniel", "Sandra"], 2)
        rooms = rng.choices(["kitchen", "garden", "office", "hallway", "bathroom"], k=4)
        lines += [
            f"1 {people[0]} went to the {rooms[0]}.",
            f"2 {people[1]} moved to the {rooms[1]}.",
            f"3 Where is {people[0]}? \t{rooms[0]}\t1",
            f"4 {people[0]} travelled to the {rooms[2]}.",
            f"5 {people[1]} went back to the {rooms[3]}.",
            f"6 Where is {people[0]}? \t{rooms[2]}\t4",
        ]
    for n in (1, 2, 11):
        (folder / f"qa{n}_made-up_train.txt").write_text("\n".join(lines) + "\n")
    (folder / "qa8_made-up_train.txt").write_text(
        "1 Mary got the milk.\n2 Mary took the apple.\n3 What is Mary carrying? \tmilk,apple\t1 2\n"
        "1 John sat.\n2 What is John carrying? \tnothing\t1\n"
        "1 Daniel got the ball.\n2 What is Daniel carrying? \tball\t1\n"
        "1 Daniel got the bat.\n2 What is Daniel carrying? \tbat\t1\n"
    )

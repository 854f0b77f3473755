"""bAbI: little stories of numbered facts with questions, read from the official files as they are.

Knows nothing of books or of long texts.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.files.unpacked import open_bytes

TASKS = tuple(f"qa{n}" for n in range(1, 21))

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "qa5": "Answer with one name or one thing.",
        **dict.fromkeys(("qa6", "qa9", "qa17", "qa18"), "Answer with yes or no."),
        "qa7": "Answer with a number in words, or with none.",
        "qa8": "Answer with all the things, separated by commas, or with nothing.",
        "qa10": "Answer with yes, no or maybe.",
        "qa15": "Answer with one animal, in the singular.",
        "qa19": "Answer with two directions in their order, separated by a comma.",
    }
)
"""How to answer, where one word without more would leave it open."""

STATED = frozenset(f"qa{n}" for n in (1, 2, 3, 4, 5, 11, 12, 13, 14, 16))
"""The tasks whose answer is a word of a supporting fact; elsewhere it must be concluded."""

FIX = (
    "download tasks_1-20_v1-2.tar.gz of the bAbI tasks (CC BY 3.0) and type"
    " `recollect data babilong --input FILE --books FOLDER`"
)

_LINE = re.compile(r"(\d+) (.*)")
_UP_TO_QUESTION = re.compile(r"\A[^\t]*\t[^\t\n]*")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")
_ORDERS = 4
"""Things in a list that can still be written down in all their orders: 24 of them."""
_LONGEST = 1000
_DIRECTIONS = MappingProxyType({"n": "north", "e": "east", "s": "south", "w": "west"})


@dataclass(frozen=True)
class BabiQuestion:
    """A question, the facts that precede it, and which of them it needs."""

    facts: tuple[str, ...]
    supporting: tuple[int, ...]
    """Places among the facts."""
    text: str
    answers: tuple[str, ...]
    every: bool
    """Whether all of the answers together are asked for, in any order."""
    story: int
    """A hash of how the story begins, which decides the split of all its questions."""


def read_babi(folder: Path, task: str, split: Split) -> tuple[BabiQuestion, ...]:
    """Read the questions of a split: of its own file, or without test files a half of training's.

    Test files alone stay a test split, and there is nothing to train on.
    """
    files = babi_files(folder, task)
    if not files:
        what = f"{folder} holds no files of bAbI's {task}"
        raise UserError(what, FIX)
    if "test" in files:
        return tuple(parse_babi(files[split], task)) if split in files else ()
    half = 1 if split == "test" else 0
    return tuple(asked for asked in parse_babi(files["train"], task) if asked.story % 2 == half)


def parse_babi(text: str, task: str) -> Iterator[BabiQuestion]:
    """Read the questions of one file, each with the facts that precede it."""
    for story in re.split(r"^(?=1 )", text, flags=re.MULTILINE):
        facts: dict[int, str] = {}
        # Up to the first question: stories that begin alike share their first questions.
        digest = derive("babi", task, *_UP_TO_QUESTION.findall(story)[:1])
        for line in story.splitlines():
            found = _LINE.fullmatch(line.strip())
            if not found or len(found[1]) > 9:
                raise UserError(f"bAbI's {task} has the line {line[:80]!r}", "download it again")
            said, *rest = found[2].split("\t")
            if not rest:
                facts[int(found[1])] = said.strip()
                continue
            if len(rest[0]) > _LONGEST:
                what = f"bAbI's {task} has an answer of {len(rest[0]):,} characters"
                raise UserError(what, "download it again")
            order = list(facts)
            try:
                places = tuple(sorted({order.index(int(n)) for n in rest[1].split()}))
            except (IndexError, ValueError):
                what = f"bAbI's {task} has a question without supporting facts: {line[:80]!r}"
                raise UserError(what, "give the files with supporting facts") from None
            answers = accepted(rest[0].strip(), task)
            every = _is_long_list(rest[0].strip(), task)
            yield BabiQuestion(tuple(facts.values()), places, said.strip(), answers, every, digest)


def accepted(answer: str, task: str) -> tuple[str, ...]:
    """Return every way to write an answer that means the same; of a long list its items."""
    if task == "qa7":
        known = "zero" if answer == "none" else answer
        number = _NUMBERS.index(known) if known in _NUMBERS else None
        return tuple(dict.fromkeys((answer, known, known if number is None else str(number))))
    if "," not in answer:
        return (answer,)
    items = answer.split(",")
    if _is_long_list(answer, task):
        return tuple(items)
    if task == "qa19":
        words = [_DIRECTIONS.get(item, item) for item in items]
        return tuple(mark.join(part) for part in (words, items) for mark in (", ", " then ", ","))
    ways = []
    for order in permutations(items):
        ways += [", ".join(order), ",".join(order), f"{', '.join(order[:-1])} and {order[-1]}"]
    return tuple(ways)


def _is_long_list(answer: str, task: str) -> bool:
    """Tell whether an answer has too many orders to write them all down."""
    return task != "qa19" and answer.count(",") >= _ORDERS


def babi_files(place: Path, task: str) -> dict[Split, str]:
    """Find the files of a task in a folder, in an archive that lies there, or in an archive."""
    splits: tuple[Split, ...] = ("train", "test")
    # Also qa1_train.txt, as the folder en-valid calls it.
    names = {split: re.compile(rf"{task}_(?:[\w-]+_)?{split}\.txt") for split in splits}
    archives = [place] if place.is_file() else sorted(place.glob("*.tar.gz"))
    paths = sorted(place.rglob("qa*_*.txt"))
    try:
        if paths:
            plain = {split: [p for p in paths if names[split].fullmatch(p.name)] for split in names}
            return {
                split: min(found, key=_english).read_text(encoding="utf-8")
                for split, found in plain.items()
                if found
            }
        # Training and test questions may come in an archive each.
        return {split: text for path in archives for split, text in _packed(path, names).items()}
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        what = f"the bAbI files in {place} cannot be read: {error}"
        raise UserError(what, "download them again") from None


def _packed(path: Path, names: Mapping[Split, re.Pattern[str]]) -> dict[Split, str]:
    # Read and not unpacked: what an archive calls its files must not matter.
    texts: dict[Split, str] = {}
    with open_bytes(path) as stream:
        content = stream.read()  # no more than `open_bytes` lets it expand to
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {PurePosixPath(m.name): m for m in archive.getmembers() if m.isfile()}
        for split, name in names.items():
            chosen = [found for found in members if name.fullmatch(found.name)]
            file = archive.extractfile(members[min(chosen, key=_english)]) if chosen else None
            if file:
                texts[split] = file.read().decode()
    return texts


def _english(path: Path | PurePosixPath) -> tuple[bool, str]:
    """Prefer the thousand English questions to other languages, sizes and shuffled letters."""
    return path.parent.name != "en", str(path)

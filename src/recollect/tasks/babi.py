"""bAbI: little stories of numbered facts with questions, read from the official files as they are.

Knows nothing of books or of long texts.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split

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

FIX = "download tasks_1-20_v1-2.tar.gz of the bAbI tasks (CC BY 3.0) and put it into {folder}"

_LINE = re.compile(r"(\d+) (.*)")
_UP_TO_QUESTION = re.compile(r"\A[^\t]*\t[^\t\n]*")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")
_DIRECTIONS = MappingProxyType({"n": "north", "e": "east", "s": "south", "w": "west"})


@dataclass(frozen=True)
class Asked:
    """A question, the facts that were told before it, and which of them it needs."""

    facts: tuple[str, ...]
    supporting: tuple[int, ...]
    """Places among the facts."""
    text: str
    answers: tuple[str, ...]
    story: int
    """A hash of how the story begins, which decides the split of all its questions."""


@lru_cache(maxsize=40)
def read_babi(folder: Path, task: str, split: Split) -> tuple[Asked, ...]:
    """Read the questions of a split: of its own file, or without one a half of the other's."""
    files = dict(_files(folder, task))
    if not files:
        what = f"{folder} holds no files of bAbI's {task}"
        raise UserError(what, FIX.format(folder=folder))
    if split in files and len(files) == 2:
        return tuple(parse_babi(files[split], task))
    (text,) = files.values()
    half = 1 if split == "test" else 0
    return tuple(asked for asked in parse_babi(text, task) if asked.story % 2 == half)


def parse_babi(text: str, task: str) -> Iterator[Asked]:
    """Read the questions of one file, each with what was told before it."""
    for story in re.split(r"^(?=1 )", text, flags=re.MULTILINE):
        facts: dict[int, str] = {}
        # Up to the first question: stories that begin alike share their first questions.
        digest = derive("babi", task, *_UP_TO_QUESTION.findall(story)[:1])
        for line in story.splitlines():
            found = _LINE.fullmatch(line.strip())
            if not found:
                raise UserError(f"bAbI's {task} has the line {line[:80]!r}", "download it again")
            said, *rest = found[2].split("\t")
            if not rest:
                facts[int(found[1])] = said.strip()
                continue
            order = list(facts)
            try:
                places = tuple(sorted({order.index(int(n)) for n in rest[1].split()}))
            except (IndexError, ValueError):
                what = f"bAbI's {task} has a question without supporting facts: {line[:80]!r}"
                raise UserError(what, "give the files with supporting facts") from None
            answers = accepted(rest[0].strip(), task)
            yield Asked(tuple(facts.values()), places, said.strip(), answers, digest)


def accepted(answer: str, task: str) -> tuple[str, ...]:
    """Return every way to write an answer that means the same."""
    if task == "qa7":
        number = 0 if answer == "none" else _NUMBERS.index(answer)
        return tuple(dict.fromkeys((answer, _NUMBERS[number], str(number))))
    if "," not in answer:
        return (answer,)
    items = answer.split(",")
    if task == "qa19":
        words = [_DIRECTIONS[item] for item in items]
        return tuple(mark.join(part) for part in (words, items) for mark in (", ", " then ", ","))
    ways = []
    for order in permutations(items):
        ways += [", ".join(order), ",".join(order), f"{', '.join(order[:-1])} and {order[-1]}"]
    return tuple(ways)


def _files(folder: Path, task: str) -> Iterator[tuple[Split, str]]:
    """Find the files of a task in a folder, or in an archive that lies there."""
    splits: tuple[Split, ...] = ("train", "test")
    names = {split: re.compile(rf"{task}_[\w-]+_{split}\.txt") for split in splits}
    if not folder.is_dir():
        return
    paths = sorted(folder.rglob("qa*_*.txt"))
    archives = sorted(folder.glob("*.tar.gz"))
    try:
        for split, name in names.items():
            found = [path for path in paths if name.fullmatch(path.name)]
            if found:
                yield split, min(found, key=_english).read_text(encoding="utf-8")
        if paths or not archives:
            return
        # Read and not unpacked: what an archive calls its files must not matter.
        with tarfile.open(archives[0]) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            for split, name in names.items():
                chosen = [m for m in members if name.fullmatch(PurePosixPath(m.name).name)]
                if chosen:
                    member = min(chosen, key=lambda m: _english(PurePosixPath(m.name)))
                    file = archive.extractfile(member)
                    yield split, file.read().decode() if file else ""
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        what = f"the bAbI files in {folder} cannot be read: {error}"
        raise UserError(what, "download them again") from None


def _english(path: Path | PurePosixPath) -> tuple[bool, str]:
    """Prefer the thousand English questions to other languages, sizes and shuffled letters."""
    return path.parent.name != "en", str(path)

"""What a person can set about `recollect ask`. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recollect.bounds import FROM_0, FROM_1, check_bounds


@dataclass(frozen=True)
class AskOptions:
    """Read files and answer questions about them, however long they are."""

    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE|QUESTION")]
    """Files, folders, PDF or - for standard input, then questions. Without a question, they are
    asked for one by one."""
    model: str = ""
    """A run, a model folder, or the address of a server such as http://localhost:8000/v1."""
    agent: str = ""
    """fold, gated, rolling, bank, rag, ..., module:Name or file.py:Name; the run's own by default,
    else fold."""
    set: tuple[str, ...] = ()
    """Settings of the agent: FIELD=VALUE, such as chunk_size=2000."""
    memory: Path | None = None
    """A file for the memory: it is read if it exists, and written after reading."""
    cache: Path | None = None
    """Where every state of a memory is kept, so that a text is read only once."""
    passages: int = 3
    """How many passages are shown beside an answer."""
    temperature: float = 0.0
    json: bool = False
    """Print one JSON object for each question instead of text."""
    served_model: str = ""
    """Which model to ask, if the server has several."""
    tokenizer: str = ""
    """A folder with the served model's tokenizer."""
    window: int | None = None
    """Tokens a context may hold; by default what the model or the server says."""
    device: str = "auto"
    threads: int = 0
    """CPU threads for a model folder; 0 leaves torch's choice."""

    def __post_init__(self) -> None:
        check_bounds("", self, passages=FROM_0, temperature=FROM_0, window=FROM_1, threads=FROM_0)


def words_first(args: Sequence[str]) -> list[str]:
    """Put files and questions before the flags: a person writes them anywhere."""
    words: list[str] = []
    flags: list[str] = []
    left = list(args)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            (flags if word in ("-h",) else words).append(word)
            continue
        flags.append(word)
        if word == "--set":
            while left and "=" in left[0] and not left[0].startswith("--"):
                flags.append(left.pop(0))
        elif "=" not in word and word not in ("--json", "--no-json", "--help") and left:
            flags.append(left.pop(0))
    return [*words, *flags]

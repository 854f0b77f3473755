"""`recollect data closed-book`: ask a model the questions of a folder without any text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from recollect.commands.data.output import say
from recollect.concurrency.many import concurrently
from recollect.files import make_folder, replacing
from recollect.foreign import readable_json
from recollect.policies.cached import RemoteModel
from recollect.tasks.base import Split
from recollect.tasks.documents.document_files import StoredItem, open_folder
from recollect.tasks.documents.known import is_right

PROMPT = (
    "Answer the question from what you know. Give the final answer, as short as possible, in"
    " \\boxed{}."
)


@dataclass(frozen=True)
class ClosedBookOptions:
    """Ask a model every question of a folder without any text, to leave out what it knows."""

    input: Path
    """A folder that `recollect data hotpotqa` or one of its kind wrote."""
    output: Path
    """The file to write: pass it to --closed-book when making the folder again."""
    url: str
    """The model's server, such as http://localhost:8000/v1"""
    model: str = ""
    """Empty takes the first model that the server lists."""
    max_tokens: int = 512
    concurrency: int = 64


def run_closed_book(options: ClosedBookOptions, console: Console) -> int:
    """Ask, write what was answered, and say how much of it is right."""
    folder = open_folder(options.input, "")
    splits: tuple[Split, ...] = ("train", "test")
    items = [folder.item(split, i) for split in splits for i in range(folder.size(split))]
    make_folder(options.output.parent)
    # Kept beside the output: what was answered before an interruption is not asked again.
    cache = options.output.with_suffix(".cache.sqlite")
    model = RemoteModel(
        options.url, options.model, cache, options.max_tokens, concurrency=options.concurrency
    )
    answers = asyncio.run(_ask(model, items))
    with replacing(options.output) as path, path.open("w", encoding="utf-8") as file:
        for item, answer in zip(items, answers, strict=True):
            said = {"id": item.id, "question": item.question, "answers": [answer]}
            file.write(readable_json(said) + "\n")
    pairs = zip(items, answers, strict=True)
    right = sum(is_right(said, item.question, item.answers) for item, said in pairs)
    say(console, f"{right:,} of {len(items):,} questions are known without any text")
    say(console, f"written to {options.output}")
    return 0


async def _ask(model: RemoteModel, items: list[StoredItem]) -> list[str]:
    return list(await concurrently(model(PROMPT, item.question) for item in items))

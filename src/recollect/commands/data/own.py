"""`recollect data jsonl`: check a file of one's own tasks and put it where its family looks."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from recollect.commands.data.output import say
from recollect.files import fsync
from recollect.foreign import shown
from recollect.tasks.files.jsonl import HELP, Jsonl
from recollect.tasks.files.manifest import Manifest, building, checked, write_manifest
from recollect.tasks.files.records import refuse_empty


@dataclass(frozen=True)
class JsonlOptions:
    """Check a file of your own tasks, and copy it into a folder."""

    input: Path
    """A file of JSON lines, as docs/data.md shows."""
    output: Path = Path("data/jsonl")
    """The folder to write."""


def run_jsonl(options: JsonlOptions, console: Console) -> int:
    """Check every line, then copy the file and write its checksum."""
    family = Jsonl(options.input)
    counts = {"train": family.size("train"), "test": family.size("test")}
    refuse_empty(sum(counts.values()), [options.input], "task", HELP)
    with building(options.output) as folder:
        path = folder / "tasks.jsonl"
        shutil.copyfile(options.input, path)
        fsync(path)
        inputs, outputs = checked([options.input]), checked([path])
        write_manifest(folder, Manifest("jsonl", {}, counts, inputs=inputs, outputs=outputs))
    for oddity in family.oddities:
        say(console, shown(oddity))
    say(console, f"{counts['train']:,} training tasks, {counts['test']:,} held out")
    say(console, f"written to {options.output}")
    return 0

"""`recollect data ruler` and `babilong`: books to hide things in, and bAbI's stories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from recollect.commands.data.output import tell_manifest
from recollect.tasks.files.builders import build_babilong, build_ruler


@dataclass(frozen=True)
class RulerOptions:
    """Take books for RULER's haystacks of prose. Its other kinds need nothing, or `data squad`
    (qa_1) and `data hotpotqa` (qa_2)."""

    input: Path
    """A folder of public-domain books, .txt or .txt.gz."""
    output: Path = Path("data/ruler")
    """The folder to write."""


def run_ruler(options: RulerOptions, console: Console) -> int:
    """Take books for RULER."""
    tell_manifest(build_ruler(options.input, options.output), options.output, console)
    return 0


@dataclass(frozen=True)
class BabiLongOptions:
    """Take bAbI's questions, and books to scatter their facts over."""

    input: Path
    """tasks_1-20_v1-2.tar.gz of the bAbI tasks, or a folder with it or with what it holds."""
    books: Path
    """A folder of public-domain books, .txt or .txt.gz."""
    output: Path = Path("data/babilong")
    """The folder to write."""


def run_babilong(options: BabiLongOptions, console: Console) -> int:
    """Take bAbI's questions and books for BABILong."""
    manifest = build_babilong(options.input, options.books, options.output)
    tell_manifest(manifest, options.output, console)
    return 0

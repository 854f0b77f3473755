"""How `recollect data` speaks: plain lines, never cut and never read as markup."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from recollect.tasks.files.manifest import Manifest

SHOWN = 10
"""Problems that are printed; all of them are in the folder's manifest.json."""


def say(console: Console, text: str) -> None:
    """Print a line as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def tell_manifest(manifest: Manifest, output: Path, console: Console) -> None:
    """Say what was read, what there is now, and what is wrong with it."""
    for file in manifest.inputs:
        say(console, f"read {file.name}, {file.bytes:,} bytes, sha256 {file.sha256[:16]}")
    for name, count in manifest.counts.items():
        say(console, f"{name:<32} {count:>10,}")
    for problem in manifest.problems[:SHOWN]:
        say(console, f"  {problem}")
    if (more := len(manifest.problems) - SHOWN) > 0:
        say(console, f"  and {more} more: see {output / 'manifest.json'}")
    say(console, f"written to {output}")

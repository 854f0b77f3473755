"""Every way a file can be damaged, for every file of a folder: a message, a repair, no silence."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import UserError
from recollect.runs.checkpoints import find_checkpoint
from recollect.runs.episodes import read_episodes
from tests.chaos import values
from tests.chaos.invariants import Findings, bad_manners, compare
from tests.chaos.kills import end
from tests.chaos.process import start
from tests.chaos.workloads import Unit, Workload

Spoil = Callable[[Path, random.Random], None]


def _cut(path: Path, draw: random.Random) -> None:
    held = path.read_bytes()
    path.write_bytes(held[: draw.randrange(len(held))] if held else b"{")


def _flip(path: Path, draw: random.Random) -> None:
    """Flip one bit; in a text the top one, because another digit is as good as the first."""
    held = bytearray(path.read_bytes() or b"\n")
    text = path.suffix not in (".safetensors", ".gz", ".parquet", ".arrow")
    held[draw.randrange(len(held))] ^= 0x80 if text else 1 << draw.randrange(8)
    path.write_bytes(held)


def _other_type(path: Path, draw: random.Random) -> None:
    path.write_text(draw.choice(["[]", "7", "null", '"text"', "{}", "[[{}]]", "true"]) + "\n")


def _other_values(path: Path, draw: random.Random) -> None:
    """Keep the names of an object and put something else behind each."""
    held = path.read_bytes()
    first, rest = held, b""
    if path.suffix == ".jsonl":
        first, _, rest = held.partition(b"\n")
    try:
        found = json.loads(first)
    except ValueError:
        found = None
    if isinstance(found, dict):
        value = draw.choice([None, [], {}, -1, "x", 10**30, {"version": 999}])
        path.write_bytes(json.dumps(dict.fromkeys(found, value)).encode() + b"\n" + rest)
    else:
        _other_type(path, draw)


def _version(path: Path, draw: random.Random) -> None:
    """Pretend that another version wrote it."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if isinstance(found, dict):
        path.write_text(json.dumps({**found, "version": 999}))
    else:
        path.write_bytes(b"version 999\n" + path.read_bytes())


def _folder(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _pipe(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Spoil] = {
    "cut short": _cut,
    "a flipped bit": _flip,
    "empty": lambda path, draw: path.write_bytes(b"") and None,
    "another type": _other_type,
    "other values": _other_values,
    "NUL bytes": lambda path, draw: path.write_bytes(bytes(max(path.stat().st_size, 9))) and None,
    "deep JSON": values.deep,
    "a long number": values.long_number,
    "noise": lambda path, draw: path.write_bytes(draw.randbytes(500)) and None,
    "another version": _version,
    "missing": lambda path, draw: path.unlink(),
    "a folder in its place": _folder,
    "a link to itself": _loop,
    "a pipe in its place": _pipe,
    "unreadable": lambda path, draw: path.chmod(0),
}


@dataclass(frozen=True)
class Ground:
    """A finished or half-finished folder whose files are damaged one at a time."""

    workload: Workload
    origin: Path
    whole: list[Unit]
    readers: Callable[[Path, Path], list[list[str]]]
    """The commands, beside the workload's own, that read a file of the folder."""
    depth: int = 99
    """How deep the files are that the command reads."""

    def files(self) -> Iterator[Path]:
        """Yield every file, from the folder."""
        for path in sorted(p for p in self.origin.rglob("*") if p.is_file()):
            if len((name := path.relative_to(self.origin)).parts) <= self.depth:
                yield name

    def cases(self) -> list[tuple[Path, str]]:
        """Return the whole matrix; a superuser can read everything."""
        kinds = [kind for kind in DAMAGES if kind != "unreadable" or os.geteuid()]
        return [(path, kind) for path in self.files() for kind in kinds]


def damage(
    ground: Ground, name: Path, kind: str, folder: Path, draw: random.Random
) -> tuple[Findings, list[float]]:
    """Damage one file of a copy, and let every command that reads it have a look."""
    said: list[str] = []
    for arguments in ground.readers(folder, folder / name):
        _copy(ground.origin, folder)
        DAMAGES[kind](folder / name, draw)
        said += _look(arguments, name, folder)
    _copy(ground.origin, folder)
    DAMAGES[kind](folder / name, draw)
    said += _read(folder / name)
    began = time.monotonic()
    status, printed = start(ground.workload.arguments(folder), folder.parent).wait(60)
    took = [time.monotonic() - began]
    said += bad_manners(status, printed, allowed={0, 2})
    if status == 2:
        said += _unnamed(name, printed)
        _restore(ground.origin / name, folder / name)
        return end(ground.workload, folder, ground.whole, said), took
    if not name.match("episodes/*.gz") and not name.match("checkpoints/*/*"):
        found = compare(ground.workload, folder, ground.whole, said)
        if found and name.name not in printed:
            return found, took
    return Findings(said=said), took


def _look(arguments: list[str], name: Path, folder: Path) -> list[str]:
    status, printed = start(arguments, folder.parent).wait(60)
    said = bad_manners(status, printed, allowed={0, 1, 2})
    return said + (_unnamed(name, printed) if status == 2 else [])


def _read(path: Path) -> list[str]:
    """Read what no command reads again: stored episodes and older checkpoints."""
    try:
        if path.parent.name == "episodes":
            list(read_episodes(path))
        if path.parent.parent.name == "checkpoints":
            find_checkpoint(path.parent)
    except UserError as error:
        return [] if path.name in str(error) or path.parent.name in str(error) else [str(error)]
    except Exception as error:
        return [f"{path.name}: {type(error).__name__}: {error}"]
    return []


def _unnamed(name: Path, printed: str) -> list[str]:
    """Complain about a message that does not say where the damage is."""
    flat = "".join(printed.split())
    places = (name.name, name.stem, name.parent.name or name.name)
    return [] if any(place in flat for place in places) else [f"unnamed: {printed[-300:]!r}"]


def _copy(origin: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(origin, folder)


def _restore(origin: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    shutil.copy2(origin, path)

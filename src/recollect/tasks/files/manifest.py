"""The manifest of a data folder: what it was made of and what it holds, with checksums.

Names and sizes, never the paths of the machine it was made on. A folder is built whole, or stays as
it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.files import TEMPORARY, fsync, make_folder, read_json, refusals, remove, write_text
from recollect.foreign import readable_json

NAME = "manifest.json"


@dataclass(frozen=True)
class ListedFile:
    """A file as it was when the folder was made."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What `recollect data` did."""

    name: str
    """The data set."""
    settings: Mapping[str, Any]
    counts: Mapping[str, int]
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many records were left out, by reason."""
    problems: tuple[str, ...] = ()
    """What was left out though it should not be necessary, and where."""
    inputs: tuple[ListedFile, ...] = ()
    outputs: tuple[ListedFile, ...] = ()


def checked(paths: Iterable[Path]) -> tuple[ListedFile, ...]:
    """Take the sizes and checksums of files."""
    return tuple(ListedFile(path.name, path.stat().st_size, sha256(path)) for path in paths)


def sha256(path: Path) -> str:
    """Return a file's checksum."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it into its folder."""
    write_text(folder / NAME, readable_json(asdict(manifest), indent=2) + "\n")


@contextmanager
def building(folder: Path, name: str = "build") -> Iterator[Path]:
    """Yield a folder whose files move into `folder` at the end; a failure leaves that as it was.

    `name` keeps apart what may be built at the same time.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    temporary = folder / f"{TEMPORARY}{name}"  # inside: on the same disk, so that moving is free
    remove(temporary)
    make_folder(temporary)
    try:
        with refusals(folder):
            yield temporary
            _move(temporary, folder)
    except UserError as error:
        # The user knows only the folder that was asked for.
        what, fix = (text.replace(str(temporary), str(folder)) for text in (error.what, error.fix))
        raise UserError(what, fix) from error
    finally:
        remove(temporary)
        for path in made:
            with suppress(OSError):  # only an empty folder goes
                path.rmdir()


def _move(source: Path, folder: Path) -> None:
    # The manifest last: after a kill between two moves, it is the old one that finds them changed.
    for file in sorted(source.iterdir(), key=lambda file: (file.name == NAME, file.name)):
        file.replace(folder / file.name)
    fsync(folder)


def read_manifest(folder: Path, name: str = "") -> Manifest:
    """Read a folder's manifest; its files must be there and as long as it says."""
    wanted = name or "NAME"
    fix = f"make it with `recollect data {wanted} --input FILE --output {folder}`"
    if not (folder / NAME).exists():
        raise UserError(f"there is no data for {wanted} in {folder}", fix)
    from pydantic import TypeAdapter, ValidationError  # slow to import

    try:
        manifest = TypeAdapter(Manifest).validate_python(read_json(folder / NAME, fix))
    except ValidationError as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{folder / NAME} cannot be read: {why}", fix) from None
    if name and manifest.name != name:
        raise UserError(f"{folder} holds {manifest.name}, not {name}", fix)
    for file in manifest.outputs:
        path = folder / file.name
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise UserError(f"{path} is missing or not as it was written", fix)
    return manifest

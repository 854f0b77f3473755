"""The manifest of a data folder: what it was made of and what it holds, with checksums.

Names and sizes, never the paths of the machine it was made on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recollect.disk import replacing
from recollect.errors import UserError

NAME = "manifest.json"


@dataclass(frozen=True)
class Checked:
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
    inputs: tuple[Checked, ...] = ()
    outputs: tuple[Checked, ...] = ()


def checked(paths: Iterable[Path]) -> tuple[Checked, ...]:
    """Take the sizes and checksums of files."""
    return tuple(Checked(path.name, path.stat().st_size, sha256(path)) for path in paths)


def sha256(path: Path) -> str:
    """Return a file's checksum."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it into its folder."""
    with replacing(folder / NAME) as path:
        path.write_text(json.dumps(asdict(manifest), indent=2, ensure_ascii=False) + "\n")


def read_manifest(folder: Path, name: str = "") -> Manifest:
    """Read a folder's manifest; its files must be there and as long as it says."""
    wanted = name or "NAME"
    fix = f"make it with `recollect data {wanted} --input FILE --output {folder}`"
    try:
        data = json.loads((folder / NAME).read_text())
        for key in ("inputs", "outputs"):
            data[key] = tuple(Checked(**file) for file in data[key])
        manifest = Manifest(**(data | {"problems": tuple(data["problems"])}))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"there are no data of {wanted} in {folder}", fix) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{folder / NAME} cannot be read: {error}", fix) from None
    if name and manifest.name != name:
        raise UserError(f"{folder} holds {manifest.name}, not {name}", fix)
    for file in manifest.outputs:
        path = folder / file.name
        if not path.is_file() or path.stat().st_size != file.bytes:
            raise UserError(f"{path} is missing or not as it was written", fix)
    return manifest

"""Checkpoints: folders sealed with a manifest, found whole or not used. Never a pickle."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import UserError
from recollect.files import TEMPORARY, fsync, loads, read_file, remove

MANIFEST = "MANIFEST.json"
PENDING = "pending.jsonl.gz"
"""Episodes that the run continues with: made by its settings, so of no use to any other run."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder whose files were found whole."""

    path: Path
    step: int


def write_checkpoint(folder: Path, step: int, write: Callable[[Path], None]) -> Checkpoint:
    """Let `write` fill a folder and make it `folder/step-NNNNNN`: whole, or not there at all."""
    path = folder / f"step-{step:06d}"
    temporary = folder / f"{TEMPORARY}{path.name}"
    try:
        temporary.mkdir()
        write(temporary)
        _seal(temporary, step)
        temporary.rename(path)
        fsync(folder)
    except BaseException:
        remove(temporary)
        raise
    return Checkpoint(path, step)


def copy_checkpoint(source: Checkpoint, folder: Path) -> Checkpoint:
    """Copy a checkpoint of another run into `folder`, less what only that run can continue with."""

    def copy(to: Path) -> None:
        ignore = shutil.ignore_patterns(MANIFEST, PENDING)
        shutil.copytree(source.path, to, dirs_exist_ok=True, ignore=ignore)

    return write_checkpoint(folder, source.step, copy)


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """List (step, path) of the checkpoints in `folder`, oldest first, whole or not."""
    paths = folder.glob("step-*")
    return sorted((int(path.name[5:]), path) for path in paths if path.name[5:].isdigit())


def latest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest whole checkpoint in `folder`, and what is wrong with each newer one."""
    wrong = []
    for step, path in reversed(list_checkpoints(folder)):
        try:
            found = verify(path)
        except UserError as error:
            wrong.append(error.what)
            continue
        if found.step == step:
            return found, wrong
        wrong.append(f"{path} is damaged: its manifest says step {found.step}")
    return None, wrong


def newest_step(path: Path) -> int | None:
    """Return what `find_checkpoint` would find, but look into no file."""
    if (path / "checkpoints").is_dir():
        steps = [step for step, _path in list_checkpoints(path / "checkpoints")]
    else:
        steps = [step for step, found in list_checkpoints(path.parent) if found.name == path.name]
    return max(steps, default=None)


def find_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`, or the newest whole one of the run at `path`."""
    if (path / "checkpoints").is_dir():
        latest, wrong = latest_checkpoint(path / "checkpoints")
        if latest is None:
            what = "\n  ".join([f"{path} holds no whole checkpoint", *wrong])
            raise UserError(what, "name another run or checkpoint")
        return latest
    if not path.is_dir():
        raise UserError(
            f"there is no checkpoint at {path}", "name a folder such as RUN/checkpoints/step-000010"
        )
    return verify(path)


def verify(path: Path) -> Checkpoint:
    """Check every file of a checkpoint against its manifest."""

    def damaged(why: str) -> UserError:
        return UserError(f"{path} is damaged: {why}", "name an older checkpoint, or resume auto")

    try:
        manifest = loads(read_file(path / MANIFEST))
        if missing := _files(path) - {MANIFEST, *manifest["files"]}:
            raise damaged(f"{MANIFEST} does not list {min(missing)}")
        for name, expected in manifest["files"].items():
            if not (path / name).is_file() and (path / name).exists():
                raise damaged(f"{name} is not a file")
            size = (path / name).stat().st_size
            if size != expected["size"]:
                raise damaged(f"{name} has {size} bytes, not {expected['size']}")
            if _sha256(path / name) != expected["sha256"]:
                raise damaged(f"{name} does not match its checksum")
        return Checkpoint(path, int(manifest["step"]))
    except FileNotFoundError as error:
        raise damaged(f"{Path(error.filename).name} is missing") from error
    except OSError as error:
        raise damaged(str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(f"{MANIFEST} cannot be read") from error


def _seal(folder: Path, step: int) -> None:
    """Flush every file of a checkpoint to disk and write down what each must look like."""
    files = {}
    for path in sorted(folder.rglob("*")):
        fsync(path)
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = {"size": path.stat().st_size, "sha256": _sha256(path)}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"step": step, "files": files}, indent=1), encoding="utf-8")
    fsync(manifest)
    fsync(folder)


def _files(folder: Path) -> set[str]:
    """Name the files of a checkpoint; a desktop's hidden files do not count."""
    found = (path for path in folder.rglob("*") if not path.is_dir())
    return {p.relative_to(folder).as_posix() for p in found if not p.name.startswith(".")}


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

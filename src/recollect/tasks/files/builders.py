"""Folders that `recollect data` writes for LongMemEval, BEAM, RULER and BABILong, with manifests.

A folder can be made in several runs, one per variant: each adds its files to the manifest. The same
input gives the same bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from recollect.errors import UserError
from recollect.files import make_folder, replacing
from recollect.tasks.files.findings import Findings
from recollect.tasks.files.manifest import (
    NAME,
    ListedFile,
    Manifest,
    building,
    checked,
    read_manifest,
    write_manifest,
)
from recollect.tasks.files.table import write_tasks
from recollect.tasks.haystacks.babi import FIX, TASKS, babi_files, parse_babi
from recollect.tasks.haystacks.haystack import book_paths, read_books
from recollect.types import Task


def build_tasks(
    name: str,
    variant: str,
    inputs: Sequence[Path],
    tasks: Iterable[Task],
    findings: Findings,
    output: Path,
) -> Manifest:
    """Write tasks as a variant of a data set; `findings` is filled as they are read."""
    old = read_manifest(output, name) if (output / NAME).is_file() else None
    with building(output, variant) as folder:
        path = folder / f"{variant}.parquet"
        counts = {f"{variant} tasks": write_tasks(path, tasks)}
        counts |= {f"{variant} {name}": n for name, n in sorted(findings.categories.items())}
        problems = tuple(f"{variant} {problem}" for problem in findings.problems)
        made = Manifest(name, {}, counts, {}, problems, checked(inputs), checked([path]))
        if old:
            made = _joined(old, made, variant)
        write_manifest(folder, made)
    return made


def _joined(old: Manifest, made: Manifest, variant: str) -> Manifest:
    """Join what was made with what other runs made; what was made again replaces it."""
    new = {file.name for file in (*made.inputs, *made.outputs)}
    mine = f"{variant} "

    def files(before: Sequence[ListedFile], now: Sequence[ListedFile]) -> tuple[ListedFile, ...]:
        kept = [file for file in before if file.name not in new]
        return tuple(sorted((*kept, *now), key=lambda file: file.name))

    counts = {key: n for key, n in old.counts.items() if not key.startswith(mine)}
    problems = [text for text in old.problems if not text.startswith(mine)]
    return replace(
        made,
        counts=dict(sorted({**counts, **made.counts}.items())),
        problems=(*problems, *made.problems),
        inputs=files(old.inputs, made.inputs),
        outputs=files(old.outputs, made.outputs),
    )


def build_ruler(books: Path, output: Path) -> Manifest:
    """Copy books into a folder for RULER's essays."""
    inputs, copies = _copy_books(books, output)
    manifest = Manifest(
        "ruler", {}, _measured(output), {}, (), checked(inputs), _relative(copies, output)
    )
    write_manifest(output, manifest)
    return manifest


def build_babilong(babi: Path, books: Path, output: Path) -> Manifest:
    """Copy books, and bAbI's English questions as plain files, into a folder for BABILong."""
    folder = output / "babi"
    found = {
        (task, split): text for task in TASKS for split, text in babi_files(babi, task).items()
    }
    if not found:
        raise UserError(f"{babi} holds no files of bAbI", FIX)
    counts: dict[str, int] = {}
    for (task, split), text in found.items():
        counts[f"{task} {split}"] = sum(1 for _ in parse_babi(text, task))
    inputs, copies = _copy_books(books, output)
    make_folder(folder)
    for (task, split), text in found.items():
        copies.append(folder / f"{task}_questions_{split}.txt")
        _write(copies[-1], text.encode())
    sources = [babi]
    if babi.is_dir():
        sources = sorted([*babi.rglob("*.txt"), *babi.glob("*.tar.gz")])
    manifest = Manifest(
        "babilong",
        {},
        {**counts, **_measured(output)},
        {},
        (),
        checked([*sources, *inputs]),
        _relative(copies, output),
    )
    write_manifest(output, manifest)
    return manifest


def _copy_books(books: Path, output: Path) -> tuple[list[Path], list[Path]]:
    paths = book_paths(books)
    read_books(books)  # what cannot be read is refused before anything is written
    make_folder(output / "books")
    copies = [output / "books" / path.name for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        if path.resolve() != copy.resolve():
            with replacing(copy) as temporary:
                shutil.copyfile(path, temporary)
    return paths, copies


def _measured(output: Path) -> Mapping[str, int]:
    source = read_books(output / "books")
    return {"sentences": len(source.sentences), "tokens": round(source.ends[-1])}


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _relative(paths: Sequence[Path], folder: Path) -> tuple[ListedFile, ...]:
    return tuple(
        replace(file, name=path.relative_to(folder).as_posix())
        for file, path in zip(checked(paths), paths, strict=True)
    )

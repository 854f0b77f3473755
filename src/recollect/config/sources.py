"""The source of your own modules: it is stored with a run, and imported again from there."""

from __future__ import annotations

import ast
import hashlib
import inspect
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect import files as disk
from recollect.config import cells
from recollect.config.modules import import_from, is_installed, is_users, name_of
from recollect.errors import UserError
from recollect.files import read_file
from recollect.foreign import redact


@dataclass(frozen=True)
class Source:
    """The source of a module that is not ours."""

    module: str
    path: Path
    """Its file; of a notebook the name that it gets."""
    content: bytes
    relative: str
    """Where the file is below its root, such as mine.py or package/agents.py."""
    sha256: str
    installed: bool
    """Whether it came from site-packages: then every node has to have it installed."""
    late: bool = False
    """Whether it was not imported yet: a function that runs later does."""
    names: tuple[str, ...] = ()
    """What the run uses of a notebook."""


def sources(items: Iterable[Any]) -> list[Source]:
    """Return the sources of users' classes and functions, with what they import beside them."""
    items = list(items)
    found: dict[str, Source] = {}
    defined = [(i, str(getattr(i, "__module__", ""))) for i in items]
    if (own := [i for i, module in defined if module == cells.MAIN]) and cells.is_interactive():
        found[cells.MAIN] = _notebook(own)
    named = {name for i, module in defined for name in (module, name_of(i).partition(":")[0])}
    left = {name: path for name in named if (path := _file_of(name))}
    while left:
        name, path = left.popitem()
        source = found[name] = _source(name, path)
        near = {parent: _file_of(parent) for parent in [name.rpartition(".")[0]]}
        near |= {} if source.installed else _beside(source)
        left |= {name: path for name, path in near.items() if path and name not in found}
    return [found[name] for name in sorted(found)]


def _file_of(name: str) -> Path | None:
    """Return the file of a module of the user's that is imported."""
    module = sys.modules.get(name)
    return Path(str(module.__file__)).resolve() if module and is_users(module) else None


def _source(name: str, path: Path) -> Source:
    depth = name.count(".") + (path.name == "__init__.py")
    relative = Path(*path.parts[-1 - depth :]).as_posix()
    content = path.read_bytes()
    late = name not in sys.modules
    return Source(name, path, content, relative, _hash(content), is_installed(path), late)


def _notebook(items: list[Any]) -> Source:
    """Return the cells of a notebook that define some of its classes and functions."""
    content = redact(cells.source_of(items)).encode()
    names = tuple(sorted({name_of(item).partition(":")[2] for item in items} - {""}))
    path = Path("notebook.py")
    return Source(cells.MAIN, path, content, path.name, _hash(content), False, names=names)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _beside(source: Source) -> dict[str, Path]:
    """Return the modules that one imports, maybe only later, and that lie below the same root."""
    root = source.path.parents[source.relative.count("/")]
    names = set(_imported(source))
    for item in vars(sys.modules[source.module]).values() if not source.late else ():
        named = item if inspect.ismodule(item) else getattr(item, "__module__", "")
        names.add(str(getattr(named, "__name__", named)))
    files = {name: _file_of(name) or _file_below(root, name) for name in names if name}
    return {
        name: path
        for name, path in files.items()
        if path and path.is_relative_to(root) and not is_installed(path)
    }


def _file_below(root: Path, name: str) -> Path | None:
    """Return where a module that is not imported would lie; looking for it imports nothing."""
    below = root.joinpath(*name.split("."))
    found = (below.with_name(f"{below.name}.py"), below / "__init__.py")
    return next((path for path in found if name not in sys.modules and path.is_file()), None)


def _imported(source: Source) -> Iterator[str]:
    """Yield the names in a module's import statements, wherever they are in it."""
    package = source.module if source.path.name == "__init__.py" else ""
    package = package or source.module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source.content)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            above = ".".join(parents) if node.level else ""
            base = ".".join(filter(None, (above, node.module or "")))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def table_of(found: Iterable[Source]) -> dict[str, dict[str, str]]:
    """Describe sources for the settings of a run."""
    return {
        source.module: {"sha256": source.sha256}
        | ({} if source.installed else {"file": f"code/{source.relative}"})
        | ({"imported": "late"} if source.late else {})
        | ({"names": " ".join(source.names)} if source.names else {})
        for source in found
    }


def copy_sources(found: Iterable[Source], folder: Path) -> None:
    """Copy sources into a run's folder."""
    for source in found:
        if not source.installed:
            place = folder / "code" / source.relative
            place.parent.mkdir(parents=True, exist_ok=True)
            with disk.refusals(place), disk.replacing(place) as temporary:
                temporary.write_bytes(source.content)


def keep_replaced(found: Iterable[Source], folder: Path) -> list[str]:
    """Keep the copies in a run's folder that others are about to replace; say where they are."""
    notes = []
    for source in found:
        place = folder / "code" / source.relative
        if source.installed or not place.is_file() or source.content == (old := read_file(place)):
            continue
        kept = folder / f"code-{_hash(old)[:8]}" / source.relative
        with disk.refusals(kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(old)
        notes.append(f"{source.relative} has changed since this run began: it was {kept}")
    return notes


def import_stored(table: Mapping[str, Mapping[str, str]], folder: Path) -> None:
    """Import a run's modules from its folder; refuse one that the run did not start with."""
    for name, entry in table.items():
        _check_hash(name, entry, folder)
    for name in sorted(table):
        if name == cells.MAIN:
            _check_main(table[name], folder)
            continue
        module = sys.modules.get(name)
        if module is None and table[name].get("imported") == "late":
            continue
        if module is None:
            root = (folder / "code").resolve() if "file" in table[name] else None
            module = import_from(name, root)
        actual = _hash(Path(str(module.__file__)).read_bytes())
        if actual != table[name]["sha256"]:
            raise _differs(name, str(module.__file__), "give the changed file another name, or ")


def _check_main(entry: Mapping[str, str], folder: Path) -> None:
    """Refuse a run of another script or notebook: its classes and functions are not here."""
    stored = folder / entry.get("file", "code")
    if _main_hash(entry.get("names", "").split()) == entry["sha256"]:
        return
    raise UserError(
        "a part of the run was defined in a script or a notebook that is not the one running;"
        f" its source is in {stored}",
        "run that again and train from there, or copy it to a file and name it as module:Name",
    )


def _main_hash(names: list[str]) -> str:
    """Hash the script that runs, or the cells that define some names, or return an empty text."""
    main = sys.modules[cells.MAIN]
    if cells.is_interactive():
        found = [vars(main).get(name.partition(".")[0]) for name in names]
        return _notebook(found).sha256 if found and all(found) else ""
    path = Path(str(getattr(main, "__file__", None)))
    return _hash(read_file(path)) if path.is_file() else ""


def _check_hash(name: str, entry: Mapping[str, str], folder: Path) -> None:
    if "file" not in entry:
        return
    path = folder / entry["file"]
    try:
        actual = _hash(read_file(path))
    except OSError as error:
        raise UserError(
            f"the run's module {name} is missing: {path} ({error.strerror})",
            "let every node see the run's folder under the same name",
        ) from None
    if actual != entry["sha256"]:
        raise _differs(name, str(path))


def _differs(name: str, path: str, first: str = "") -> UserError:
    return UserError(
        f"the module {name} differs from the one that the run was started with: {path} on"
        f" {socket.gethostname()}",
        f"{first}let every node see the same run folder and the same installed packages, and start"
        " again",
    )

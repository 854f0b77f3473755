"""Your own modules: find what `module:Name` or `path/to/file.py:Name` names, and keep its source.

A module is looked for first in the current folder, or beside the file that names it. Nothing is
imported but modules that a person named, on the command line, in a file of settings or in those of
a run that they ask for.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import inspect
import re
import socket
import sys
import sysconfig
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from recollect import files as disk
from recollect.errors import UserError, place_of, show_place

Loader = Callable[[str], Any]
"""Returns what `module:Name` names."""
_NAMED = re.compile(r"(?P<module>[^:\n]+):(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_named(text: str) -> bool:
    """Tell whether a text has the form `module:Name` or `path/to/file.py:Name`."""
    found = _NAMED.fullmatch(text)
    return bool(found and (found["module"].endswith(".py") or _MODULE.fullmatch(found["module"])))


def load(text: str, folder: Path | None = None) -> Any:
    """Import the module that a text names, and return what it calls Name.

    It is looked for in `folder`, by default the current one, before anywhere else.
    """
    found = _NAMED.fullmatch(text)
    if not is_named(text) or found is None:
        raise UserError(
            f"{text!r} names nothing",
            "write module:Name, or path/to/file.py:Name",
        )
    module = import_own(found["module"], folder)
    value: Any = module
    for part in unicodedata.normalize("NFKC", found["name"]).split("."):  # as Python reads names
        if not hasattr(value, part):
            own = [name for name, item in vars(module).items() if _is_public(module, name, item)]
            close = difflib.get_close_matches(part, own, 3) or sorted(own)
            raise UserError(
                f"{_shown(module)} has no {found['name']}",
                f"choose from {', '.join(close)}" if close else "define it there",
            )
        value = getattr(value, part)
    return value


def import_own(name: str, folder: Path | None = None) -> ModuleType:
    """Import a module by its name or by the path of its file."""
    here = folder or Path.cwd()
    if name.endswith(".py"):
        path = here / Path(name).expanduser()
        if not path.is_file():
            raise UserError(f"there is no file {name}", "name an existing file, as file.py:Name")
        if not path.stem.isidentifier():
            raise UserError(
                f"{name} cannot be imported under the name {path.stem!r}",
                "give the file a name of letters, digits and underscores",
            )
        module, root = path.stem, path.resolve().parent
        while (root / "__init__.py").is_file():  # of a package, so that it may import relatively
            module, root = f"{root.name}.{module}", root.parent
        return _import(module, root)
    first = name.partition(".")[0]
    if first == "recollect":
        return _import(name, None)
    if (here / f"{first}.py").is_file() or (here / first).is_dir():
        return _import(name, here)
    return _import(name, None, here)


def _import(name: str, root: Path | None, searched: Path | None = None) -> ModuleType:
    """Import a module; one that lies in `root` must come from there."""
    importlib.invalidate_caches()
    try:
        with _first_on_path(root):
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"there is no module {name}: it is neither in {searched or root or Path.cwd()} nor"
                " installed",
                "run the command in the folder of the file, or write path/to/file.py:Name",
            ) from None
        raise _failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error
    if root is not None and not _lies_in(module, root):
        raise UserError(
            f"{name} is also the name of another module ({_shown(module)})",
            f"give {root / name.replace('.', '/')}.py another name",
        )
    return module


def _failed(name: str, error: BaseException) -> UserError:
    """Say where the import of a module failed."""
    place = place_of(error)
    said = str(error)
    if isinstance(error, SyntaxError) and error.filename:
        place, said = show_place(error.filename, error.lineno or 1), error.msg
    what = error.what if isinstance(error, UserError) else f"{type(error).__name__}: {said}"
    return UserError(f"{place or name}: {what} (while importing {name})", "correct that line")


@contextmanager
def _first_on_path(root: Path | None) -> Iterator[None]:
    """Search `root` first during an import, and last from then on: functions may import too."""
    if root is None:
        yield
        return
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        if str(root) not in sys.path:
            sys.path.append(str(root))


def _lies_in(module: ModuleType, root: Path) -> bool:
    places = [module.__file__] if getattr(module, "__file__", None) else list(module.__path__)
    return any(Path(place).resolve().is_relative_to(root.resolve()) for place in places if place)


def _is_public(module: ModuleType, name: str, item: Any) -> bool:
    return not name.startswith("_") and getattr(item, "__module__", None) == module.__name__


def _shown(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


# What travels with a run


@dataclass(frozen=True)
class Source:
    """The source of a module that is not ours."""

    module: str
    path: Path
    relative: str
    """Where the file is below its root, such as mine.py or package/agents.py."""
    sha256: str
    installed: bool
    """Whether it came from site-packages: then every node has to have it installed."""
    late: bool = False
    """Whether it was not imported yet: a function that runs later does."""


def name_of(value: Any) -> str:
    """Return the module:Name under which a value can be loaded; empty if there is none.

    What has no name of its own, such as a partial or a function made by another one, has the name
    that a module gives it.
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    owner = getattr(value, "__self__", None)
    method = owner is not None and not inspect.isclass(owner) and not inspect.ismodule(owner)
    if _NAMED.fullmatch(f"{module}:{name}") and not method:
        return f"{module}:{name}"
    for own in (m for m in sys.modules.copy().values() if isinstance(m, ModuleType)):
        names = [name for name, item in vars(own).items() if item is value]
        if names and _is_users(own):
            return f"{own.__name__}:{names[0]}"
    return ""


def sources(items: Iterable[Any]) -> list[Source]:
    """Return the sources of users' classes and functions, with what they import beside them."""
    found: dict[str, Source] = {}
    named = {name for i in items for name in (str(i.__module__), name_of(i).partition(":")[0])}
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
    return Path(str(module.__file__)).resolve() if module and _is_users(module) else None


def _source(name: str, path: Path) -> Source:
    depth = name.count(".") + (path.name == "__init__.py")
    relative = Path(*path.parts[-1 - depth :])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    late = name not in sys.modules
    return Source(name, path, relative.as_posix(), digest, _is_installed(path), late)


def _is_users(module: ModuleType) -> bool:
    file = str(getattr(module, "__file__", None))
    ours = module.__name__.partition(".")[0] == "recollect"
    return file.endswith(".py") and not ours and not _is_library(Path(file))


def _is_library(path: Path) -> bool:
    stdlib = Path(sysconfig.get_path("stdlib"))
    return path.is_relative_to(stdlib) and not _is_installed(path)


def _is_installed(path: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


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
        if path and path.is_relative_to(root) and not _is_installed(path)
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
    for node in ast.walk(ast.parse(source.path.read_bytes())):
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
        for source in found
    }


def copy_sources(found: Iterable[Source], folder: Path) -> None:
    """Copy sources into a run's folder."""
    for source in found:
        if not source.installed:
            place = folder / "code" / source.relative
            place.parent.mkdir(parents=True, exist_ok=True)
            with disk.refusals(place), disk.replacing(place) as temporary:
                temporary.write_bytes(source.path.read_bytes())


def import_stored(table: Mapping[str, Mapping[str, str]], folder: Path) -> None:
    """Import a run's modules from its folder; refuse one that the run did not start with."""
    for name, entry in table.items():
        _check_hash(name, entry, folder)
    for name in sorted(table):
        if name == "__main__":
            raise UserError(
                "a part of the run was defined in a script or a notebook, which cannot be imported",
                "define it in a file of its own and name it as module:Name",
            )
        module = sys.modules.get(name)
        if module is None and table[name].get("imported") == "late":
            continue
        if module is None:
            root = (folder / "code").resolve() if "file" in table[name] else None
            module = _import(name, root)
        actual = hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()
        if actual != table[name]["sha256"]:
            raise _differs(name, str(module.__file__))


def _check_hash(name: str, entry: Mapping[str, str], folder: Path) -> None:
    if "file" not in entry:
        return
    path = folder / entry["file"]
    try:
        actual = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(
            f"the run's module {name} is missing: {path} ({error.strerror})",
            "let every node see the run's folder under the same name",
        ) from None
    if actual != entry["sha256"]:
        raise _differs(name, str(path))


def _differs(name: str, path: str) -> UserError:
    return UserError(
        f"the module {name} differs from the one that the run was started with: {path} on"
        f" {socket.gethostname()}",
        "let every node see the same run folder and the same installed packages, and start again",
    )

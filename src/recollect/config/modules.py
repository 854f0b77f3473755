"""Your own modules: find what `module:Name` or `path/to/file.py:Name` names.

A module is looked for first in the current folder, or beside the file that names it. Nothing is
imported but modules that a person named, on the command line, in a file of settings or in those of
a run that they ask for.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
import sysconfig
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from recollect.errors import UserError, place_of, show_place

Loader = Callable[[str], Any]
"""Returns what `module:Name` names."""
_STDLIB = Path(sysconfig.get_path("stdlib"))
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
    return named_in(import_own(found["module"], folder), found["name"])


def named_in(module: ModuleType, name: str) -> Any:
    """Return what a module calls by a name."""
    value: Any = module
    for part in unicodedata.normalize("NFKC", name).split("."):  # as Python reads names
        if not hasattr(value, part):
            own = [name for name, item in vars(module).items() if _is_public(module, name, item)]
            close = difflib.get_close_matches(part, own, 3) or sorted(own)
            raise UserError(
                f"{_shown(module)} has no {name}",
                f"choose from {', '.join(close)}" if close else "define it there",
            )
        value = getattr(value, part)
    return value


def is_here(text: str) -> bool:
    """Tell whether `module:Name` names a file that a person has in, or from, the current folder."""
    name = text.rpartition(":")[0]
    if name.endswith(".py"):
        return Path(name).expanduser().is_file()
    first = Path(name.partition(".")[0])
    return is_named(text) and (first.with_name(f"{first}.py").is_file() or first.is_dir())


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
                "give the file a name of letters, digits and underscores that begins with a letter",
            )
        module, root = path.stem, path.resolve().parent
        while (root / "__init__.py").is_file():  # of a package, so that it may import relatively
            module, root = f"{root.name}.{module}", root.parent
        found = import_from(module, root)
        if found.__file__ and Path(found.__file__).resolve() != path.resolve():
            _refuse_changed(found, root)
        return found
    first = name.partition(".")[0]
    if first == "recollect":
        return import_from(name, None)
    if (here / f"{first}.py").is_file() or (here / first).is_dir():
        return import_from(name, here)
    return import_from(name, None, here)


def import_from(name: str, root: Path | None, searched: Path | None = None) -> ModuleType:
    """Import a module; one that lies in `root` must come from there."""
    importlib.invalidate_caches()
    try:
        with _first_on_path(root), chdir(Path.cwd()):  # one that changes it means itself alone
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
        _refuse_changed(module, root)
    return module


def _refuse_changed(module: ModuleType, root: Path) -> None:
    """Refuse a module from elsewhere, unless it is a stored copy of what `root` still holds."""
    if not _is_copy(module, root):
        name = module.__name__
        if _stored_in(module):
            raise UserError(
                f"{root / name.replace('.', '/')}.py, or what it imports, differs from a run's"
                f" copy ({_shown(module)}), and one command can use only one of them",
                "give the changed file another name, or leave one of them to a command of its own",
            )
        raise UserError(
            f"{name} is also the name of another module ({_shown(module)})",
            f"give {root / name.replace('.', '/')}.py another name",
        )


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
    if (stored := _stored_in(module)) and stored.resolve() != root.resolve():
        return False  # a run's folder may lie in `root`, but its copies are no modules of that
    places = [module.__file__] if getattr(module, "__file__", None) else list(module.__path__)
    return any(Path(place).resolve().is_relative_to(root.resolve()) for place in places if place)


def _is_copy(module: ModuleType, root: Path) -> bool:
    """Tell whether a run imported its stored copy of what is in `root`, and nothing has changed."""
    if not (stored := _stored_in(module)):
        return False
    pairs = [(path, root / path.relative_to(stored)) for path in stored.rglob("*.py")]
    return all(own.is_file() and own.read_bytes() == path.read_bytes() for path, own in pairs)


def _stored_in(module: ModuleType) -> Path | None:
    """Return the folder of a run's copies that a module was imported from."""
    file = Path(str(getattr(module, "__file__", None)))
    stored = next((parent for parent in file.parents if parent.name == "code"), None)
    return stored if stored and (stored.parent / "config.json").is_file() else None


def _is_public(module: ModuleType, name: str, item: Any) -> bool:
    return not name.startswith("_") and getattr(item, "__module__", None) == module.__name__


def _shown(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


def name_of(value: Any) -> str:
    """Return the module:Name under which a value can be loaded, or an empty text.

    What has no name of its own, such as a partial or a function made by another one, has the name
    that a module gives it.
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    owner = getattr(value, "__self__", None)
    method = owner is not None and not inspect.isclass(owner) and not inspect.ismodule(owner)
    if _NAMED.fullmatch(f"{module}:{name}") and not method:
        return f"{module}:{name}"
    known = sys.modules.copy()  # thousands, of which few are a user's
    if main := known.pop("__main__", None):
        known["__main__"] = main  # last: a script may have it from a module
    for own in known.values():
        # To ask a lazy module for what it does not have would import more.
        if isinstance(own, ModuleType) and "__file__" in vars(own) and is_users(own):
            for name, item in vars(own).items():
                if item is value:
                    return f"{own.__name__}:{name}"
    return ""


def is_users(module: ModuleType) -> bool:
    ours = module.__name__.partition(".")[0] == "recollect"
    return not ours and _is_users_file(str(getattr(module, "__file__", None)))


@cache
def _is_users_file(file: str) -> bool:
    return file.endswith(".py") and not _is_library(Path(file))


def _is_library(path: Path) -> bool:
    return path.is_relative_to(_STDLIB) and not is_installed(path)


def is_installed(path: Path) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)

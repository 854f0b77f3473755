"""Settings as tables: lay one over frozen dataclasses, or make one of them that can be read back.

The same for files of stages, files of experiments and the settings of stored runs, with the same
checks as on the command line. A part of a run names its class: `class = "mine:TwoPass"`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import enum
import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from recollect.agents.base import Agent
from recollect.agents.function import FunctionAgent
from recollect.chat.tools import Tool, as_tool
from recollect.config.modules import Loader, is_named, load, name_of
from recollect.config.parts import agent_named, reward_named, tasks_named
from recollect.errors import UserError
from recollect.rewards.base import Reward
from recollect.rewards.function import FunctionReward
from recollect.tasks.base import TaskFamily
from recollect.tasks.function import FunctionTasks

T = TypeVar("T")
Where = Callable[[str], str]
"""Says where the setting of a dotted name is, for people."""
CLASS = "class"
"""The key that names the class of a part."""
LOST = "not written"
"""The key of what no file can hold of an object; to read it is refused."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
PARTS: dict[Any, Callable[..., Any]] = {
    Agent: agent_named,
    Reward: reward_named,
    TaskFamily: tasks_named,
}
_FUNCTIONS = (FunctionAgent, FunctionReward, FunctionTasks)


def overlay(
    config: T,
    table: Mapping[str, Any],
    where: Where,
    prefix: str = "",
    load: Loader = load,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> T:
    """Return `config` with what the table names replaced, and with the objects that are given."""
    changes = _read(type(config), config, table, where, prefix, load)
    with _placed(where):
        return dataclasses.replace(config, **changes, **given)  # type: ignore[type-var]


def build(
    kind: type[T], table: Mapping[str, Any], where: Where, prefix: str = "", load: Loader = load
) -> T:
    """Make a dataclass of a table; what the table does not name has its default."""
    values = _read(kind, None, table, where, prefix, load)
    required = {
        spec.name
        for spec in dataclasses.fields(kind)  # type: ignore[arg-type]
        if spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
    }
    if missing := sorted(required - values.keys()):
        names = ", ".join(prefix + name for name in missing)
        raise UserError(f"{where('')}: {names} is missing", f"set {names}")
    with _placed(where):
        return kind(**values)


class _placed:
    """Say where settings are that are refused together."""

    def __init__(self, where: Where) -> None:
        self.where = where

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, UserError):
            raise UserError(f"{self.where('')}: {error.what}", error.fix) from error


def _read(
    kind: type, current: Any, table: Mapping[str, Any], where: Where, prefix: str, load: Loader
) -> dict[str, Any]:
    """Read the settings of a table, by the fields of a dataclass."""
    specs = {spec.name: spec for spec in dataclasses.fields(kind) if spec.init}
    hints = hints_of(kind)
    keys = {name: name.replace("-", "_") for name in table}
    for name, key in keys.items():  # before any value, as a clash may come of the name
        if key not in specs:
            close = difflib.get_close_matches(key, specs, 3) or list(specs)
            raise UserError(
                f"{where(prefix + name)}: there is no setting {prefix + name}",
                f"choose from {', '.join(prefix + one for one in close)}",
            )
    found: dict[str, Any] = {}
    for name, value in table.items():
        dotted, key = prefix + name, keys[name]
        own = getattr(current, key) if current is not None else _default(specs[key])
        found[key] = _value(hints.get(key, Any), own, value, where, dotted, load)
    return found


def _value(hint: Any, current: Any, value: Any, where: Where, dotted: str, load: Loader) -> Any:
    """Read one setting: a part, a section, a function by name, or plain data."""
    if current is not dataclasses.MISSING and to_table(current, hint) == value:
        return current
    if isinstance(value, Mapping) and LOST in value:
        raise UserError(
            f"{where(dotted)}: {dotted} could not be written down: {value[LOST]}",
            "type the command that began with it; fields of a frozen dataclass that are texts,"
            " numbers, lists or dataclasses can be",
        )
    if isinstance(value, Mapping) and CLASS in value:
        rest = {key: item for key, item in value.items() if key != CLASS}
        part = _part(hint, current, value[CLASS], where, dotted, load)
        if rest and not dataclasses.is_dataclass(part):
            return _constructed(type(part), rest, where, dotted)
        return overlay(part, rest, where, f"{dotted}.", load) if rest else part
    if hint in PARTS and isinstance(value, str):
        return _part(hint, current, value, where, dotted, load)
    if dataclasses.is_dataclass(current) and not isinstance(current, type):
        if not isinstance(value, Mapping):
            inner = dataclasses.fields(current)[0].name
            raise UserError(
                f"{where(dotted)}: {dotted} is {value!r}, but it has settings of its own",
                f"set one of them, such as {dotted}.{inner}",
            )
        return overlay(current, value, where, f"{dotted}.", load)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(hint, value, where, f"{dotted}.", load)  # type: ignore[arg-type]
    if takes(hint, Tool):
        names = value.split(",") if isinstance(value, str) else value
        return tuple(as_tool(load(name)) for name in _checked(list[str], names, where, dotted))
    if takes_functions(hint):
        return _functions(hint, value, where, dotted, load)
    return _checked(hint, value, where, dotted)


def _part(hint: Any, current: Any, name: Any, where: Where, dotted: str, load: Loader) -> Any:
    """Make the object that a class's name stands for."""
    if not isinstance(name, str):
        raise UserError(f"{where(dotted)}: {dotted}.class is {name!r}", "write module:Name")
    try:
        if hint in PARTS:
            own = None if current is dataclasses.MISSING else current
            return PARTS[hint](name, own, load)
        made = load(name)
        return made() if inspect.isclass(made) else made
    except UserError as error:
        raise UserError(f"{where(dotted)}: {dotted}: {error.what}", error.fix) from error


def _constructed(kind: type, settings: Mapping[str, Any], where: Where, dotted: str) -> Any:
    """Make an object of a plain class from the arguments that it was made with."""
    try:
        return kind(**settings)
    except Exception as error:
        raise UserError(
            f"{where(dotted)}: {dotted}: {kind.__name__} cannot be made again"
            f" ({type(error).__name__}: {error})",
            f"make {kind.__name__} a frozen dataclass: its fields are then its settings",
        ) from error


def _functions(hint: Any, value: Any, where: Where, dotted: str, load: Loader) -> Any:
    """Load functions and classes that are given by name, alone or in a list."""
    if isinstance(value, str):
        return load(value) if is_named(value) else _checked(str, value, where, dotted)
    if isinstance(value, list):
        loaded = [_functions(hint, item, where, dotted, load) for item in value]
        return loaded if list in (hint, get_origin(hint)) else tuple(loaded)
    return _checked(hint, value, where, dotted)


def takes(hint: Any, kind: type) -> bool:
    """Tell whether a type holds a class's objects somewhere."""
    return hint is kind or any(takes(part, kind) for part in get_args(hint))


def takes_functions(hint: Any) -> bool:
    """Tell whether a type holds functions or classes somewhere."""
    if get_origin(hint) in (Callable, type) or hint in (Callable, type):
        return True
    return any(takes_functions(part) for part in get_args(hint))


def _checked(hint: Any, value: Any, where: Where, dotted: str) -> Any:
    """Return the value as its type, or say what it should be."""
    kinds = (kind for kind in (hint, *get_args(hint)) if inspect.isclass(kind))
    for kind in kinds if isinstance(value, str) else ():
        if issubclass(kind, enum.Enum) and value in kind.__members__.keys() - {*_values(kind)}:
            return kind[value]
    try:
        # As JSON: lists become tuples and texts paths, but "5" does not become 5.
        return TypeAdapter(hint).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        wanted = error.errors()[0]["msg"].removeprefix("Input ")
        raise UserError(f"{where(dotted)}: {dotted} is {value!r}", f"{dotted} {wanted}") from error
    except PydanticUserError:
        raise UserError(
            f"{where(dotted)}: {dotted} cannot be set: it is a {hint}", "leave it out"
        ) from None


def _values(kind: type[enum.Enum]) -> list[str]:
    return [str(member.value) for member in kind]


def _default(spec: dataclasses.Field[Any]) -> Any:
    if spec.default_factory is not dataclasses.MISSING:
        return spec.default_factory()
    return spec.default


def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields; none if they name what only a checker imports."""
    try:
        return get_type_hints(kind)
    except NameError:
        return {}


# Writing


def to_table(value: Any, hint: Any = None) -> Any:
    """Turn a setting into JSON's types; `hint` is its declared type, if that is known."""
    if isinstance(value, enum.Enum):
        known = isinstance(value.value, bool | int | float | str)
        return value.value if known else value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_table(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):  # which every process has in another order
        return sorted(map(to_table, value), key=json.dumps)
    if isinstance(value, list | tuple) and hint not in PARTS:
        return [to_table(item) for item in value]
    if inspect.isroutine(value) or inspect.isclass(value):
        return name_of(value) or f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, Tool):
        return to_table(value.function)
    if isinstance(value, functools.partial):
        return name_of(value) or f"functools:partial({to_table(value.func)})"
    return _object(value, hint)


def _object(value: Any, hint: Any) -> dict[str, Any]:
    """Write an object as the settings that it is made of, with its class where that is open."""
    kind = type(value)
    lost = _lost(value)
    own_name = "" if dataclasses.is_dataclass(kind) else name_of(value)
    # In a script or a notebook the same name may soon be another object's.
    if own_name and (lost or not own_name.startswith("__main__:") or not _settings(kind)):
        return {CLASS: own_name}
    named = f"{kind.__module__}:{kind.__qualname__}"
    if _is_library(kind) and not isinstance(value, tuple):
        return _of_library(value, named)
    hints = hints_of(kind)
    names = [name for name in _settings(kind) if hasattr(value, name)]
    if isinstance(value, _FUNCTIONS):
        named = to_table(value.function)
        named = named[CLASS] if isinstance(named, dict) else named
        names.remove("function")
    own = {name: to_table(getattr(value, name), hints.get(name)) for name in names}
    if lost:
        own[LOST] = f"{kind.__name__} has no attribute {' and no '.join(lost)}"
    return own if hint is kind else {CLASS: named, **own}


def _lost(value: Any) -> list[str]:
    """Name what a user's object was made of and does not keep; what is as usual is not lost."""
    kind = type(value)
    lost = [n for n in _settings(kind) if not hasattr(value, n)] if is_plain_class(kind) else []
    if lost:
        kept = {name: getattr(value, name) for name in _settings(kind) if name not in lost}
        with contextlib.suppress(Exception):  # of a user's code
            if vars(kind(**kept)) == vars(value):
                return []
    return lost


def _of_library(value: Any, named: str) -> Any:
    """Write what a field of its type reads again, such as a date, or say what it was."""
    kind = type(value)
    with contextlib.suppress(PydanticUserError, ValueError):
        fields = TypeAdapter(kind)
        written = fields.dump_json(value)
        if fields.validate_json(written, strict=True) == value:
            return json.loads(written)
    return {CLASS: named, LOST: f"it was {_ADDRESS.sub('', f'{value!r:.80}')}"}


def is_plain_class(kind: Any) -> bool:
    """Tell whether objects of a user's class are known by the arguments of its `__init__`."""
    ours = kind.__module__.partition(".")[0] == "recollect"
    fielded = dataclasses.is_dataclass(kind) or issubclass(kind, tuple | enum.Enum)
    written = hasattr(kind, "model_fields") or hasattr(kind, "__attrs_attrs__")
    return not (ours or fielded or written or _is_library(kind))


def _is_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names - {"__main__"}


def _settings(kind: type) -> list[str]:
    """Name what an object of a class is made from; the rest it computes."""
    if dataclasses.is_dataclass(kind):
        return [spec.name for spec in dataclasses.fields(kind) if spec.init]
    try:
        taken = inspect.signature(kind).parameters.values()
        return [p.name for p in taken if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    except (TypeError, ValueError):
        return []

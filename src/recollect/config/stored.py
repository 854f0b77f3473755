"""A run's settings as a file that can be read back, with the source of what is the user's own.

    config.json     every setting; the agent, the reward and the tasks name their classes
    code/mine.py    the modules that they come from, as they were when the run started

Reading imports our own modules, and those of the user that the file names with their hash.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from recollect import files as disk
from recollect.config import cells, modules, sources
from recollect.config.overlay import Where, build, to_table
from recollect.config.train import MAY_CHANGE, TrainConfig
from recollect.errors import UserError

CODE = "code"
"""The key of the table of modules, and the folder that holds them."""
COMPUTED = (CODE, "learning")
"""Keys of a file that are no settings."""
_FUNCTIONS = ("recollect.metrics.", "recollect.memory.changes")
"""Our modules whose functions may be settings; of others only dataclasses may."""


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """Return a run's settings for its file, with what has to be the same when it is resumed."""
    table: dict[str, Any] = to_table(config, TrainConfig)
    return table | {CODE: sources.table_of(own_sources(config)), "learning": config.models.learning}


def deciding(config: TrainConfig) -> dict[str, str]:
    """Return what decides what a run learns, with the user's own code: dotted names, as JSON."""
    free = [name for name in MAY_CHANGE if name != CODE]
    return {
        name: json.dumps(value, default=disk.plain)
        for name, value in disk.dotted(settings_of(config))
        if not any(name == one or name.startswith(f"{one}.") for one in free)
    }


def write_settings(path: Path, config: TrainConfig) -> None:
    """Write settings and sources, whole or not at all."""
    sources.copy_sources(own_sources(config), path.parent)
    with disk.refusals(path), disk.replacing(path) as temporary:
        temporary.write_text(json.dumps(settings_of(config), indent=1) + "\n", "utf-8")


def refuse_other_code(config: TrainConfig, folder: Path) -> None:
    """Refuse to continue a run with other code of the user's than it was trained with.

    A run without a checkpoint starts again, and may change it. So may a script that trains: it also
    says for how many steps.
    """
    path = folder / "config.json"
    if str(config.resume) == "never" or not is_begun(folder) or not path.is_file():
        return
    found = disk.read_json(path, "restore it from a copy").get(CODE)
    then, now = found if isinstance(found, dict) else {}, sources.table_of(own_sources(config))
    changed = [
        name
        for name in sorted(then.keys() & now.keys() - {cells.MAIN})
        if then[name].get("sha256") != now[name]["sha256"]
    ]
    if changed:
        raise UserError(
            f"{folder} was trained with other code: the module {', '.join(changed)} has changed",
            f"put back that code (a copy is in {folder / CODE}), or choose another --name; without"
            f" a cluster, --resume {folder} beside that starts from what this run has learned",
        )


def is_begun(folder: Path) -> bool:
    """Tell whether a run has a checkpoint, of whichever engine, to continue from."""
    kept = folder / "checkpoints"
    return any(path for name in ("step-*", "global_step_*") for path in kept.glob(name))


def read_settings(path: Path) -> TrainConfig:
    """Read the settings of a run, and import the modules that they name."""
    fix = "name the folder of a run"
    try:
        table = disk.read_json(path, fix)
    except UserError as error:
        raise UserError(f"{path} holds no settings of a run: {error.what}", fix) from None
    if "tasks" not in table or "agent" not in table:
        raise UserError(f"{path} holds no settings of a run", fix)
    return settings_from(table, path, lambda _dotted: str(path))


def settings_from(table: Mapping[str, Any], path: Path, where: Where) -> TrainConfig:
    """Make settings of the table in a run's file, and import the modules that came with it."""
    for part in ("agent", "reward", "tasks"):
        if not isinstance(table.get(part), dict) or "class" not in table[part]:
            raise UserError(
                f"{path} was written by another version of recollect: {part} names no class",
                "start the run again with this version",
            )
    code = table.get(CODE, {})
    own = {key: value for key, value in table.items() if key not in COMPUTED}
    sources.import_stored(code, path.parent)
    return build(TrainConfig, own, where, load=_loader(path, code))


def _loader(path: Path, code: Mapping[str, Any]) -> modules.Loader:
    """Load our own dataclasses and metrics, and anything of the modules that came with the run."""

    def load(text: str) -> Any:
        module, _, name = text.partition(":")
        if "<" in name:
            raise UserError(
                f"{path} names {text}, which no module has: it was made inside of a function",
                "assign it to a name at the top level of its module, and start the run again",
            )
        if module in code:
            # As `import_stored` has it: a file of that name in the current folder may be another.
            return modules.named_in(modules.import_from(module, None), name)
        if not module.startswith("recollect.") or "." in name:
            raise UserError(
                f"{path} names {text}, but {module} is not a module of the run",
                "start the run again, and name your module on the command line",
            )
        found = modules.load(text)
        if dataclasses.is_dataclass(found) or (
            inspect.isfunction(found) and module.startswith(_FUNCTIONS)
        ):
            return found
        raise UserError(f"{path} names {text}, which is no setting", "start the run again")

    return load


def own_sources(*parts: Any) -> list[sources.Source]:
    """Return the sources of all that settings hold and that is not ours."""
    return sources.sources(item for part in parts for item in _items(part))


def _items(value: Any) -> Iterator[Any]:
    """Yield the classes and functions in settings."""
    if inspect.isroutine(value) or inspect.isclass(value):
        yield value
    elif isinstance(value, Mapping):
        yield from (item for own in value.values() for item in _items(own))
    elif isinstance(value, list | tuple | set | frozenset):
        if hasattr(value, "_fields"):  # a NamedTuple, which may be a part itself
            yield type(value)
        yield from (item for own in value for item in _items(own))
    elif isinstance(value, functools.partial):
        yield value
        yield from _items((value.func, *value.args, value.keywords))
    elif not isinstance(value, str | int | float | NoneType | Path):
        yield type(value) if dataclasses.is_dataclass(value) else value
        if dataclasses.is_dataclass(value):
            # What one of our own parts makes for itself is a cache, not a setting.
            ours = type(value).__module__.startswith("recollect.")
            names = [spec.name for spec in dataclasses.fields(value) if spec.init or not ours]
            yield from (i for name in names for i in _items(getattr(value, name, None)))


def absolute(value: Any) -> Any:
    """Make every path in settings absolute: workers on other nodes start in other folders, and an
    agent may change the current one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [spec.name for spec in dataclasses.fields(value) if spec.init]
        own = {name: getattr(value, name) for name in names}
        kept = {name: absolute(item) for name, item in own.items()}
        if all(kept[name] is own[name] for name in names):
            return value  # with all that it has read
        return dataclasses.replace(value, **kept)
    if isinstance(value, Path) and not value.is_absolute():
        return value.expanduser().absolute()
    return value

"""An experiment in a file: settings, seeds and a grid, and the training runs that they make.

    preset = "demo"
    seeds = [0, 1, 2]
    steps = 40
    [grid]
    optim.lr = [1e-4, 5e-4]

Whatever is relative in the file, a path or a module, is looked for beside the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

from recollect.config import modules
from recollect.config.overlay import CLASS, overlay, to_table
from recollect.config.presets import preset
from recollect.config.settings_file import SettingsFile, read_settings_file
from recollect.config.stored import COMPUTED, settings_from
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.files import dotted

OWN = ("preset", "seeds", "grid")
"""Keys of the file that are no settings of a run."""
TEXTS = ("model.path", "embed.model", "tasks.source")
"""Settings that are a path, or else the name of something."""
_PLAIN = re.compile(r"[\w.:+-]{1,40}")


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment."""

    config: TrainConfig
    point: tuple[str, ...]
    """Its values of the grid, as people read them."""


@dataclass(frozen=True)
class Experiment:
    """What a file asks for."""

    file: SettingsFile
    base: TrainConfig
    seeds: tuple[int, ...] = ()
    grid: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    """Values by dotted setting."""

    @property
    def folder(self) -> Path:
        """Where its runs and its table are."""
        return self.base.folder / self.base.name

    @property
    def repeats(self) -> bool:
        """Whether it is more than the settings of one run."""
        return bool(self.seeds or self.grid)

    @property
    def names(self) -> tuple[str, ...]:
        """What the grid varies, in as few words as tell the settings apart."""
        last = [name.rpartition(".")[2] for name in self.grid]
        return tuple(
            name if last.count(short) > 1 else short
            for name, short in zip(self.grid, last, strict=True)
        )

    def over(self, config: TrainConfig) -> Experiment:
        """Return it with other settings for all runs; refuse one that the file varies."""
        before, now = (dict(dotted(to_table(c, TrainConfig))) for c in (self.base, config))
        varied = [*self.grid, *(["seed"] if self.seeds else [])]
        for name in varied:
            if any(
                before.get(key) != now.get(key)
                for key in {*before, *now}
                if key == name or key.startswith(f"{name}.")
            ):
                key = "seeds" if name == "seed" else f"[grid] {name}"
                raise UserError(
                    f"{self.file.path} has several values of {name}",
                    f"change {key} there, or leave --{name.replace('_', '-')} out",
                )
        return replace(self, base=config)

    def runs(self) -> list[PlannedRun]:
        """Make the settings of every run; refuse those that cannot be, before one is started."""
        if (self.folder / "config.json").exists():
            raise UserError(
                f"{self.folder} is the folder of a run", "set another name for the experiment"
            )
        found: dict[str, PlannedRun] = {}
        for values in product(*self.grid.values()):
            point = tuple(map(shown, values))
            label = [f"{n}-{_part(v)}" for n, v in zip(self.names, point, strict=True)]
            for seed in self.seeds or (self.base.seed,):
                name = "_".join([*label, *([f"seed-{seed}"] if self.seeds else [])])
                if name in found:
                    raise UserError(
                        f"{self.file.place(('grid',))}: two runs are called {name}",
                        "leave out the value that is there twice",
                    )
                found[name] = PlannedRun(self._config(name, values, seed), point)
        return list(found.values())

    def _config(self, name: str, values: Sequence[Any], seed: int) -> TrainConfig:
        config = replace(self.base, name=name, folder=self.folder, seed=seed)
        if config.trackers and not config.tracking.group:
            config = replace(config, tracking=replace(config.tracking, group=self.base.name))
        table: dict[str, Any] = {}
        for key, value in sorted(zip(self.grid, values, strict=True), key=lambda pair: pair[0]):
            _put(table, key.split("."), value)
        where = lambda key: self.file.place(*_grid_places(key))  # noqa: E731
        config = overlay(config, table, where, load=_loader(self.file.path.parent))
        return _beside(config, list(self.grid), self.file.path.parent)


def read_experiment(path: Path) -> Experiment:
    """Read a file of settings; mistakes are reported with the file and the line."""
    file = read_settings_file(path.expanduser())
    table, folder = dict(file.table), file.path.parent
    if not table:  # it would train the demo, which nobody has asked for
        raise UserError(f"{file.path} is empty", 'write settings into it, such as preset = "demo"')
    _check_keys(file)
    seeds = _seeds(file, table.pop("seeds", None))
    grid = dict(_grid(file, table.pop("grid", {})))
    if "learning" in table:  # a run's config.json: all there is, as it was read then
        return Experiment(file, settings_from(table, file.path, file.where), seeds, grid)
    start = table.pop("preset", "") or "demo"
    try:
        base = preset(str(start))
    except UserError as error:
        raise UserError(f"{file.where('preset')}: {error.what}", error.fix) from None
    base = replace(base, name=file.path.stem)
    base = overlay(base, table, file.where, load=_loader(folder))
    base = _beside(base, [key for key, _ in dotted(table)], folder)
    experiment = Experiment(file, base, seeds, grid)
    if experiment.repeats:
        experiment.runs()  # what is wrong with one of them is said first
    return experiment


def single(path: Path) -> TrainConfig:
    """Return the settings of a file that describes one run."""
    experiment = read_experiment(path)
    if experiment.repeats:
        raise UserError(
            f"{path} describes {len(experiment.runs())} runs", f"type recollect train {path}"
        )
    return experiment.base


def shown(value: Any) -> str:
    """Write a value of a grid as people read it."""
    if isinstance(value, Mapping) and CLASS in value:
        rest = [f"{k}={shown(v)}" for k, v in value.items() if k != CLASS]
        return " ".join([str(value[CLASS]), *rest])
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _part(text: str) -> str:
    """Turn a value into a part of a folder's name."""
    if _PLAIN.fullmatch(text):
        return text.replace(":", "-")
    digest = blake2b(text.encode(), digest_size=3).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', text)[:24].strip('-.')}-{digest}"


def _check_keys(file: SettingsFile) -> None:
    known = [spec.name for spec in dataclasses.fields(TrainConfig)] + list(OWN)
    for key in file.table:
        if key.replace("-", "_") in known or key in COMPUTED:
            continue
        if key == "stages":
            raise UserError(
                f"{file.where(key)}: these are stages", f"type recollect stages {file.path}"
            )
        close = difflib.get_close_matches(key, known, 1) or known
        raise UserError(
            f"{file.where(key)}: there is no setting {key}", f"choose from {', '.join(close)}"
        )


def _seeds(file: SettingsFile, value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    numbers = value if isinstance(value, list) else []
    fit = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    if not numbers or len(set(fit)) < len(numbers):
        raise UserError(
            f"{file.where('seeds')}: seeds is {value!r}",
            "list whole numbers from 0, each once: seeds = [0, 1, 2]",
        )
    return tuple(fit)


def _grid(file: SettingsFile, table: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the dotted settings of a grid with their values."""
    name = ".".join(keys)
    places = _grid_places(name)
    if isinstance(table, Mapping):
        for key, value in table.items():
            yield from _grid(file, value, (*keys, key.replace("-", "_")))
    elif not isinstance(table, list) or not table or not keys:
        what = f"{name} is {table!r}" if keys else f"grid is {table!r}"
        raise UserError(
            f"{file.place(*places)}: {what}", f"list the values: {name or 'steps'} = [1, 2]"
        )
    elif name.partition(".")[0] in (*OWN, "name", "folder", "seed", "resume"):
        fix = "use seeds = [0, 1, 2]" if name == "seed" else "leave it out"
        raise UserError(f"{file.place(*places)}: {name} cannot be in a grid", fix)
    else:
        yield name, tuple(table)


def _grid_places(name: str) -> list[tuple[str, ...]]:
    """Return the keys under which a setting may be in the grid: nested, quoted, or above it."""
    keys = name.split(".") if name else []
    dashed = name.replace("_", "-")
    return [
        ("grid", *keys),
        ("grid", name),
        ("grid", *dashed.split(".")),
        ("grid", dashed),
        *(("grid", *keys[:end]) for end in range(len(keys) - 1, -1, -1)),
    ]


def _put(table: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Set a value in nested tables; a part by name takes settings of its own beside it."""
    *outer, last = keys
    for key in outer:
        if not isinstance(table.get(key, {}), dict):
            table[key] = {CLASS: table[key]}
        table = table.setdefault(key, {})
    table[last] = dict(value) if isinstance(value, Mapping) else value


def _loader(folder: Path) -> modules.Loader:
    return lambda text: modules.load(text, folder)


# What is relative in a file is beside it


def _beside(config: TrainConfig, keys: Sequence[str], folder: Path) -> TrainConfig:
    """Find the paths that a file names beside the file."""
    for key in (key.replace("-", "_") for key in keys):
        if key in ("tasks", f"tasks.{CLASS}"):  # by name: what they read may be beside the file
            config = replace(config, tasks=_moved(config.tasks, folder))
        else:
            config = _changed(config, key, key.split("."), folder)
    return config


def _changed(value: Any, key: str, keys: Sequence[str], folder: Path) -> Any:
    """Return settings with the path at some keys beside the file, if it is one."""
    name, *rest = keys
    old = getattr(value, name, None)
    if rest:
        new = _changed(old, key, rest, folder)
    elif isinstance(old, Path):
        new = folder / old.expanduser()
    else:
        new = _existing(old, folder) if key in TEXTS else old
    return value if new is old else replace(value, **{name: new})


def _moved(tasks: Any, folder: Path) -> Any:
    if not dataclasses.is_dataclass(tasks):
        return tasks
    fields = {spec.name: getattr(tasks, spec.name) for spec in dataclasses.fields(tasks)}
    new = {
        name: _existing(value, folder)
        for name, value in fields.items()
        if isinstance(value, Path) or f"tasks.{name}" in TEXTS
    }
    changed = {name: value for name, value in new.items() if value is not fields[name]}
    moved: Callable[..., Any] = replace
    return moved(tasks, **changed) if changed else tasks


def _existing(value: Any, folder: Path) -> Any:
    """Return a path beside the file if there is something, else as it is."""
    place = folder / Path(str(value)).expanduser()
    return type(value)(str(place)) if str(value) and place.exists() else value

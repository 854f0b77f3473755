"""The file that describes stages: TOML in, a plan out, every mistake with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from recollect.commands.stages.plan import Outline, StagePlan, make_plan
from recollect.commands.stages.vllm import ClusterStages
from recollect.config.overlay import Where, overlay
from recollect.config.presets import preset
from recollect.config.roles import ROLES
from recollect.config.train import TrainConfig
from recollect.engines.verl.launch.options import ENGINES
from recollect.errors import UserError
from recollect.files import loads_toml, read_file
from recollect.serve.settings import ServeConfig

SHIPPED = Path(__file__).parents[2] / "demo"
"""Files that can be named without a path."""
TABLES = ("name", "preset", "folder", "engine", "settings", "stages", "end_to_end", "serve", "verl")
OURS = ("name", "folder", "resume", "preset", "training_stage", "fixed_model_api")
"""Settings that the command itself decides for every run."""


@dataclass(frozen=True)
class SourceText:
    """A file's text, to say where something is in it."""

    name: str
    text: str

    def at(self, section: str = "", number: int = 0) -> Where:
        """Return what finds a setting in a section; in the one of this number if it repeats."""

        def where(dotted: str) -> str:
            line = self._line(section, number, dotted.rpartition(".")[2])
            place = f"{self.name}, line {line}" if line else self.name
            return f"{place}, stage {number}" if number else place

        return where

    def _line(self, section: str, number: int, key: str) -> int:
        seen, inside = 0, not section
        for at, line in enumerate(self.text.splitlines(), start=1):
            header = re.match(r"\s*\[+\s*([\w-]+)", line)
            if header:
                seen += line.strip().startswith("[[")
                inside = header[1] == section and number in (0, seen)
            elif inside and re.match(rf'\s*([\w-]+\s*\.\s*)*"?{re.escape(key)}"?\s*=', line):
                return at
        return 0


@dataclass(frozen=True)
class StagesOptions:
    """Train one role while the other is fixed behind a server, then swap."""

    file: tyro.conf.Positional[str] = "two_stage"
    """A TOML file, or the name of one that ships: two_stage."""
    folder: Path | None = None
    """Where the folder of all runs goes, instead of what the file says."""
    seed: int | None = None
    """The seed to use instead of the file's."""
    agent: str = ""
    """Another agent for all runs: one of ours, module:Name or path/to/file.py:Name ..."""
    reward: str = ""
    """... another reward ..."""
    tasks: str = ""
    """... and other tasks."""
    end_to_end: bool = True
    """Whether to train both roles at once as well, for comparison."""
    dry_run: bool = False
    """Show the plan and its progress; start nothing."""


def read_plan(options: StagesOptions) -> StagePlan:
    """Read a file of stages, or one that ships under this name."""
    source = _read(options.file)
    try:
        table = loads_toml(source.text)
    except ValueError as error:
        raise UserError(f"{source.name}: {error}", "correct the TOML there") from error
    for key in table:
        if key not in TABLES:
            raise UserError(
                f"{source.at()(key)}: there is no entry {key!r}",
                f"choose from {', '.join(TABLES)}; settings of every run go under [settings]",
            )
    title = _text(table, "name", source, Path(source.name).stem)
    common = preset(_text(table, "preset", source, "two_stage"))
    common = _settings(common, table.get("settings", {}), source.at("settings"))
    named = {part: getattr(options, part) for part in ("agent", "reward", "tasks")}
    given = {part: name for part, name in named.items() if name}
    common = overlay(common, given, lambda part: f"--{part}" if part else "the parts given")
    if options.seed is not None:
        common = replace(common, seed=options.seed)
    runs = options.folder or Path(_text(table, "folder", source, str(common.folder)))
    outlines = _outlines(common, table.get("stages"), source)
    whole = _whole(common, table.get("end_to_end", {}), source) if options.end_to_end else None
    serve = _served(common, table.get("serve", {}), source.at("serve"))
    plan = make_plan(runs / title, common, outlines, whole, serve)
    return replace(plan, cluster=_cluster(table, source))


def _read(name: str) -> SourceText:
    path, shipped = Path(name), SHIPPED / f"{name}.toml"
    if not path.is_file() and shipped.is_file():
        path = shipped
    try:
        return SourceText(str(path), read_file(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
        raise UserError(
            f"there are no stages in {name!r} ({error})",
            f"name a TOML file, or one of: {known}; docs/two-stage.md describes the file",
        ) from error


def _outlines(common: TrainConfig, tables: Any, source: SourceText) -> list[Outline]:
    if not isinstance(tables, list) or not tables:
        raise UserError(
            f"{source.name} has no stages", "add one with [[stages]], then train and steps under it"
        )
    return [_outline(common, table, source, i) for i, table in enumerate(tables, start=1)]


def _outline(common: TrainConfig, table: Mapping[str, Any], source: SourceText, i: int) -> Outline:
    where = source.at("stages", i)
    own = {key: table[key] for key in ("train", "name", "start", "fixed") if key in table}
    for key, value in own.items():
        if not isinstance(value, str):
            raise UserError(f"{where(key)}: {key} is {value!r}", f"{key} should be a text")
    role = own.pop("train", "")
    if role not in ROLES:
        raise UserError(
            f"{where('train')}: train is {role!r}",
            "set train to memory or answer: the role that learns in this stage",
        )
    rest = {key: value for key, value in table.items() if key not in (*own, "train")}
    if "path" in rest.get("model", {}):
        raise UserError(
            f"{where('model.path')}: a stage's model follows from where it starts",
            "set start to base, to an earlier stage or to a folder",
        )
    return Outline(role, _settings(common, rest, where), **own)


def _whole(common: TrainConfig, table: Any, source: SourceText) -> TrainConfig | None:
    if isinstance(table, bool):
        table = {} if table else None
    if table is None:
        return None
    if "steps" in table:
        raise UserError(
            f"{source.at('end_to_end')('steps')}: end to end has as many episodes as all stages",
            "leave steps out of [end_to_end]",
        )
    return _settings(common, table, source.at("end_to_end"))


def _settings(config: TrainConfig, table: Any, where: Where) -> TrainConfig:
    if not isinstance(table, Mapping):
        raise UserError(f"{where('')}: {table!r} is not a table of settings", "use [settings]")
    models = table.get("models")
    routed = [f"models.{role}" for role in ROLES if isinstance(models, Mapping) and role in models]
    for name in (*(key for key in OURS if key in table), *routed):
        raise UserError(
            f"{where(name)}: the command itself sets {name} for every run",
            "leave it out: train, start and fixed of a stage say who learns and who is fixed",
        )
    return overlay(config, table, where)


def _served(common: TrainConfig, table: Any, where: Where) -> ServeConfig:
    """Serve the fixed model as the other one is run, unless the file says otherwise."""
    model = common.model
    config = ServeConfig("", device=model.device, threads=model.threads, cache_gib=model.cache_gib)
    if not isinstance(table, Mapping):
        raise UserError(f"{where('serve')}: serve is {table!r}", "make it a table: [serve]")
    for key in ("checkpoint", "port", "ready_file"):
        if key in table:
            raise UserError(f"{where(key)}: the command itself sets {key}", "leave it out")
    return overlay(config, table, where)


def _cluster(table: Mapping[str, Any], source: SourceText) -> ClusterStages | None:
    """Read how stages run on verl, if they do."""
    engine = _text(table, "engine", source, ENGINES[0])
    if engine not in ENGINES:
        raise UserError(
            f"{source.at()('engine')}: there is no engine {engine!r}",
            f"choose from {', '.join(ENGINES)}",
        )
    where = source.at("verl")
    given = table.get("verl", {})
    if not isinstance(given, Mapping):
        raise UserError(f"{where('verl')}: verl is {given!r}", "make it a table: [verl]")
    if engine != "verl":
        if given:
            raise UserError(f"{where('verl')}: verl is not the engine", 'add engine = "verl"')
        return None
    return overlay(ClusterStages(), given, where)


def _text(table: Mapping[str, Any], key: str, source: SourceText, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise UserError(f"{source.at()(key)}: {key} is {value!r}", f"{key} should be a text")
    return value

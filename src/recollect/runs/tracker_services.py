"""The packages that show metrics, each behind the same three calls: log, table, close.

A class imports its package when it is opened, so that none is needed to train.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Any, ClassVar, Protocol

from recollect.errors import UserError
from recollect.files import dotted
from recollect.foreign import for_markdown

Columns = Sequence[str]
Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class TrackerConfig:
    """How trackers name a run."""

    project: str = "recollect"
    """What runs are gathered in: a project, or MLflow's experiment."""
    entity: str = ""
    """The team or user that the project belongs to, in wandb and SwanLab; a tag in MLflow."""
    run: str = ""
    """The run's name; empty takes the name of its folder."""
    group: str = ""
    """Runs of one group are shown together, where the tracker can."""
    tags: tuple[str, ...] = ()
    rollouts: int = 8
    """Rows of the table of rollouts with their memories, sent with every validation; 0 sends no
    table."""


@dataclass(frozen=True)
class Tracked:
    """What a service is opened for."""

    folder: Path
    name: str
    """The name of the run."""
    id: str
    """What the service knows the run by; a new one unless `resumed`."""
    resumed: bool = False
    """Whether this run was tracked by this service before."""
    start: int = 0
    """The last step that counts: later ones are made again."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    config: TrackerConfig = TrackerConfig()


class TrackerService(Protocol):
    """Somewhere metrics are shown."""

    rewinds: ClassVar[bool]
    """Whether a step that is logged again takes the place of the earlier one."""
    id: str
    """What the run can be found by later."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step."""

    def table(self, step: int, name: str, columns: Columns, rows: Rows) -> None:
        """Take a table of texts and numbers."""

    def close(self, ok: bool) -> None:
        """Send what is left; `ok` says whether the run ended without an error."""


class TensorBoardService:
    """Event files in the run folder; read them with `tensorboard --logdir`."""

    rewinds: ClassVar[bool] = True

    def __init__(self, about: Tracked) -> None:
        """Open an event file; what was logged after step `start` is void."""
        writer = import_tracker("tensorboard.summary.writer.event_file_writer", "tensorboard")
        proto = "tensorboard.compat.proto"
        self._event = import_tracker(f"{proto}.event_pb2", "tensorboard")
        self._summary = import_tracker(f"{proto}.summary_pb2", "tensorboard")
        self._tensor = import_tracker(f"{proto}.tensor_pb2", "tensorboard")
        self.id = about.id
        self._writer = writer.EventFileWriter(str(about.folder / "tensorboard"))
        begin = self._event.SessionLog(status=self._event.SessionLog.START)
        self._add(about.start + 1, session_log=begin)
        named = {"name": about.name, "tags": ", ".join(about.config.tags), **about.settings}
        if not about.resumed:
            rows = [(name, str(value)) for name, value in dotted(named) if value not in ("", None)]
            self.table(0, "settings", ("setting", "value"), rows)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one event with all values."""
        values = [
            self._summary.Summary.Value(tag=name, simple_value=float(value))
            for name, value in metrics.items()
        ]
        self._add(step, summary=self._summary.Summary(value=values))

    def table(self, step: int, name: str, columns: Columns, rows: Rows) -> None:
        """Write a table in Markdown, which the page of texts shows."""
        text = self._tensor.TensorProto(dtype=7, string_val=[_markdown(columns, rows).encode()])
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        value = self._summary.Summary.Value(
            tag=name, tensor=text, metadata=self._summary.SummaryMetadata(plugin_data=plugin)
        )
        self._add(step, summary=self._summary.Summary(value=[value]))

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._event.Event(wall_time=time.time(), step=step, **content))

    def close(self, ok: bool) -> None:
        """Flush and close the event file."""
        self._writer.close()


class WandbService:
    """Weights & Biases."""

    rewinds: ClassVar[bool] = False

    def __init__(self, about: Tracked) -> None:
        """Start the run, or resume it under its id."""
        self._wandb = import_tracker("wandb")
        config = about.config
        self.id = about.id
        self._run = self._wandb.init(
            project=config.project,
            entity=config.entity or None,
            name=about.name,
            group=config.group or None,
            tags=list(config.tags),
            id=about.id,
            resume="allow",
            dir=str(about.folder),
            config=dict(about.settings),
            allow_val_change=True,  # a resumed run may have more steps
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""
        self._run.log(dict(metrics), step=step)

    def table(self, step: int, name: str, columns: Columns, rows: Rows) -> None:
        """Send a table."""
        table = self._wandb.Table(columns=list(columns), data=[list(row) for row in rows])
        self._run.log({name: table}, step=step)

    def close(self, ok: bool) -> None:
        """End the run."""
        self._run.finish(exit_code=0 if ok else 1)


class SwanLabService:
    """SwanLab."""

    rewinds: ClassVar[bool] = False

    def __init__(self, about: Tracked) -> None:
        """Start an experiment, or resume it under its id; its folder must exist."""
        self._swanlab = import_tracker("swanlab")
        config, folder = about.config, about.folder / "swanlab"
        folder.mkdir(exist_ok=True)
        self.id = about.id
        self._swanlab.init(
            project=config.project,
            workspace=config.entity or None,
            experiment_name=about.name,
            **({"group": config.group} if config.group else {}),
            tags=list(config.tags),
            id=about.id,
            resume="allow",
            logdir=str(folder),
            config=dict(about.settings),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""
        self._swanlab.log(dict(metrics), step=step)

    def table(self, step: int, name: str, columns: Columns, rows: Rows) -> None:
        """Send a table."""
        table = self._swanlab.echarts.Table()
        table.add(list(columns), [list(row) for row in rows])
        self._swanlab.log({name: table}, step=step)

    def close(self, ok: bool) -> None:
        """End the experiment."""
        self._swanlab.finish()


class TrackioService:
    """Trackio, which knows a run by its name alone and has no entities and no tags."""

    rewinds: ClassVar[bool] = False

    def __init__(self, about: Tracked) -> None:
        """Start a run under a name of its own, or resume it."""
        self._trackio = import_tracker("trackio")
        config = about.config
        self.id = about.id if about.resumed else config.run or f"{about.name}-{about.id[:6]}"
        self._run = self._trackio.init(
            project=config.project,
            name=self.id,
            group=config.group or None,
            config={**about.settings, "tags": list(config.tags)},
            resume="allow" if about.resumed else "never",
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""
        self._run.log(dict(metrics), step=step)

    def table(self, step: int, name: str, columns: Columns, rows: Rows) -> None:
        """Send a table."""
        table = self._trackio.Table(columns=list(columns), data=[list(row) for row in rows])
        self._run.log({name: table}, step=step)

    def close(self, ok: bool) -> None:
        """End the run."""
        self._run.finish()


class MlflowService:
    """MLflow, at the address in MLFLOW_TRACKING_URI or where MLflow keeps runs by default."""

    rewinds: ClassVar[bool] = False
    TABLES: ClassVar[str] = "mlflow.loggedArtifacts"
    """The tag by which MLflow's pages find tables."""

    def __init__(self, about: Tracked) -> None:
        """Create the run in the experiment of the project, or resume it."""
        self._entities = import_tracker("mlflow.entities", "mlflow")
        self._client = import_tracker("mlflow", "mlflow").MlflowClient()
        config = about.config
        if about.resumed:
            self.id = about.id
            self._client.update_run(self.id, status="RUNNING")
            return
        known = self._client.get_experiment_by_name(config.project)
        experiment = known.experiment_id if known else None
        experiment = experiment or self._client.create_experiment(config.project)
        named = {"entity": config.entity, "group": config.group}
        tags = dict.fromkeys(config.tags, "true") | {k: v for k, v in named.items() if v}
        self.id = self._client.create_run(experiment, run_name=about.name, tags=tags).info.run_id
        settings = [
            self._entities.Param(name, str(value)[:500]) for name, value in dotted(about.settings)
        ]
        for i in range(0, len(settings), 100):  # the most it takes at once
            self._client.log_batch(self.id, params=settings[i : i + 100])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""
        now = round(time.time() * 1000)
        # It takes no other marks in names, and none that is another path than it looks.
        names = {name: normpath(re.sub(r"[^\w.\- :/]", "_", name)) for name in metrics}
        sent = [
            self._entities.Metric(names[name].strip("/"), float(value), now, step)
            for name, value in metrics.items()
        ]
        for i in range(0, len(sent), 1000):
            self._client.log_batch(self.id, metrics=sent[i : i + 1000])

    def table(self, step: int, name: str, columns: Columns, rows: Rows) -> None:
        """Write a table as `log_table` does, which would need pandas."""
        path = f"{name}/{step:06d}.json"
        data = {"columns": list(columns), "data": [list(row) for row in rows]}
        self._client.log_dict(self.id, data, path)
        tags = self._client.get_run(self.id).data.tags
        known = json.loads(tags.get(self.TABLES, "[]"))
        tables = json.dumps([*known, {"path": path, "type": "table"}])
        self._client.set_tag(self.id, self.TABLES, tables)

    def close(self, ok: bool) -> None:
        """End the run."""
        self._client.set_terminated(self.id, "FINISHED" if ok else "FAILED")


SERVICES: dict[str, Callable[[Tracked], TrackerService]] = {
    "tensorboard": TensorBoardService,
    "wandb": WandbService,
    "swanlab": SwanLabService,
    "trackio": TrackioService,
    "mlflow": MlflowService,
}


def _markdown(columns: Columns, rows: Rows) -> str:
    def line(cells: Sequence[Any]) -> str:
        texts = (map(for_markdown, str(cell).splitlines()) for cell in cells)
        return f"| {' | '.join(map('<br>'.join, texts))} |"

    return "\n".join([line(columns), "|" + "---|" * len(columns), *map(line, rows)])


def import_tracker(module: str, package: str = "") -> Any:
    """Import a tracker's package, or a module of it."""
    package = package or module
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"the tracker {package} is not installed ({error})", f"pip install {package}"
        ) from error

"""A run on the cluster as a folder: its settings, its tasks, and the rows that point at them.

    settings.json   code/   tasks/train/   tasks/test/   train.parquet   test.parquet

Tasks are in the order in which the embedded engine draws them, so that with shuffling off both
engines train on the same ones. The folder must be seen by every node under the same name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from recollect import files as disk
from recollect.config.overlay import to_table
from recollect.config.stored import absolute, own_sources, read_settings, write_settings
from recollect.config.train import TrainConfig
from recollect.engines.verl.run.task_rows import write_rows
from recollect.engines.verl.run.task_store import TaskStore, is_stored, open_store, write_store
from recollect.tasks.base import Split
from recollect.tasks.files.fingerprint import fingerprint
from recollect.tasks.multiples import stretched
from recollect.types import Task


@dataclass(frozen=True)
class RunFolder:
    """What the processes of a run share."""

    path: Path

    @cached_property
    def config(self) -> TrainConfig:
        """The resolved settings."""
        return read_settings(self.path / "settings.json")

    def tasks(self, split: Split) -> TaskStore:
        """Map the tasks of a split."""
        return open_store(self.path / "tasks" / split)

    def rows(self, split: Split) -> Path:
        """Name the file of rows for verl."""
        return self.path / f"{split}.parquet"


def prepare(config: TrainConfig, folder: Path) -> RunFolder:
    """Write what a run needs; tasks that are already there are not written again."""
    config, folder = placed(config), folder.expanduser().absolute()
    disk.make_folder(folder)
    run = RunFolder(folder)
    sources: dict[Split, Iterator[Task]] = {"train": drawn(config), "test": held_out(config)}
    for split, tasks in sources.items():
        about, place = _about(config, split), folder / "tasks" / split
        if not is_stored(place, about):
            write_store(place, tasks, about)
        write_rows(run.rows(split), split, len(run.tasks(split)), config.tasks.name)
    write_settings(folder / "settings.json", config)
    return run


def placed(config: TrainConfig) -> TrainConfig:
    """Make the paths and the device in settings hold wherever a process starts."""
    if config.resume not in ("auto", "never"):
        config = replace(config, resume=str(Path(config.resume).expanduser().absolute()))
    model = Path(config.model.path).expanduser()
    if config.model.path and model.is_dir():  # else a name that a hub knows
        config = replace(config, model=replace(config.model, path=str(model.absolute())))
    if config.embed.device == "auto":  # processes that run agents have no GPU
        config = replace(config, embed=replace(config.embed, device="cpu"))
    whole: TrainConfig = absolute(config)
    return whole


def drawn(config: TrainConfig) -> Iterator[Task]:
    """Yield the training tasks of every step."""
    settings = config.rollout
    per_step = settings.tasks
    for step in range(1, config.steps + 1):
        family = stretched(config.tasks, settings.times(step), "rollout.curriculum")
        for index in range((step - 1) * per_step, step * per_step):
            yield family.task(index, config.seed, "train")


def held_out(config: TrainConfig) -> Iterator[Task]:
    """Yield the validation tasks."""
    return (config.tasks.task(i, config.seed, "test") for i in range(config.val.tasks))


def _about(config: TrainConfig, split: Split) -> str:
    """Say what decides the tasks of a split."""
    drawing = config.rollout
    what = {
        "tasks": to_table(config.tasks),
        "data": fingerprint(config.tasks),
        "code": {source.module: source.sha256 for source in own_sources(config.tasks)},
        "seed": config.seed,
        "test": config.val.tasks,
        "train": [
            *(config.steps, drawing.tasks),
            *(drawing.curriculum, drawing.curriculum_steps),
        ],
    }
    del what["test" if split == "train" else "train"]
    return json.dumps(what, sort_keys=True)

"""The fixed model of a stage: served while the stage is trained, and again when its run is used.

    RUN/partner.json    whom we served, in which role, and how

So a run of two-stage training can be measured or continued by its folder alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from recollect import files as disk
from recollect.commands.stages.plan import Stage, StagePlan
from recollect.commands.stages.server import served
from recollect.commands.stages.vllm import vllm_served
from recollect.config.overlay import build, to_table
from recollect.config.roles import ROLES
from recollect.config.train import TrainConfig
from recollect.models.model import find_device
from recollect.serve.settings import ServeConfig

FILE = "partner.json"
_FIX = "delete it, and name the fixed model yourself: --models.memory or --models.answer"


@contextmanager
def partner(stage: Stage, plan: StagePlan, console: Console) -> Iterator[str]:
    """Have the fixed model answer at an address while the block runs: ours, or the user's."""
    if not stage.folder:
        yield stage.fixed
        return
    serve, cluster = dataclasses.replace(plan.serve, checkpoint=stage.folder), plan.cluster
    log = stage.config.folder / f"{stage.name}.server.log"
    console.print(f"serving {stage.folder} (log: {log})", style="bright_black", markup=False)
    if serve.dtype == "auto" and find_device(serve.device).type == "cpu":
        # The same draws whatever is computed beside them: so one seed gives one table.
        serve = dataclasses.replace(serve, dtype="float64")
    role = ROLES[stage.roles[0] == "memory"]
    _remember(stage.config.folder / stage.name, role, serve)
    if cluster and cluster.server == "vllm":
        with vllm_served(stage.folder, cluster, log) as url:
            yield url
        return
    with served(serve, log) as url:
        yield url


@contextmanager
def with_partner(config: TrainConfig, run: Path, console: Console) -> Iterator[TrainConfig]:
    """Serve again whom a run was trained beside, unless the settings name somebody else."""
    path = run / FILE
    if not path.is_file() or not (run / "config.json").is_file():
        yield config
        return
    known, stored = disk.read_json(path, _FIX), disk.read_json(run / "config.json", _FIX)
    role = str(known.get("role"))
    if role not in ROLES or getattr(config.models, role) != stored.get("models", {}).get(role):
        yield config
        return
    serve = build(ServeConfig, known.get("serve", {}), lambda _dotted: str(path))
    folder = (run / serve.checkpoint).resolve()  # beside the run, wherever both are now
    serve = dataclasses.replace(serve, checkpoint=str(folder))
    log = run / "partner.server.log"
    console.print(f"serving {folder} as {role} (log: {log})", style="bright_black", markup=False)
    with served(serve, log) as address:
        models = dataclasses.replace(config.models, **{role: address})  # type: ignore[arg-type]
        yield dataclasses.replace(config, models=models)


def _remember(run: Path, role: str, serve: ServeConfig) -> None:
    """Write down whom a run is trained beside; by a path from the run where they share a folder."""
    folder = Path(serve.checkpoint).expanduser().resolve()
    near = folder.is_relative_to(run.resolve().parent)
    named = os.path.relpath(folder, run.resolve()) if near else str(folder)
    table = to_table(dataclasses.replace(serve, checkpoint=named), ServeConfig)
    disk.make_folder(run, private=True)
    text = json.dumps({"role": role, "serve": table}, indent=1)
    disk.write_text(run / FILE, text + "\n")

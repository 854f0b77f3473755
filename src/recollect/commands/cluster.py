"""`recollect train --engine verl`: the command line's side of a run on a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from recollect.config.overlay import to_table
from recollect.config.train import TrainConfig
from recollect.display import Report, open_console, report_card, report_markdown
from recollect.display.figures import grid
from recollect.display.numbers import count, gib
from recollect.engines.verl.cpu.keys import ENVIRONMENT, cpu_keys
from recollect.engines.verl.launch.memory import GIB, Demand, demand
from recollect.engines.verl.launch.options import EngineOptions
from recollect.engines.verl.launch.start import Launch, check_keys, launch, missing, plan_launch
from recollect.engines.verl.launch.translate import ROLLOUT, name_of, written
from recollect.errors import UserError
from recollect.files import dotted, write_text
from recollect.runs.stopping import STOPS, status_of
from recollect.train.trial import rehearse


def train_on_cluster(config: TrainConfig, options: EngineOptions, dry_run: bool) -> int:
    """Start a run on verl, or show what it would be."""
    plan = plan_launch(config, on_cpu(options.overrides) if options.cpu else options.overrides)
    console = open_console()
    for note in (*plan.notes, *rehearse(plan.config)):
        console.print(Text(note, "bright_black"))
    if dry_run:
        check_keys(plan)
        for line in missing(plan):
            console.print(Text(line, "yellow"))
        console.print(show_launch(plan, options.gpu_gib))
        # Neither wrapped nor cut: it is for copying.
        console.print(Text(plan.shown, "cyan"), soft_wrap=True)
        return 0
    report = finish(plan, console, ENVIRONMENT if options.cpu else {})
    return report if isinstance(report, int) else 0


def train_and_report_on_cluster(
    config: TrainConfig, overrides: Sequence[str], cpu: bool = False
) -> Report | int:
    """Train on verl and report like a run of the embedded engine; a status if it was stopped."""
    plan = plan_launch(config, on_cpu(overrides) if cpu else overrides)
    return finish(plan, open_console(), ENVIRONMENT if cpu else {})


def on_cpu(overrides: Sequence[str]) -> list[str]:
    """Put what a machine without GPUs needs before the user's own settings."""
    given = {name_of(text) for text in overrides}
    joins = bool(os.environ.get("RAY_ADDRESS"))
    keys = {k: value for k, value in cpu_keys(joins=joins).items() if name_of(k) not in given}
    return [*(f"{key}={written(value)}" for key, value in keys.items()), *overrides]


def finish(
    plan: Launch, console: Console, environment: Mapping[str, str] | None = None
) -> Report | int:
    """Start a run, wait for its end, and show what it came to; a status if it was stopped."""
    status = launch(plan, environment)
    if status in map(status_of, STOPS):
        console.print("stopped; the same command resumes from the last checkpoint")
        return status
    if status:
        raise UserError(
            f"the run on verl ended with status {status}",
            "see what it said above; the same command resumes from the last checkpoint",
        )
    from recollect.commands.dry_run import count_parameters
    from recollect.commands.train import make_report
    from recollect.runs.run import Run
    from recollect.train.loop import Outcome

    parameters = count_parameters(plan.run / "model")
    outcome = Outcome(plan.config.steps, parameters, finished=True)
    report = make_report(plan.config, Run(plan.run), outcome)
    write_text(plan.run / "report.md", report_markdown(report))
    console.print(report_card(report))
    return report


def show_launch(plan: Launch, gpu_gib: float) -> RenderableType:
    """Lay out the settings behind a command, and what every GPU must hold."""
    parts: list[RenderableType] = [
        Text("settings", "bold"),
        grid(dict(dotted(to_table(plan.config, TrainConfig)))),
        "",
        Text("memory of every GPU", "bold"),
        _memory(plan, gpu_gib),
        "",
        Text("command", "bold"),
    ]
    return Group(*parts)


def _memory(plan: Launch, gpu_gib: float) -> RenderableType:
    if plan.shape is None:
        return Text(
            f"unknown: {plan.config.model.path or 'no model'} is neither a folder nor a known name"
        )
    need = demand(plan.shape, plan.keys, gpu_gib * GIB)
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bright_black")
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    for name, size, said in _rows(plan, need, gpu_gib):
        table.add_row(name, gib(size), Text(said))
    return table


def _rows(plan: Launch, need: Demand, gpu_gib: float) -> list[tuple[str, float, str]]:
    shape = plan.shape
    assert shape is not None
    window = int(plan.keys[f"{ROLLOUT}.max_model_len"])
    among = f"of {count(shape.parameters)} weights, shared by {need.shards} of {need.gpus} GPUs"

    def verdict(size: float) -> str:
        return "fits" if size <= gpu_gib * GIB else f"DOES NOT FIT {gpu_gib:g} GiB"

    chats = need.cached_tokens // window
    room = f"{count(need.cached_tokens)} tokens, {chats:,} whole contexts of {window:,}"
    return [
        ("weights", need.weights, among),
        ("gradients", need.gradients, ""),
        ("optimiser", need.optimiser, ""),
        ("gathered layers", need.gathered, ""),
        ("activations", need.activations, ""),
        ("logits", need.logits, ""),
        ("an update", need.update, verdict(need.update)),
        ("the sampler", need.sampler, "gpu_memory_utilization of the GPU"),
        ("its cache", need.cache, room if need.cache > 0 else "its weights leave NO ROOM"),
        ("while sampling", need.sampling, verdict(need.sampling)),
    ]

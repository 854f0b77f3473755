"""`recollect train`, from settings to report card: run folder, loop, display and trackers."""

from __future__ import annotations

import dataclasses
import json
import shlex
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from recollect.accuracy import Accuracy, stored_accuracy
from recollect.agents.base import part_name
from recollect.commands.held_out import REWARD
from recollect.commands.results import TrainResult
from recollect.concurrency.stop import Stop
from recollect.config.cells import MAIN
from recollect.config.sources import copy_sources, keep_replaced
from recollect.config.stored import own_sources, read_settings, refuse_other_code, settings_of
from recollect.config.train import MAY_CHANGE, TrainConfig
from recollect.display import (
    Display,
    Report,
    open_console,
    report_card,
    report_markdown,
    rollout_table,
)
from recollect.display.numbers import estimate
from recollect.errors import UserError
from recollect.files import read_json
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rollout import Group
from recollect.runs.checkpoints import find_checkpoint, newest_step
from recollect.runs.run import METRICS, Run, read_records
from recollect.runs.stopping import status_of
from recollect.runs.trackers import Trackers, check_trackers, open_trackers
from recollect.train.loop import Outcome, train
from recollect.train.rollouts import Rollouts, keep_imports, nothing_learns
from recollect.train.trial import needs_trial, try_out


def run_training(config: TrainConfig) -> int:
    """Train as configured, to the end or until it is stopped; return the exit status."""
    keep_imports()
    report = train_and_report(config)
    return report if isinstance(report, int) else 0


def train_and_report(config: TrainConfig) -> Report | int:
    """Train as configured, show it, and leave a report in the run folder.

    A run that was stopped has no report but an exit status.
    """
    result = train_to_result(config, open_console(), Stop())
    return result.report or status_of(result.signal)


def train_to_result(config: TrainConfig, console: Console, stop: Stop) -> TrainResult:
    """Train as configured, show it on the console, and return what came of it."""
    if not config.models.learning:
        raise nothing_learns()
    check_trackers(config.trackers)
    refuse_finished(config, config.folder / config.name)
    refuse_other_code(config, config.folder / config.name)
    rollouts = Rollouts.open(config)  # first of all: a mistake here must leave no run behind
    # Where a fixed model is served may change, but not who learns.
    settings, folder = settings_of(config), config.folder / config.name
    if needs_trial(config) and not (folder / "config.json").exists():
        rollout = rollouts.rollout(config.rollout.temperature, config.rollout.top_p)
        stop.run(try_out(config, rollout, partial(console.print, markup=False)))
        rollouts.roles.reset()
    run = Run.open(folder, settings, config.resume, keep=config.keep, may_change=MAY_CHANGE)
    own = own_sources(config)
    run.notes += keep_replaced(own, folder) if run.checkpoint else []
    copy_sources(own, folder)
    done = run.checkpoint.step if run.checkpoint else -1
    tracked = open_trackers(config.trackers, run.folder, settings, config.tracking, start=done)
    try:
        with tracked as trackers:
            return _train(config, rollouts, run, trackers, console, stop)
    finally:
        run.close()


def refuse_finished(config: TrainConfig, folder: Path) -> None:
    """Refuse, before anything is written, a run with no step to train and no result to show.

    It has more steps than are asked for, or starts at a checkpoint that has all of them but was not
    measured in this run: that of another run, or one where this run was stopped between two
    measurements.
    """
    if str(config.resume) == "never":
        return
    start = folder if str(config.resume) == "auto" else Path(config.resume)
    step = newest_step(start)
    if step is None or step < config.steps:
        return
    if step > config.steps or not _measured(folder, step):
        step = find_checkpoint(start).step  # it may be older, if the newest is damaged
    if step > config.steps or (step == config.steps and not _measured(folder, step)):
        raise nothing_left(folder, step, config.steps)


def nothing_left(folder: Path, step: int, asked: int) -> UserError:
    """Say that a run has nothing to do."""
    return UserError(
        f"{folder} has done {step} step{'s' * (step != 1)} already, and --steps asks for {asked}",
        f"set --steps above {step} to continue it",
    )


def _measured(folder: Path, step: int) -> bool:
    """Tell whether a run was measured at a step; what is damaged is repaired or refused later."""
    try:
        return any(r["step"] == step and "val/accuracy" in r for r in read_records(folder))
    except UserError:
        return (folder / METRICS).exists()


def _train(
    config: TrainConfig,
    rollouts: Rollouts,
    run: Run,
    trackers: Trackers,
    console: Console,
    stop: Stop,
) -> TrainResult:
    done = run.checkpoint.step if run.checkpoint else 0
    with Display(console, config.steps, title(config), done=done) as display:
        for note in run.notes:
            display.note(note)
        trackers.note = display.note
        outcome = stop.run(train(rollouts, run, Screen(display, trackers), stop))
    if outcome.groups:
        console.print(rollout_table(outcome.groups))
    if not outcome.finished:
        again = "the same command" + " with --resume auto" * (config.resume != "auto")
        console.print(f"stopped after step {outcome.step}; {again} resumes from there")
        return TrainResult(
            run.folder, outcome.step, False, config, groups=outcome.groups, signal=outcome.signal
        )
    report = make_report(config, run, outcome)
    run.write_text("report.md", report_markdown(report))
    if outcome.lengths:
        measured = {times: dataclasses.asdict(own) for times, own in outcome.lengths.items()}
        run.write_text("lengths.json", json.dumps(measured, indent=1) + "\n")
    if outcome.distractors:
        measured = {times: dataclasses.asdict(own) for times, own in outcome.distractors.items()}
        run.write_text("distractors.json", json.dumps(measured, indent=1) + "\n")
    console.print(report_card(report))
    return TrainResult(run.folder, outcome.step, True, config, report, outcome.groups)


@dataclasses.dataclass
class Screen:
    """The loop's watcher: passes what happens on to the display and the trackers."""

    display: Display
    trackers: Trackers

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None:
        """Show a finished step."""
        if step:  # the validation before training has been shown
            self.display.step(step, metrics)
        measured = "val/accuracy" in metrics
        self.trackers.log(step, metrics, [e for g in groups for e in g] if measured else ())

    def validation(self, step: int, results: dict[str, Accuracy]) -> None:
        """Show held-out accuracy."""
        self.display.validation(step, list(results.items()))

    def phase(self, name: str, done: int, total: int) -> None:
        """Show what is being done."""
        self.display.phase(name, done, total)

    def note(self, text: str) -> None:
        """Show a remark."""
        self.display.note(text)


def title(config: TrainConfig) -> str:
    """Name what is trained in one line."""
    agent, tasks = part_name(config.agent), part_name(config.tasks)
    return f"{config.name}: {agent} on {tasks}, {config.rollout.tasks} tasks x {config.rollout.n}"


def make_report(config: TrainConfig, run: Run, outcome: Outcome) -> Report:
    """Gather the facts of a finished run from its own metrics."""
    rows = list(read_records(run.folder))
    measured = [row for row in rows if "val/accuracy" in row]
    if not measured:  # they were lost, or it began with a checkpoint that had all its steps
        raise nothing_left(config.folder / config.name, outcome.step, config.steps)
    total = lambda name: sum(row.get(name) or 0 for row in rows)  # noqa: E731
    phases = ("rollout", "update", "sync", "validation")
    return Report(
        title=config.name,
        folder=config.folder / config.name,
        before=stored_accuracy(measured[0]) if measured[0]["step"] == 0 else None,
        after=stored_accuracy(measured[-1]),
        lengths=tuple(outcome.lengths.items()),
        distractors=tuple(outcome.distractors.items()),
        steps=outcome.step,
        episodes=int(total("episodes/total")),
        failed=int(total("episodes/failed")),
        sampled_tokens=int(total("tokens/sampled")),
        trained_tokens=int(total("tokens/trained")),
        phases={
            name: total(f"time/{name}") + outcome.times.get(f"time/{name}", 0.0) for name in phases
        },
        facts={
            "model": f"{config.model.path} ({_parameters(outcome)})",
            **{role: f"fixed, {getattr(config.models, role)}" for role in config.models.fixed},
            "seed": str(config.seed),
            **_rewards(config, measured),
        },
        next_command=_next_command(config.folder / config.name),
    )


def _parameters(outcome: Outcome) -> str:
    adapters = f", {outcome.adapters:,} in adapters" if outcome.adapters else ""
    return f"{outcome.parameters:,} parameters{adapters}"


def _next_command(folder: Path) -> str:
    """Measure what was trained; nothing if its settings cannot be read back from the folder."""
    path = folder / "config.json"
    try:
        read_settings(path)
    except UserError:  # such as an agent that was defined in no file
        return ""
    if MAIN in (read_json(path, "keep it").get("code") or {}):  # only this script can read it back
        return ""
    return f"recollect eval {shlex.quote(str(folder))}"


def _rewards(config: TrainConfig, measured: list[dict[str, Any]]) -> dict[str, str]:
    """Say how the reward changed, where it is not the accuracy."""
    if not isinstance(config.reward, MemoryDelta):
        return {}
    found = [[row[key] for key in REWARD] for row in measured if row.get(REWARD[0]) is not None]
    ends = (*found[:1], *found[1:][-1:])
    return {"reward": " to ".join(estimate(*row) for row in ends)}

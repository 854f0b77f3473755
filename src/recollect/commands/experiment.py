"""`recollect train experiment.toml`: every run of an experiment, resumed, and one table at the end.

The folder is all that it remembers: a run folder for every run, and experiment.json with what the
finished ones came to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from recollect import files as disk
from recollect.accuracy import Accuracy
from recollect.commands.experiment_table import Failure, Row, markdown, score_table
from recollect.config.experiment import Experiment, PlannedRun
from recollect.config.stored import deciding
from recollect.config.train import TrainConfig
from recollect.display import Report
from recollect.display.figures import plain_table
from recollect.errors import UserError

FILE = "experiment.json"
TrainOne = Callable[[TrainConfig], Report | int]
"""Trains one run; returns its report, or an exit status if it was stopped."""


@dataclass(frozen=True)
class RunResult:
    """A finished run."""

    name: str
    steps: int
    after: Accuracy
    before: Accuracy | None
    failed: int
    """Training episodes that failed."""
    settings: Mapping[str, str]
    """What decided what it learned: by dotted name, as JSON."""


def run_experiment(experiment: Experiment, train_one: TrainOne, console: Console) -> int:
    """Train what is not finished, then show one table; return the exit status."""
    runs, folder = experiment.runs(), experiment.folder
    disk.make_folder(folder, private=True)
    with disk.lock(folder):
        results = read_results(folder)
        finished = sum(is_finished(run.config, results) for run in runs)
        left = f"; {finished} finished earlier" if finished else ""
        console.print(f"{experiment.file.path}: {len(runs)} runs{left}", markup=False)
        failures: list[Failure] = []
        for number, run in enumerate(runs, start=1):
            title = f"run {number} of {len(runs)}: {run.config.name}"
            if is_finished(run.config, results):
                console.print(Text(f"{title}: finished earlier", "bright_black"), soft_wrap=True)
                continue
            console.print(Rule(Text(title, "bold"), style="bright_black", align="left"))
            try:
                report = train_one(run.config)
            except UserError as error:
                console.print(Text(f"failed: {error}", "yellow"))
                failures.append(Failure(run.config.name, error.what))
                continue
            if isinstance(report, int):
                done = f"{sum(is_finished(r.config, results) for r in runs)} of {len(runs)} runs"
                console.print(f"{done} are finished; the same command continues with the others")
                return report
            results[run.config.name] = _result(run.config, report)
            write_results(folder, results)
        return _finish(experiment, runs, results, failures, console)


def _finish(
    experiment: Experiment,
    runs: Sequence[PlannedRun],
    results: Mapping[str, RunResult],
    failures: Sequence[Failure],
    console: Console,
) -> int:
    names = experiment.names
    rows = make_rows(runs, results)
    path = experiment.folder / "table.md"
    disk.write_text(path, markdown(names, rows, failures))
    console.print("", score_table(names, rows), sep="\n")
    for failure in failures:
        console.print(Text(f"failed: {failure.name}: {failure.why}", "yellow"), soft_wrap=True)
    console.print(f"written to {path}", markup=False, highlight=False, soft_wrap=True)
    return 1 if failures else 0


def make_rows(runs: Sequence[PlannedRun], results: Mapping[str, RunResult]) -> list[Row]:
    """Gather the runs of every point of the grid, which differ in their seed."""
    rows = []
    for point in dict.fromkeys(run.point for run in runs):
        own = [results.get(run.config.name) for run in runs if run.point == point]
        done = [result for result in own if result]
        before = [result.before for result in done if result.before]
        rows.append(Row(point, [r.after for r in done], before, len(own)))
    return rows


def show_experiment(experiment: Experiment, console: Console) -> None:
    """Show every run with its settings and its state; start nothing."""
    runs, results = experiment.runs(), read_results(experiment.folder)
    table = plain_table()
    for header in ("run", *experiment.names, "seed", "steps", "episodes", "state"):
        table.add_column(header, overflow="fold")
    for run in runs:
        config = run.config
        episodes = config.steps * config.rollout.tasks * config.rollout.n
        begun = (config.folder / config.name / "config.json").exists()
        finished = is_finished(config, results)
        state = "finished" if finished else "begun" if begun else "to do"
        figures = (str(config.seed), f"{config.steps:,}", f"{episodes:,}", state)
        table.add_row(*map(Text, (config.name, *run.point, *figures)))
    text = f"{experiment.file.path}: {len(runs)} runs in {experiment.folder}"
    console.print(text, "", table, sep="\n", markup=False, highlight=False)


# What is finished


def read_results(folder: Path) -> dict[str, RunResult]:
    """Return the finished runs by name."""
    path = folder / FILE
    if not path.exists():
        return {}
    fix = "restore it from a copy, or delete it: finished runs then only write their reports again"
    found = disk.read_json(path, fix)
    try:
        return {result.name: result for result in _RESULTS.validate_python(found["finished"])}
    except (KeyError, ValidationError) as error:
        raise UserError(f"{path} is damaged: {str(error).partition(chr(10))[0]}", fix) from None


def write_results(folder: Path, results: Mapping[str, RunResult]) -> None:
    """Replace the file in one move."""
    kept = {"finished": [asdict(result) for result in results.values()]}
    disk.write_text(folder / FILE, json.dumps(kept, indent=1) + "\n")


def is_finished(config: TrainConfig, results: Mapping[str, RunResult]) -> bool:
    """Tell whether nothing is left of a run; refuse one that was finished with other settings."""
    result = results.get(config.name)
    folder = config.folder / config.name
    if result is None or not (folder / "config.json").exists():
        return False
    now, then = deciding(config), dict(result.settings)
    different = [
        f"{name}: {then.get(name, '(not set)')} then, {now.get(name, '(not set)')} now"
        for name in sorted({*now, *then})
        if now.get(name) != then.get(name)
    ]
    if config.steps < result.steps:
        different.append(f"steps: {result.steps} then, {config.steps} now")
    if different:
        more = f"; and {len(different) - 4} more" if len(different) > 4 else ""
        raise UserError(
            f"{folder} was finished with other settings: {'; '.join(different[:4])}{more}",
            "give the values from before, or set another name for the experiment",
        )
    return config.steps == result.steps


def _result(config: TrainConfig, report: Report) -> RunResult:
    settings = deciding(config)
    return RunResult(
        config.name, config.steps, report.after, report.before, report.failed, settings
    )


_RESULTS = TypeAdapter(list[RunResult])

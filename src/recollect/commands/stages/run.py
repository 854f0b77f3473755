"""`recollect stages`: train one role against the other one fixed, serve the result, swap.

The folder is all that it remembers: a run folder for every stage, and stages.json with what the
finished ones came to. So a kill at any moment costs no more than the steps since a checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from recollect import files as disk
from recollect.commands.cluster import train_and_report_on_cluster
from recollect.commands.stages.partner import partner
from recollect.commands.stages.plan import END_TO_END, Stage, StagePlan
from recollect.commands.stages.record import (
    Result,
    read_results,
    score_table,
    write_results,
    write_table,
)
from recollect.commands.train import train_and_report
from recollect.config.stored import deciding
from recollect.display import Report, open_console
from recollect.errors import UserError


def run_stages(plan: StagePlan) -> int:
    """Run what is left of the plan, then show the score after every stage."""
    console = open_console()
    disk.make_folder(plan.folder, private=True)
    with disk.lock(plan.folder):
        results = read_results(plan.folder)
        for stage in plan.stages:
            console.print(Rule(Text(headline(stage), "bold"), style="bright_black", align="left"))
            if is_finished(stage, results.get(stage.name), plan.folder):
                console.print("finished earlier", style="bright_black")
                continue
            report = run_stage(stage, plan, console)
            if isinstance(report, int):
                return report
            results[stage.name] = make_result(stage, report)
            write_results(plan.folder, list(results.values()))
        done = [results[stage.name] for stage in plan.stages]
        path = write_table(plan.folder, done)
        console.print("", score_table(done), "", f"written to {path}", sep="\n")
    return 0


def run_stage(stage: Stage, plan: StagePlan, console: Console) -> Report | int:
    """Train one stage, with the fixed model served; an exit status if it was stopped."""
    with partner(stage, plan, console) as url:
        config = stage.against(url)
        if plan.cluster:
            return train_and_report_on_cluster(config, plan.cluster.overrides, plan.cluster.cpu)
        return train_and_report(config)


def make_result(stage: Stage, report: Report) -> Result:
    """Keep what the table shows of a finished stage, and what it was run with."""
    return Result(
        name=stage.name,
        trained=stage.trained,
        start=stage.start,
        fixed=stage.fixed,
        lr=stage.config.optim.lr,
        steps=report.steps,
        episodes=report.episodes,
        failed=report.failed,
        before=report.before,
        after=report.after,
        settings=settings_of(stage),
    )


def settings_of(stage: Stage) -> dict[str, str]:
    """Name all that decides what a stage learns: the fixed model itself, not its address."""
    own = {"steps": json.dumps(stage.config.steps)}
    return {"start": stage.start, "fixed": stage.fixed, **own, **deciding(stage.config)}


def is_finished(stage: Stage, result: Result | None, folder: Path) -> bool:
    """Tell whether nothing is left to do; refuse what was finished with other settings."""
    if result is None:
        return False
    now, then = settings_of(stage), dict(result.settings)
    if stage.config.steps > result.steps and stage.name == END_TO_END:
        return False  # the file has got more stages: both roles go on for as many episodes
    lines = [
        f"{name}: {then.get(name, '(not set)')} then, {now.get(name, '(not set)')} now"
        for name in sorted({*now, *then})
        if now.get(name) != then.get(name)
    ]
    if lines:
        more = [f"and {len(lines) - 8} more"] if len(lines) > 8 else []
        raise UserError(
            "\n  ".join([f"{stage.name} was finished with other settings:", *lines[:8], *more]),
            f"give the values it was run with, or another --folder; {folder} stays as it is",
        )
    if not (folder / stage.name / "model" / "config.json").exists():
        raise UserError(
            f"{stage.name} is finished, but its model is gone from {folder / stage.name}",
            "restore that folder from a copy, or choose another --folder",
        )
    return True


def headline(stage: Stage) -> str:
    """Say in one line what a stage is."""
    against = f" against {stage.fixed}" if stage.fixed else ""
    return f"{stage.name}: {' and '.join(stage.roles)}, from {stage.start}{against}"

"""The verbs `eval`, `replay` and `judge-check`: agents on tasks, stored, scored, reported."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from recollect.display import open_console
from recollect.errors import UserError
from recollect.evaluation.assessment import assess
from recollect.evaluation.costs import parse_prices
from recollect.evaluation.harness import Harness
from recollect.evaluation.judging import measure_judge
from recollect.evaluation.models import open_models
from recollect.evaluation.options import EvalOptions, ReplayOptions
from recollect.evaluation.progress import Progress
from recollect.evaluation.results import JudgeError, Results, save
from recollect.evaluation.scoring import check_metrics
from recollect.evaluation.setup import default_folder, enter, known_agents, set_up
from recollect.evaluation.store import Store, read_config, read_episodes
from recollect.evaluation.tables import cost_table, judge_table, score_table
from recollect.judge import Judge, strict_judge
from recollect.remote import RemoteModel

VERDICTS = "verdicts.sqlite"


def run_eval(options: EvalOptions, command: str) -> int:
    """Run what is missing, score everything, and write results and report."""
    console = open_console()
    prices = parse_prices(options.prices)
    check_metrics(options.metrics)
    setup = set_up(options, known_agents(options))
    folder = options.out or default_folder(options)
    with console.status("opening the model"):
        opened = open_models(options)
    store = Store(folder, options.retry_failed)
    try:
        enter(folder, setup, options, opened, command)
        harness = Harness(
            setup.grid, setup.agents, opened.models, store, options.concurrency, options.timeout
        )
        progress = Progress(console, setup.grid.cells(), setup.primary, str(folder))
        for record in read_episodes(folder):
            if record["id"] in store.done:
                progress.before(record)
        with progress:
            asyncio.run(harness.run(progress.episode))
    finally:
        store.close()
    judge = _judge(folder, options.judge, options.judge_model)
    with console.status("scoring"):
        results = asyncio.run(assess(folder, options.metrics, judge, prices))
    return _finish(console, folder, results)


def run_replay(folder: Path, options: ReplayOptions) -> int:
    """Score stored episodes again, with other metrics or another judge."""
    console = open_console()
    prices = parse_prices(options.prices)
    if read_config(folder) is None:
        raise UserError(f"{folder} holds no evaluation", "name a folder that `recollect eval` made")
    judge = _judge(folder, options.judge, options.judge_model)
    with console.status("scoring"):
        results = asyncio.run(assess(folder, options.metrics, judge, prices))
    return _finish(console, folder, results)


@dataclass(frozen=True)
class JudgeCheckOptions:
    """Measure how often a judge errs on labelled answers."""

    url: str
    """The address of an OpenAI-compatible server."""
    model: str = ""
    """Empty takes the first model that the server lists."""
    cache: Path | None = None
    """A file that keeps verdicts."""


def run_judge_check(options: JudgeCheckOptions) -> int:
    """Measure how often a judge errs on labelled answers."""
    console = open_console()
    judge = strict_judge(RemoteModel(options.url, options.model, options.cache))
    with console.status("judging"):
        error: JudgeError = asyncio.run(measure_judge(judge))
    console.print(judge_table(error))
    return 0


def _judge(folder: Path, url: str, model: str) -> Judge | None:
    return strict_judge(RemoteModel(url, model, folder / VERDICTS)) if url else None


def _finish(console: Console, folder: Path, results: Results) -> int:
    path = save(results, folder)
    console.print(score_table(results))
    console.print()
    console.print(cost_table(results))
    if results.judge:
        console.print()
        console.print(judge_table(results.judge))
    console.print(f"\nresults in {path}", markup=False, highlight=False, soft_wrap=True)
    return 0

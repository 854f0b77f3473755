"""The verbs `eval`, `replay` and `judge-check`: agents on tasks, stored, scored, reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from recollect.commands.results import EvalResult
from recollect.concurrency.stop import Stop
from recollect.display import open_console
from recollect.errors import UserError
from recollect.evaluation.assessment import assess
from recollect.evaluation.costs import parse_prices
from recollect.evaluation.entry import enter
from recollect.evaluation.folder import EvaluationFolder, read_config, read_episodes
from recollect.evaluation.graders import Graders, read_prompts
from recollect.evaluation.harness import Harness
from recollect.evaluation.judging import measure_judge
from recollect.evaluation.models import open_models
from recollect.evaluation.options import EvalOptions, ReplayOptions
from recollect.evaluation.progress import Progress
from recollect.evaluation.report import write_report
from recollect.evaluation.report.content import counting
from recollect.evaluation.results import NAME, JudgeError, Results, remarks, save
from recollect.evaluation.scoring import JUDGE, check_metrics, first_metric
from recollect.evaluation.setup import (
    NOTHING_OWN,
    Own,
    default_folder,
    known_agents,
    set_up,
    with_model,
)
from recollect.evaluation.tables import (
    asked_table,
    cost_table,
    judge_table,
    published_table,
    score_table,
)
from recollect.evaluation.tracked import tracked
from recollect.evaluation.trial import try_metrics, try_out
from recollect.evaluation.workers import Workers, count_workers
from recollect.foreign import LONGEST, one_line
from recollect.policies.cached import RemoteModel
from recollect.policies.client import Endpoint
from recollect.policies.estimated import REMEDY
from recollect.policies.presence import check_servers
from recollect.rewards.judge import strict_judge
from recollect.runs.tracker_services import TrackerConfig
from recollect.runs.trackers import check_trackers, open_trackers
from recollect.tasks.base import notes_of
from recollect.tasks.function import repeated

VERDICTS = "verdicts.sqlite"


def run_eval(options: EvalOptions, command: str) -> int:
    """Run what is missing, score everything, and write results and report."""
    found = evaluate(options, command, open_console(), Stop())
    return 1 if found.all_failed else 0


def evaluate(
    options: EvalOptions, command: str, console: Console, stop: Stop, own: Own = NOTHING_OWN
) -> EvalResult:
    """Run what is missing, score everything, write results and report, and return them."""
    parse_prices(options.prices)  # what is wrong is said before anything is run
    check_metrics(options.metrics)
    check_trackers(options.trackers)
    options = with_model(options)
    setup = set_up(options, known_agents(options), own)
    try_metrics(setup, options.metrics)
    for family in setup.grid.families.values():
        for note in filter(None, (*notes_of(family), repeated(family, 0, options.split))):
            console.print(note, markup=False, highlight=False, soft_wrap=True)
    folder = options.out or default_folder(options, setup, own)
    if options.judge:
        check_servers({"judge": Endpoint(options.judge, options.judge_model)})
    with console.status("opening the model"):
        opened = own.opened or open_models(options)
    store = EvaluationFolder(folder, options.retry_failed)
    estimated = counting(opened.facts)
    for note in (*store.notes, *([f"{estimated}; {REMEDY}"] if estimated else [])):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    try:
        say = partial(console.print, markup=False)
        stop.run(try_out(setup, opened, store, say, options.timeout))
        enter(folder, setup, options, opened, command)
        harness = Harness(
            setup.grid,
            setup.bound,
            opened.models,
            store,
            options.concurrency,
            options.timeout,
            opened.own,
        )
        workers = None
        alike = own == NOTHING_OWN and not setup.embeds and not opened.own
        if (count := count_workers(options, opened.facts, alike)) > 1:
            workers = Workers(options, opened.facts, setup.grid, store, count, harness.started)
        shown = {name: first_metric(own, judged=False) for name, own in setup.primary.items()}
        progress = Progress(console, setup.grid.cells(), shown, str(folder))
        for record in read_episodes(folder):
            if record["id"] in store.done:
                progress.before(record)
        with progress:
            stop.run((workers or harness).run(progress.episode))
    finally:
        store.close()
    return _score(console, folder, options, stop, options.trackers, options.tracking)


def run_replay(folder: Path, options: ReplayOptions) -> int:
    """Score stored episodes again, with other metrics or another judge."""
    found = _score(open_console(), folder, options, Stop())
    return 1 if found.all_failed else 0


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


def _score(
    console: Console,
    folder: Path,
    options: EvalOptions | ReplayOptions,
    stop: Stop,
    trackers: Sequence[str] = (),
    tracking: TrackerConfig = TrackerConfig(),
) -> EvalResult:
    prices = parse_prices(options.prices)
    if read_config(folder) is None:
        raise UserError(f"{folder} holds no evaluation", "name a folder that `recollect eval` made")
    graders = None
    if options.judge:
        model = RemoteModel(options.judge, options.judge_model, folder / VERDICTS)
        graders = Graders(strict_judge(model), read_prompts(options.longmemeval_prompts))
    with console.status("scoring"):
        results = stop.run(assess(folder, options.metrics, graders, prices))
    if trackers:
        with open_trackers(trackers, folder, results.config, tracking) as opened:
            opened.note = lambda text: console.print(text, markup=False, soft_wrap=True)
            opened.log_result(*tracked(results))
    found = EvalResult(folder, results)
    _finish(console, folder, results, options.metrics)
    _say_failures(console, found)
    return found


def _finish(console: Console, folder: Path, results: Results, asked: Sequence[str]) -> None:
    save(results, folder)
    report, page = write_report(folder)
    judged = [name for name, known in results.config["sets"].items() if known["primary"] == JUDGE]
    if judged and not results.judge:
        text = f"{', '.join(judged)}: usually judged; without --judge answer_overlap counts first"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    tables = [score_table(results), asked_table(results, asked), published_table(results)]
    tables += [cost_table(results)]
    tables += [judge_table(results.judge)] if results.judge else []
    if not console.is_terminal:
        console.width = max(120, console.width)  # a file has no width: nothing need be cut
    for table in filter(None, tables):
        console.print(table)
        console.print()
    lines = [*remarks(results), f"results in {folder / NAME}", f"report in {report} and {page}"]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _say_failures(console: Console, found: EvalResult) -> None:
    """Say how many episodes failed, and why the first one did."""
    if not found.results.n_failed:
        return
    failure = next(r["failure"] for r in found.episodes if r["failure"])
    place = failure.get("place") or failure["boundary"]
    cause = f"{place}: {failure['kind']}: {one_line(failure['message'], LONGEST)}"
    counts = f"{found.results.n_failed} of {found.n_episodes} episodes failed"
    text = f"{counts}; the first one at {cause}"
    console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if found.all_failed:
        again = "no answer was measured: fix the cause, then add --retry-failed to the same command"
        console.print(again, markup=False, highlight=False, soft_wrap=True)

"""What each verb of the command line does: read its arguments, import what it needs, and run it.

Importing this module costs milliseconds: a verb imports what it needs when it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recollect.commands.arguments import find_package, importing, read_config, read_options
from recollect.errors import UserError
from recollect.foreign import shown

if TYPE_CHECKING:
    from recollect.config.train import TrainConfig
    from recollect.display import Report
    from recollect.engines.verl.launch.options import EngineOptions

REPORT = """usage: recollect report [-h] FOLDER

Write report.md and report.html of an evaluation that `recollect eval` stored in FOLDER. Of a
run's folder, show every validation.
"""


def train(args: list[str]) -> int:
    """Train on the embedded engine or on a cluster, or show what would be done."""
    with importing():
        from recollect.config.settings_file import is_settings_file
        from recollect.engines.verl.launch.options import split_engine

    options, args = split_engine(args)
    dry_run = "--dry-run" in args
    args = [a for a in args if a != "--dry-run"]
    if args and is_settings_file(args[0]):
        return train_file(args, options, dry_run)
    return train_config(read_config(args, "train", "demo"), options, dry_run)


def train_config(config: TrainConfig, options: EngineOptions, dry_run: bool) -> int:
    """Train with these settings, or show what would be done."""
    if options.engine == "verl":
        with importing("the verl engine", "verl"):
            from recollect.commands.cluster import train_on_cluster

        return train_on_cluster(config, options, dry_run)
    if dry_run:
        with importing("a dry run of the embedded engine"):
            find_package("torch")
            find_package("transformers")
            from recollect.commands.dry_run import show_plan
            from recollect.display import open_console

        open_console().print(show_plan(config))
        return 0
    with importing("training"):
        from recollect.commands.stages.partner import with_partner
        from recollect.commands.train import run_training
        from recollect.display import open_console

    with with_partner(config, config.folder / config.name, open_console()) as config:
        return run_training(config)


def train_file(args: list[str], options: EngineOptions, dry_run: bool) -> int:
    """Train as a file says: one run, or every run of an experiment."""
    with importing():
        from pathlib import Path

        from recollect.config.experiment import read_experiment
        from recollect.display import open_console

    experiment = read_experiment(Path(args[0]))
    config = read_config(args, "train", "demo", experiment.base)
    if not experiment.repeats:
        return train_config(config, options, dry_run)
    experiment = experiment.over(config)
    if dry_run:
        with importing():
            from recollect.commands.experiment import show_experiment

        show_experiment(experiment, open_console())
        open_console().print("\nthe first of them:\n")
        return train_config(experiment.runs()[0].config, options, dry_run)
    with importing("training", "verl" if options.engine == "verl" else "local"):
        from recollect.commands.cluster import train_and_report_on_cluster
        from recollect.commands.experiment import run_experiment
        from recollect.commands.train import train_and_report

    def train_one(config: TrainConfig) -> Report | int:
        if options.engine == "verl":
            return train_and_report_on_cluster(config, options.overrides, options.cpu)
        return train_and_report(config)

    return run_experiment(experiment, train_one, open_console())


def evaluate(args: list[str]) -> int:
    """Measure a preset or a run on held-out tasks, or compare agents side by side."""
    if args and not args[0].startswith("-"):
        config = read_config(args, "eval", "demo")
        with importing("measuring a preset"):
            from recollect.commands.held_out import run_held_out
            from recollect.commands.stages.partner import with_partner
            from recollect.display import open_console

        with with_partner(config, config.folder / config.name, open_console()) as config:
            return run_held_out(config)
    with importing():
        import shlex

        from recollect.commands.evaluate import run_eval
        from recollect.evaluation.options import EvalOptions

    options = read_options(EvalOptions, args, "eval")
    return run_eval(options, shlex.join(["recollect", "eval", *args]))


def ask(args: list[str]) -> int:
    """Read files and answer questions about them."""
    with importing():
        from recollect.commands.ask_options import AskOptions, words_first
        from recollect.commands.ask_texts import read_texts

    texts = read_texts(read_options(AskOptions, words_first(args), "ask"))
    with importing():  # only now: it takes seconds, and the first line does not need it
        from recollect.commands.ask import run_ask

    return run_ask(texts)


def replay(args: list[str]) -> int:
    """Score a stored evaluation again."""
    with importing():
        from pathlib import Path

        from recollect.commands.evaluate import run_replay
        from recollect.commands.run_scores import is_run_folder, replay_run
        from recollect.display import open_console
        from recollect.evaluation.options import ReplayOptions

    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
        raise UserError("replay needs a folder", "type recollect replay FOLDER")
    folder = "" if args[0].startswith("-") else args.pop(0)
    options = read_options(ReplayOptions, args, "replay FOLDER")
    if is_run_folder(Path(folder)):
        return replay_run(Path(folder), options.metrics, open_console())
    return run_replay(Path(folder), options)


def judge_check(args: list[str]) -> int:
    """Measure how often a judge errs on labelled answers."""
    with importing():
        from recollect.commands.evaluate import JudgeCheckOptions, run_judge_check

    return run_judge_check(read_options(JudgeCheckOptions, args, "judge-check"))


def serve(args: list[str]) -> int:
    """Serve a checkpoint to OpenAI's clients, with an agent before it for what does not fit."""
    with importing():
        from recollect.endpoint.settings import EndpointConfig

    config = read_options(EndpointConfig, args, "serve")
    if config.agent:
        with importing("serving", "serve" if config.upstream else "local,serve"):
            import starlette
            import uvicorn

            from recollect.endpoint.start import run_endpoint

        return run_endpoint(config)
    with importing("serving", "local,serve"):
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401

        from recollect.serve.server import run_server

    return run_server(config)


def mcp(args: list[str]) -> int:
    """Offer a user's memory to an MCP client."""
    with importing():
        from recollect.commands.mcp import McpOptions, run_mcp

    return run_mcp(read_options(McpOptions, args, "mcp"))


def report(args: list[str]) -> int:
    """Write the report of an evaluation."""
    if args in (["-h"], ["--help"]):
        print(REPORT, end="")
        return 0
    if len(args) != 1 or args[0].startswith("-"):
        raise UserError("report needs one folder", "type recollect report FOLDER")
    with importing():
        from pathlib import Path

        from recollect.commands.run_scores import is_run_folder, report_run
        from recollect.display import open_console
        from recollect.evaluation.report import write_report

    if is_run_folder(Path(args[0])):
        print(shown(str(report_run(Path(args[0]), open_console()))))
        return 0
    for path in write_report(Path(args[0])):
        print(shown(str(path)))
    return 0


def stages(args: list[str]) -> int:
    """Train one role while the other is fixed, and swap."""
    with importing():
        from recollect.commands.stages.file import StagesOptions, read_plan

    options = read_options(StagesOptions, args, "stages")
    plan = read_plan(options)
    if options.dry_run:
        with importing():
            from recollect.commands.stages.record import show_plan
            from recollect.display import open_console

        open_console().print(show_plan(plan))
        return 0
    with importing("training in stages"):
        from recollect.commands.stages.run import run_stages

    return run_stages(plan)


def data(args: list[str]) -> int:
    """Make or check the data that tasks are read from."""
    with importing():
        from recollect.commands.data import run_data
        from recollect.display import open_console

    return run_data(args, open_console())


def doctor(args: list[str]) -> int:
    """Show what is installed and what is missing."""
    with importing():
        from recollect.commands.doctor import DoctorOptions, doctor
        from recollect.display import open_console

    options = read_options(DoctorOptions, args, "doctor")
    if options.engine == "verl":
        with importing():
            from recollect.commands.cluster_doctor import doctor_verl

        return doctor_verl(open_console(), options.address, options.modules)
    return doctor(open_console())


def runs(args: list[str]) -> int:
    """List the runs of a folder."""
    if args in (["-h"], ["--help"]) or len(args) > 1:
        print("usage: recollect runs [-h] [FOLDER]\n\nList the runs in FOLDER, or in runs/.")
        return 0 if len(args) == 1 else 2
    with importing():
        from pathlib import Path

        from recollect.commands.runs import show_runs
        from recollect.display import open_console

    return show_runs(Path(args[0] if args else "runs"), open_console())


def view(args: list[str]) -> int:
    """Look at runs and evaluations in a page."""
    with importing():
        from recollect.commands.view import ViewOptions, run_view

    options = read_options(ViewOptions, args, "view")
    if options.export is None:
        with importing("the viewer's server", "view"):
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
    return run_view(options)


def compare(args: list[str]) -> int:
    """Compare two evaluations or checkpoints, paired by task."""
    with importing():
        from recollect.commands.view import CompareOptions, run_compare
        from recollect.display import open_console

    return run_compare(read_options(CompareOptions, args, "compare"), open_console())


VERBS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "eval": evaluate,
    "ask": ask,
    "serve": serve,
    "mcp": mcp,
    "replay": replay,
    "judge-check": judge_check,
    "report": report,
    "stages": stages,
    "runs": runs,
    "view": view,
    "compare": compare,
    "data": data,
    "doctor": doctor,
}

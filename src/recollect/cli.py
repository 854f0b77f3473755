"""The command line: one function per verb.

Importing this module costs milliseconds: everything else is imported by the verb that needs it, so
that `--help` is fast and Ctrl-C is understood from the start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from recollect.distribution import install
from recollect.errors import UserError
from recollect.foreign import shown
from recollect.runs.stopping import Interrupts, heard, status_of

if TYPE_CHECKING:
    from recollect.config.train import TrainConfig

PRESETS = (
    *("demo", "recall", "ledger", "hotpotqa", "squad", "bank", "curator", "locomo", "ledger_qa"),
    *("ruler", "babilong", "callback", "gated", "parallel", "two_stage", "memagent_published"),
)
"""The names in `config.presets`, repeated here because importing them takes longer than `--help`
may."""

USAGE = """recollect: train and evaluate LLM memory agents with reinforcement learning

  recollect train [PRESET] [--any.setting value]   train an agent; --dry-run shows what it would do
  recollect train RUN [--any.setting value]        continue a run from its folder
  recollect runs [FOLDER]                          list the runs: score, steps, state
  recollect train PRESET --engine verl [...] [-- verl's own settings]     the same on a Ray cluster
  recollect eval RUN [--model ...] [--n ...]       held-out accuracy of a run's model, as it trained
  recollect eval PRESET [--any.setting value]      the same with a preset's settings
  recollect eval --tasks ... --agents ... --model  agents side by side on task families
  recollect replay FOLDER [--metrics ...]          score a stored evaluation again
  recollect judge-check --url URL                  how often a judge errs on labelled answers
  recollect stages [FILE.toml|PRESET]              train one role while the other is fixed, and swap
  recollect serve CHECKPOINT                       serve a model to OpenAI's clients
  recollect report FOLDER                          write report.md and report.html of an evaluation
  recollect data NAME --input FILE --output DIR    turn a data set's own files into tasks
  recollect data ledger --output DIR               write sets of ledgers of 2 to 50 sessions
  recollect data validate NAME                     check answers, evidence, positions, lengths
  recollect data embed --input DIR --cache DIR     compute the vectors of memories once
  recollect doctor [--engine verl --address auto]  what is installed, what is missing, the fix

  recollect train PRESET --help lists every setting. Presets: {presets}
"""

DESCRIPTIONS = {
    "train": """Train an agent, starting from the settings of preset {preset}.

--dry-run shows what would be done and starts nothing. --engine verl trains on a Ray cluster; what
follows -- then goes to verl itself, and --gpu-gib N is one GPU's memory in the estimates.""",
    "eval": """Measure the model of preset {preset} on held-out tasks, at several lengths.

Without a preset, recollect eval --help shows how to compare agents side by side.""",
}
REPORT = """usage: recollect report [-h] FOLDER

Write report.md and report.html of an evaluation that `recollect eval` stored in FOLDER.
"""
DOCTOR = """usage: recollect doctor [-h] [--engine {embedded,verl}] [--address ADDRESS]

Show what is installed, what is missing, and how to fix it.

--engine verl looks at what the cluster engine needs; --address auto (or a Ray address) looks at
every node of a running cluster.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status; `| head` may close our output early.

    The status is 0 if all went well, 1 or 2 if not, and 128 + a signal's number if that stopped it.
    """
    interrupts = Interrupts()
    try:
        try:
            with interrupts():
                status = _run(list(sys.argv[1:] if argv is None else argv))
        except SystemExit:
            _flush()
            raise
        _flush()
        return status
    except KeyboardInterrupt:
        print("recollect: stopped", file=sys.stderr)
        return interrupts.status
    except OSError as error:
        status = _output_failed(error)
        if not status:
            raise
        return status


def _output_failed(error: OSError) -> int:
    """Return the exit status if our output cannot be written; 0 if something else went wrong."""
    from contextlib import suppress
    from pathlib import Path

    from recollect.files import FULL, refusal

    if isinstance(error, BrokenPipeError) and _unread():
        status = 141  # what a shell shows for a program that SIGPIPE ended
    elif error.errno in FULL:
        print(f"recollect: {refusal(error, Path('the output'))}", file=sys.stderr)
        status = 1
    else:
        return 0
    with suppress(OSError):  # a stand-in has no number
        # Python flushes once more at the end, and would complain of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _flush() -> None:
    if sys.stdout:  # a service may have none
        sys.stdout.flush()


def _unread() -> bool:
    """Tell whether nobody reads our output any more."""
    import select

    out = select.poll()
    out.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & select.POLLERR for _, event in out.poll(0))


@contextmanager
def importing(what: str = "", extra: str = "local") -> Iterator[None]:
    """Import what a verb needs: a missing package names the extra that brings it.

    A signal ends the process at once here. Nothing has started yet, and a library that is
    interrupted while it is imported may print a traceback or raise another error.
    """

    def leave(number: int, _frame: object) -> None:
        os.write(2, b"recollect: stopped\n")
        os._exit(status_of(number))

    try:
        with heard(leave):
            yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if not what or package == "recollect":
            raise
        raise UserError(f"{what} needs {package or error}", install(extra)) from error


def find_package(name: str) -> None:
    """Raise ImportError if a package is missing, without the seconds that importing it takes."""
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise ImportError(f"No module named {name!r}", name=name)


def _run(args: list[str]) -> int:
    """Run one verb; a user's mistake prints one message and no traceback."""
    if not args or args[0] in ("-h", "--help", "help"):
        print(USAGE.format(presets=", ".join(PRESETS)), end="")
        return 0
    if args[0] in ("-V", "--version"):
        from recollect import __version__

        print(__version__)
        return 0
    try:
        if args[0] not in VERBS:
            raise UserError(f"there is no verb {args[0]!r}", f"choose from {', '.join(VERBS)}")
        return VERBS[args[0]](args[1:])
    except UserError as error:
        print(shown(f"recollect: {error}"), file=sys.stderr)
        return 2


def _config(args: list[str], verb: str, default_preset: str) -> TrainConfig:
    """Take a preset and lay the given settings over it."""
    with importing():
        import tyro

        from recollect.config.arguments import CHOOSING, settings_registry, take_parts, with_parts
        from recollect.config.published import Arguments
        from recollect.config.starting import is_run, starting_point, trained

    name = args.pop(0) if args and not args[0].startswith("-") else default_preset
    names, args = take_parts(args)
    start = starting_point(name)
    if verb == "eval":
        args = [EVAL_NAMES.get(word, word) for word in args]
        if "--val.tasks" in args and "--val.length-tasks" not in args:  # one number for all lengths
            at = args.index("--val.tasks") + 1
            args += ["--val.length-tasks", *args[at : at + 1]]
        if is_run(name) and "--model.path" not in args:
            start = trained(start)
    given = with_parts(Arguments.of(start), names)
    return tyro.cli(
        given.kind,
        default=given,
        args=args,
        prog=f"recollect {verb} {name}",
        description=f"{DESCRIPTIONS[verb].format(preset=name)} {CHOOSING}",
        config=(tyro.conf.AvoidSubcommands,),
        registry=settings_registry(),
    ).config


def _train(args: list[str]) -> int:
    with importing():
        from recollect.engines.verl.launch.options import split_engine

    options, args = split_engine(args)
    dry_run = "--dry-run" in args
    config = _config([a for a in args if a != "--dry-run"], "train", "demo")
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
        from recollect.commands.train import run_training

    return run_training(config)


def _eval(args: list[str]) -> int:
    if args and not args[0].startswith("-"):
        config = _config(args, "eval", "demo")
        with importing("measuring a preset"):
            from recollect.commands.held_out import run_held_out

        return run_held_out(config)
    with importing():
        import shlex

        import tyro

        from recollect.commands.evaluate import run_eval
        from recollect.evaluation.options import EvalOptions

    options = tyro.cli(EvalOptions, args=args, prog="recollect eval")
    return run_eval(options, shlex.join(["recollect", "eval", *args]))


def _replay(args: list[str]) -> int:
    with importing():
        from pathlib import Path

        import tyro

        from recollect.commands.evaluate import run_replay
        from recollect.evaluation.options import ReplayOptions

    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
        raise UserError("replay needs a folder", "type recollect replay FOLDER")
    folder = "" if args[0].startswith("-") else args.pop(0)
    options = tyro.cli(ReplayOptions, args=args, prog="recollect replay FOLDER")
    return run_replay(Path(folder), options)


def _judge_check(args: list[str]) -> int:
    with importing():
        import tyro

        from recollect.commands.evaluate import JudgeCheckOptions, run_judge_check

    return run_judge_check(tyro.cli(JudgeCheckOptions, args=args, prog="recollect judge-check"))


def _serve(args: list[str]) -> int:
    with importing():
        import tyro

        from recollect.serve.settings import ServeConfig

    config = tyro.cli(ServeConfig, args=args, prog="recollect serve")
    with importing("serving", "local,serve"):
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401

        from recollect.serve.server import run_server

    return run_server(config)


def _report(args: list[str]) -> int:
    if args in (["-h"], ["--help"]):
        print(REPORT, end="")
        return 0
    if len(args) != 1 or args[0].startswith("-"):
        raise UserError("report needs one folder", "type recollect report FOLDER")
    with importing():
        from pathlib import Path

        from recollect.evaluation.report import write_report

    for path in write_report(Path(args[0])):
        print(shown(str(path)))
    return 0


def _stages(args: list[str]) -> int:
    with importing():
        import tyro

        from recollect.commands.stages.file import StagesOptions, read_plan

    options = tyro.cli(StagesOptions, args=args, prog="recollect stages")
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


def _data(args: list[str]) -> int:
    with importing():
        from recollect.commands.data import run_data
        from recollect.display import open_console

    return run_data(args, open_console())


def _doctor(args: list[str]) -> int:
    if args in (["-h"], ["--help"]):
        print(DOCTOR, end="")
        return 0
    with importing():
        from recollect.display import open_console
        from recollect.engines.verl.launch.options import split_doctor

    engine, address = split_doctor(args)
    if engine == "verl":
        with importing():
            from recollect.commands.cluster_doctor import doctor_verl

        return doctor_verl(open_console(), address)
    with importing():
        from recollect.commands.doctor import doctor

    return doctor(open_console())


EVAL_NAMES = {"--model": "--model.path", "--n": "--val.tasks"}
"""What `recollect eval RUN` shares with `recollect eval --tasks`, by the names of a run."""


def _runs(args: list[str]) -> int:
    if args in (["-h"], ["--help"]) or len(args) > 1:
        print("usage: recollect runs [-h] [FOLDER]\n\nList the runs in FOLDER, or in runs/.")
        return 0 if len(args) == 1 else 2
    with importing():
        from pathlib import Path

        from recollect.commands.runs import show_runs
        from recollect.display import open_console

    return show_runs(Path(args[0] if args else "runs"), open_console())


VERBS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "eval": _eval,
    "serve": _serve,
    "replay": _replay,
    "judge-check": _judge_check,
    "report": _report,
    "stages": _stages,
    "runs": _runs,
    "data": _data,
    "doctor": _doctor,
}

if __name__ == "__main__":
    sys.exit(main())

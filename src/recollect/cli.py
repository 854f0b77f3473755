"""The command line: choose a verb, print a user's mistake in one line, and end with a status.

Importing this module costs milliseconds: everything else is imported by the verb that needs it, so
that `--help` is fast and Ctrl-C is understood from the start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from errno import EBADF, ELOOP, ENAMETOOLONG

from recollect.commands.verbs import VERBS
from recollect.errors import UserError, place_of
from recollect.foreign import one_line, shown
from recollect.runs.stopping import STOPPED, Interrupts

PRESETS = (
    *("demo", "recall", "ledger", "hotpotqa", "squad", "chronicle", "bank", "curator", "locomo"),
    *(
        "locomo_published",
        "ledger_qa",
        "ruler",
        "babilong",
        "callback",
        "gated",
        "parallel",
        "recursive",
        "short_diary",
        "two_stage",
        "memagent_published",
    ),
)
"""The names in `config.presets`, repeated here because importing them takes longer than `--help`
may."""

USAGE = """recollect: train and evaluate LLM memory agents with reinforcement learning

  recollect train [PRESET] [--any.setting value]   train an agent; --dry-run shows what it would do
  recollect train RUN [--any.setting value]        continue a run from its folder
  recollect train FILE.toml|.yaml                  an experiment: settings, seeds, a grid, one table
  recollect runs [FOLDER]                          list the runs: score, steps, state
  recollect view [FOLDER ...] [--export FILE]      see what memories kept and lost, in a page
  recollect compare A B                            two evaluations or checkpoints, paired by task
  recollect train PRESET --engine verl [...] [-- verl's own settings]     the same on a Ray cluster
  recollect eval RUN [--model ...] [--n ...]       held-out accuracy of a run's model, as it trained
  recollect eval PRESET [--any.setting value]      the same with a preset's settings
  recollect eval --tasks ... --agents ... --model  agents side by side on task families
  recollect replay FOLDER [--metrics ...]          score a stored evaluation, or a run's, again
  recollect judge-check --url URL                  how often a judge errs on labelled answers
  recollect stages [FILE.toml|PRESET]              train one role while the other is fixed, and swap
  recollect ask FILE "QUESTION" --model RUN        read any length of text, answer from memory
  recollect serve CHECKPOINT                       serve a model to OpenAI's clients
  recollect serve RUN|--upstream URL --agent fold  the same, for conversations of any length
  recollect mcp RUN|MODEL --memories FOLDER        a long-term memory for any MCP client
  recollect report FOLDER                          write the report of an evaluation or a run
  recollect data NAME --input FILE --output DIR    turn a data set's own files into tasks
  recollect data ledger --output DIR               write sets of ledgers of 2 to 50 sessions
  recollect data validate NAME                     check answers, evidence, positions, lengths
  recollect data embed --input DIR --cache DIR     compute the vectors of memories once
  recollect doctor [--engine verl --address auto]  what is installed, what is missing, the fix

  recollect train PRESET --help lists every setting. Presets: {presets}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status; `| head` may close our output early.

    The status is 0 for success, 1 or 2 for an error, and 128 + the signal that stopped it.
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
    except KeyboardInterrupt as error:
        print(STOPPED, file=sys.stderr)
        _discard(error)
        return interrupts.status
    except OSError as error:
        status = _output_failed(error)
        if not status:
            raise
        return status


def _discard(error: BaseException) -> None:
    """Drop what was interrupted half made: event loops and coroutines would complain about it."""
    import gc
    import warnings

    before, sys.unraisablehook = sys.unraisablehook, lambda _args: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            error.__traceback__ = error.__context__ = error.__cause__ = None
            gc.collect()
    finally:
        sys.unraisablehook = before


def _output_failed(error: OSError) -> int:
    """Return the exit status if nothing can be written; 0 if something else went wrong."""
    from contextlib import suppress
    from pathlib import Path

    from recollect.files import FULL, refusal

    refused = refusal(error, Path("the output"))
    if isinstance(error, BrokenPipeError) and _unread():
        status = 141  # what a shell shows for a program that SIGPIPE ended
    elif refused is not None and (error.errno in FULL or isinstance(error, FileNotFoundError)):
        print(f"recollect: {refused}", file=sys.stderr)
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


def _run(args: list[str]) -> int:
    """Run one verb; a user's mistake, also in code of their own, prints one message."""
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
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        wrong = _own_mistake(error) or _impossible_name(error) or _interference(error)
        if wrong is None:
            raise
        print(shown(f"recollect: {wrong}"), file=sys.stderr)
        return 2


def _own_mistake(error: BaseException) -> UserError | None:
    """Return a message if an error comes from a user's own code."""
    if not (place := place_of(error)):
        return None
    return UserError(f"{place}: {type(error).__name__}: {error}", "correct that line")


def _impossible_name(error: BaseException) -> UserError | None:
    """Return a message if no file can have a name that was given, whichever argument it was."""
    if not isinstance(error, OSError) or error.errno not in (ENAMETOOLONG, ELOOP):
        return None
    name = one_line(os.fsdecode(error.filename or ""), 80) or "a name"
    if error.errno == ELOOP:
        return UserError(f"{name} is a link that leads back to itself", "name what it stands for")
    return UserError(f"{name} is too long a name for a file", "give a shorter name")


def _interference(error: BaseException) -> UserError | None:
    """Return a message if other code in this process took away what a command was using."""
    if isinstance(error, OSError) and error.errno == EBADF:
        what = "some code closed files that recollect had open, as os.close on any number does"
        return UserError(what, "let your own code close only what it has opened")
    if type(error).__name__ == "CancelledError":  # of asyncio, which takes a while to import
        what = "some code cancelled the whole command, as cancelling all of a loop's tasks does"
        return UserError(what, "let your own code cancel only tasks that it has made")
    return None


if __name__ == "__main__":
    sys.exit(main())

"""Arguments of a verb: a preset or a run with settings over it; imports that name an extra."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from recollect.errors import UserError, place_of
from recollect.packaging import install
from recollect.runs.stopping import heard, status_of

if TYPE_CHECKING:
    from recollect.config.train import TrainConfig

Options = TypeVar("Options")
DESCRIPTIONS = {
    "train": """Train an agent, starting from the settings of preset {preset}.

--dry-run shows what would be done and starts nothing. --engine verl trains on a Ray cluster; what
follows -- then goes to verl itself, and --gpu-gib N is one GPU's memory in the estimates.""",
    "eval": """Measure the model of preset {preset} on held-out tasks, at several lengths.

Without a preset, recollect eval --help shows how to compare agents side by side.""",
}
EVAL_NAMES = {"--model": "--model.path", "--n": "--val.tasks"}
"""What `recollect eval RUN` shares with `recollect eval --tasks`, by the names of a run."""


@contextmanager
def importing(what: str = "", extra: str = "local") -> Iterator[None]:
    """Import what a verb needs: a missing package names the extra that brings it.

    A signal ends the process at once here. Nothing has started yet, and a library that is
    interrupted while it is imported may print a traceback or raise another error. Nor is garbage
    looked for: all that is imported stays, and looking through it takes an eighth of the time.
    """

    def leave(number: int, _frame: object) -> None:
        os.write(2, b"recollect: stopped\n")
        os._exit(status_of(number))

    collects = gc.isenabled()
    gc.disable()
    try:
        with heard(leave):
            yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if not what or package == "recollect":
            raise
        raise UserError(f"{what} needs {package or error}", install(extra)) from error
    finally:
        if collects:
            gc.enable()


def find_package(name: str) -> None:
    """Raise ImportError if a package is missing, without the seconds that importing it takes."""
    from importlib.util import find_spec

    if find_spec(name) is None:
        raise ImportError(f"No module named {name!r}", name=name)


def refuse_unprintable(args: Sequence[str]) -> None:
    """Refuse the name of a setting that would act on the terminal where it is repeated."""
    for word in args:
        if word.startswith("-") and not (name := word.partition("=")[0]).isprintable():
            raise UserError(f"there is no setting {name!r}", "--help lists them")


def read_options(kind: type[Options], args: Sequence[str], verb: str) -> Options:
    """Read the settings of a verb, a dataclass, from its words."""
    refuse_unprintable(args)
    with importing():
        import tyro

    # Help comes from docstrings. To look for comments too would double the time this takes.
    quick = (tyro.conf.HelptextFromCommentsOff,)
    return tyro.cli(kind, args=args, prog=f"recollect {verb}", config=quick)


def read_config(
    args: list[str], verb: str, default_preset: str, start: TrainConfig | None = None
) -> TrainConfig:
    """Take a preset, or what to `start` from, and lay the given settings over it."""
    refuse_unprintable(args)
    with importing():
        import tyro

        from recollect.config.flags import CHOOSING, settings_registry, take_parts, with_parts
        from recollect.config.published_names import Arguments
        from recollect.config.starting import is_run, starting_point, trained

    name = args.pop(0) if args and not args[0].startswith("-") else default_preset
    names, args = take_parts(args)
    start = start or starting_point(name)
    if verb == "eval":
        args = [EVAL_NAMES.get(word, word) for word in args]
        if "--val.tasks" in args and "--val.length-tasks" not in args:  # one number for all lengths
            at = args.index("--val.tasks") + 1
            args += ["--val.length-tasks", *args[at : at + 1]]
        if is_run(name) and "--model.path" not in args:
            start = trained(start)
    given = with_parts(Arguments.of(start), names)
    try:
        read = tyro.cli(
            given.kind,
            default=given,
            args=args,
            prog=f"recollect {verb} {name}",
            description=f"{DESCRIPTIONS[verb].format(preset=name)} {CHOOSING}",
            config=(tyro.conf.AvoidSubcommands, tyro.conf.HelptextFromCommentsOff),
            registry=settings_registry(),
        )
    except NameError as error:
        if place_of(error):
            raise
        own = " or ".join(names[part] for part in ("agent", "reward", "tasks") if part in names)
        what = f"the type of a setting of {own or name} cannot be read: {error}"
        raise UserError(what, "import that name outside of `if TYPE_CHECKING`") from None
    return read.config

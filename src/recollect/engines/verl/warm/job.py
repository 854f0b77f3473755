"""What an interpreter is told to run, done in a process that is one already."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

Job = Callable[[], object]
SWITCHES = set("bBdEiIOPqRsSuv")
"""They cannot be turned any more, and change nothing in what runs here."""


def job_of(arguments: Sequence[str]) -> Job | None:
    """Read the arguments of an interpreter; return None for what only a new one can do."""
    rest = list(arguments)
    alone = False
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word = rest.pop(0)
        if word in ("-c", "-m") and rest:
            return partial(run_code if word == "-c" else run_module, rest[0], rest[1:], alone)
        if word[:2] in ("-X", "-W"):
            del rest[: len(word) == 2]
        elif set(word[1:]) <= SWITCHES:
            alone |= bool({"I", "P"} & set(word))
        else:
            return None
    return partial(run_file, rest[0], rest[1:], alone) if rest and rest[0] != "-" else None


def run_code(code: str, arguments: Sequence[str], alone: bool) -> None:
    """Run a text, as with -c."""
    _give(["-c", *arguments], None if alone else "")
    sys.modules["__main__"] = own = ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), own.__dict__)


def run_module(name: str, arguments: Sequence[str], alone: bool) -> None:
    """Run a module, as with -m."""
    _give(["-m", *arguments], None if alone else "")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_file(path: str, arguments: Sequence[str], alone: bool) -> None:
    """Run a file."""
    _give([path, *arguments], None if alone else str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")


def _give(arguments: list[str], first: str | None) -> None:
    sys.argv[:] = arguments
    if first is not None:
        sys.path.insert(0, first)

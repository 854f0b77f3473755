"""What an interpreter is asked to run, done in a process that is one already.

Ray asks for a file, and multiprocessing for a function of its own. A text to run is left to a new
interpreter.
"""

from __future__ import annotations

import multiprocessing.spawn
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

Job = Callable[[], object]
SWITCHES = set("BEIPqRsSu")
"""They cannot be turned any more, and change nothing in what runs here; others need a new one."""
SPAWN = re.compile(r"from multiprocessing\.spawn import spawn_main; spawn_main\((.*)\)")
NUMBER = re.compile(r"(\w+)=(\d+)")


def job_of(arguments: Sequence[str]) -> Job | None:
    """Read the arguments of an interpreter; return None for what only a new one can do."""
    rest, alone = list(arguments), False
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "-c" and rest:
            return _spawned(rest[0], rest[1:])
        if word != "-" and set(word[1:]) <= SWITCHES:
            alone |= bool({"I", "P"} & set(word))
        else:
            return None
    return partial(run_file, rest[0], rest[1:], alone) if rest else None


def _spawned(code: str, arguments: Sequence[str]) -> Job | None:
    found = SPAWN.fullmatch(code)
    if found is None:
        return None
    given = {name: int(number) for name, number in NUMBER.findall(found[1])}
    return partial(run_spawned, given, arguments)


def run_spawned(given: dict[str, int], arguments: Sequence[str]) -> None:
    """Become what multiprocessing has spawned."""
    sys.argv[:] = ["-c", *arguments]
    multiprocessing.spawn.spawn_main(**given)


def run_file(path: str, arguments: Sequence[str], alone: bool) -> None:
    """Run a file; unless it is to be left alone, its folder is where it imports from first."""
    sys.argv[:] = [path, *arguments]
    if not alone:
        sys.path.insert(0, str(Path(path).resolve().parent))
    # In the place of the warm process's own, for good: what ends later still looks names up there.
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = path
    Script("__main__", path).exec_module(module)


class Script(SourceFileLoader):
    """Loads a file as an interpreter does that is asked to run it: nothing compiled is kept."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file."""
        return self.source_to_code(self.get_data(self.path), self.path)

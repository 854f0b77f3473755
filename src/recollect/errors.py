"""Errors for people, and the boundaries foreign errors cross.

`UserError` is a user's mistake: one message, no traceback. `boundary()` marks where our code meets
something that may fail for its own reasons (a model, a tool, an agent), so that an episode can be
recorded as failed there, with who caused it, instead of ending the run.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from recollect.concurrency.deadlines import NO_MARK, waiting
from recollect.concurrency.stop import Interrupted, is_own_code
from recollect.foreign import redact
from recollect.types import Failure, Fault

AGENTS = ("agent", "render", "policy")
"""Boundaries inside which the time is the agent's; a policy marks its own."""
FOREIGN = ("aiohttp", "grpc", "httpcore", "httpx", "openai", "ray", "requests", "urllib3")
"""Packages whose errors tell of a network or another process, though they are no OSError."""


def on_stderr(note: str) -> None:
    """Say a note where nobody else does."""
    sys.stderr.write(f"recollect: {note}\n")


class UserError(Exception):
    """A mistake the user can fix: says what is wrong, where, and the fix."""

    def __init__(self, what: str, fix: str = "") -> None:
        what, fix = redact(what), redact(fix)
        super().__init__(what if not fix else f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix


class AgentError(Exception):
    """What the agent itself caused: raise it in an agent, a tool or a reward for a reply that
    nothing can be made of. The episode fails, and earns the lowest reward in training."""

    on_purpose = True
    """Whether it is raised for what a model said, not for what the code around it does."""


class OwnMistake(AgentError):
    """A user's own code returned something invalid; the message says what and where."""

    def __init__(self, what: str, place: str) -> None:
        super().__init__(what)
        self.place = place


class BoundaryError(Exception):
    """A foreign exception, attributed to the boundary it crossed."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(f"{name}: {type(cause).__name__}: {cause}")
        self.name = name
        self.cause = cause

    @property
    def failure(self) -> Failure:
        kind, place = type(self.cause).__name__, place_of(self.cause)
        said = redact(str(self.cause))  # a server may repeat the key that it was sent
        return Failure(self.name, kind, said, self.fault, place)

    @property
    def fault(self) -> Fault:
        """Who caused it.

        An agent is a function of what its models say, so an error of its code is the agent's, and
        so is one in showing what it says: where that is the text's doing, all siblings fail alike
        and nothing is learned. The agent is not to blame for anything else, such as a network.
        """
        if isinstance(self.cause, AgentError):
            return "agent"
        own = self.name in ("agent", "render") and not _is_foreign(self.cause)
        return "agent" if own else "environment"


PASSING = (UserError, BoundaryError, Interrupted, asyncio.CancelledError, GeneratorExit)
"""What is for the code around a boundary. Nothing else ends a run: neither Python's own ways to end
nor what libraries raise beside `Exception`, such as a panic of one that is written in Rust."""


class boundary:  # not a generator: that takes three times as long
    """Attribute any exception raised inside to `name`; the innermost boundary keeps it.

    A UserError passes through, and so does Ctrl-C: they concern the whole run, not one episode.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting = NO_MARK if name in AGENTS else waiting()

    def __enter__(self) -> None:
        self._waiting.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        self._waiting.__exit__(kind, error, trace)
        if error is None or isinstance(error, PASSING):
            return
        cause = _cause(error)
        if isinstance(cause, UserError | BoundaryError):
            raise cause from error
        raise BoundaryError(self._name, cause) from error


def _cause(error: BaseException) -> BaseException:
    """Look into what an agent's own task group raised: a UserError first, else its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = (error.subgroup(UserError) or error).exceptions[0]
    return error


def _is_foreign(error: BaseException | None) -> bool:
    """Tell whether an error comes from a disk, a network or another process."""
    while error is not None:
        if isinstance(error, OSError | MemoryError) or _from(error) in FOREIGN:
            return True
        error = error.__cause__
    return False


def _from(error: BaseException) -> str:
    """Name the package that an error comes from."""
    return type(error).__module__.partition(".")[0]


def place_of(error: BaseException) -> str:
    """Return `file:line` of the innermost frame in a user's own code, or an empty text."""
    if isinstance(error, OwnMistake):
        return error.place
    if _from(error) in FOREIGN:
        return ""
    if isinstance(error, ConnectionError | TimeoutError) and not _is_own_limit(error):
        return ""  # a server's
    if isinstance(error, AgentError) and error.on_purpose:
        return ""
    if isinstance(error.__cause__, StopIteration):  # it may not leave a coroutine, and is wrapped
        error = error.__cause__
    return innermost(traceback.walk_tb(error.__traceback__))


def _is_own_limit(error: BaseException) -> bool:
    """Tell whether a user's own code gave up waiting: asyncio says so right behind it."""
    names = [frame.f_code.co_filename for frame, _line in traceback.walk_tb(error.__traceback__)]
    own = [at for at, name in enumerate(names) if is_own_code(name)]
    behind = names[own[-1] + 1 :] if own else []
    return bool(behind) and all(Path(name).parent.name == "asyncio" for name in behind)


def innermost(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return `file:line` of the last of these frames that is a user's own code, or nothing.

    What Python writes itself, such as the methods of a data class, is nobody's line.
    """
    place = ""
    for frame, line in frames:
        name = frame.f_code.co_filename
        if (name != "<string>" or _is_command(frame.f_globals)) and is_own_code(name):
            place = show_place(name, line)
    return place


def _is_command(names: dict[str, Any]) -> bool:
    """Tell whether these are the globals of `python -c`."""
    return names.get("__name__") == "__main__" and "__file__" not in names


def called_by(item: Any) -> Any:
    """Return the function that is called where a function, a partial or an object is."""
    while isinstance(item, functools.partial):
        item = item.func
    if not inspect.isroutine(item):
        item = type(item).__call__
    return inspect.unwrap(item)


def place_of_function(item: Any) -> str:
    """Return where a function is defined; empty if it is not written in Python."""
    code = getattr(called_by(item), "__code__", None)
    return show_place(code.co_filename, code.co_firstlineno) if code else ""


def place_of_class(kind: type) -> str:
    """Return where a class is defined; empty if its source is not known."""
    try:
        return show_place(inspect.getsourcefile(kind) or "", inspect.getsourcelines(kind)[1])
    except (OSError, TypeError):
        return ""


def show_place(filename: str, line: int) -> str:
    """Write where a line of code is, from the current folder if it lies there."""
    return f"{near(Path(filename))}:{line}"


def near(path: Path) -> Path:
    """Return the shorter name of a path that lies in the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path

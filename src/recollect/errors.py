"""Errors for people, and the boundaries foreign errors cross.

`UserError` is a user's mistake: one message, no traceback. `boundary()` marks where our code meets
something that may fail for its own reasons (a model, a tool, an agent), so that an episode can be
recorded as failed there, with who caused it, instead of ending the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from recollect.deadline import waiting
from recollect.types import Failure, Fault

AGENTS = ("agent", "render", "policy")
"""Boundaries inside which the time is the agent's; a policy marks its own."""
FOREIGN = ("aiohttp", "grpc", "httpcore", "httpx", "openai", "ray", "requests", "urllib3")
"""Packages whose errors tell of a network or another process, though they are no OSError."""


class UserError(Exception):
    """A mistake the user can fix: says what is wrong, where, and the fix."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what if not fix else f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix


class AgentError(Exception):
    """What the agent itself caused: raise it in an agent, a tool or a reward for a reply that
    nothing can be made of. The episode fails, and earns the lowest reward in training."""


class BoundaryError(Exception):
    """A foreign exception, attributed to the boundary it crossed."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(f"{name}: {type(cause).__name__}: {cause}")
        self.name = name
        self.cause = cause

    @property
    def failure(self) -> Failure:
        return Failure(self.name, type(self.cause).__name__, str(self.cause), self.fault)

    @property
    def fault(self) -> Fault:
        """Who caused it.

        An agent is a function of what its models say, so an error of its code is the agent's, and
        so is one in showing what it says: where that is the text's doing, all siblings fail alike
        and nothing is learned. All else, and what a network or a disk does to an agent, is not.
        """
        if isinstance(self.cause, AgentError):
            return "agent"
        own = self.name in ("agent", "render") and not _is_foreign(self.cause)
        return "agent" if own else "environment"


@contextmanager
def boundary(name: str) -> Iterator[None]:
    """Attribute any exception raised inside to `name`; the innermost boundary keeps it.

    A UserError passes through: it concerns the whole run, not one episode.
    """
    try:
        with nullcontext() if name in AGENTS else waiting():
            yield
    except (UserError, BoundaryError):
        raise
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, UserError | BoundaryError):
            raise cause from error
        raise BoundaryError(name, cause) from error


def _cause(error: Exception) -> Exception:
    """Look into what an agent's own task group raised: a UserError first, else its first error."""
    while isinstance(error, ExceptionGroup):
        error = (error.subgroup(UserError) or error).exceptions[0]
    return error


def _is_foreign(error: BaseException | None) -> bool:
    """Tell whether an error comes from a disk, a network or another process."""
    while error is not None:
        package = type(error).__module__.partition(".")[0]
        if isinstance(error, OSError | MemoryError) or package in FOREIGN:
            return True
        error = error.__cause__
    return False

"""Errors for people, and the boundaries foreign errors cross.

`UserError` is a user's mistake: one message, no traceback. `boundary()` marks where our code meets
something that may fail for its own reasons (a model, a tool, an agent), so that an episode can be
recorded as failed there instead of ending the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recollect.types import Failure


class UserError(Exception):
    """A mistake the user can mend: says what is wrong, where, and the fix."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what if not fix else f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix


class BoundaryError(Exception):
    """A foreign exception, attributed to the boundary it crossed."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(f"{name}: {type(cause).__name__}: {cause}")
        self.name = name
        self.cause = cause

    @property
    def failure(self) -> Failure:
        return Failure(self.name, type(self.cause).__name__, str(self.cause))


@contextmanager
def boundary(name: str) -> Iterator[None]:
    """Attribute any exception raised inside to `name`; the innermost boundary keeps it.

    A UserError passes through: it concerns the whole run, not one episode.
    """
    try:
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

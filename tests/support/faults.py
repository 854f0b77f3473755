"""Disks that fail: files that may not grow, and system calls that are refused."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CALLS = ("write", "fsync", "replace", "rename", "ftruncate", "mkdir")
"""What of `os` a full disk refuses, as far as Python's own code calls it there."""


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes: a write ends short, then is refused."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Refusing:
    """Refuses system calls from a chosen one on, as a disk does that has become full."""

    def __init__(self, after: int, number: int = errno.ENOSPC, lasting: bool = True) -> None:
        self.after = after
        self.number = number
        self.lasting = lasting
        self.calls = 0
        self.refused = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Stand between Python and the system while the block runs."""
        real = {name: getattr(os, name) for name in CALLS}
        try:
            for name, call in real.items():
                setattr(os, name, self._wrapped(call))
            yield
        finally:
            for name, call in real.items():
                setattr(os, name, call)

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **settings: Any) -> Any:
            self.calls += 1
            if self.calls == self.after or (self.lasting and self.calls > self.after):
                self.refused += 1
                raise OSError(self.number, os.strerror(self.number))
            return call(*args, **settings)

        return wrapped

"""The embedded engine: episodes, comparison, loss, optimiser, and the loop around them.

`recollect.train(...)` is a function for users. It has the name of this package, and importing any
module in here puts the package in its place; so the package can be called, and does the same.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, start: Any = "demo", *, quiet: bool = False, **overrides: Any) -> Any:
        """Train an agent: see `recollect.commands.api.train`."""
        api = import_module("recollect.commands.api")
        return api.train(start, quiet=quiet, **overrides)


sys.modules[__name__].__class__ = _Package

"""What a person sees: the run while it trains, rollouts side by side, the report card.

Names are loaded when they are first used: a command's first line does not wait for tables.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.display.console import open_console
    from recollect.display.live import COLUMNS, Column, Display
    from recollect.display.report import Report, report_card, report_markdown
    from recollect.display.rollouts import rollout_table

_HOMES = {
    "console": ("open_console",),
    "live": ("COLUMNS", "Column", "Display"),
    "report": ("Report", "report_card", "report_markdown"),
    "rollouts": ("rollout_table",),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}

__all__ = [
    "COLUMNS",
    "Column",
    "Display",
    "Report",
    "open_console",
    "report_card",
    "report_markdown",
    "rollout_table",
]


def __getattr__(name: str) -> object:
    """Load a name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found

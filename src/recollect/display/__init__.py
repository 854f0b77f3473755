"""What a person sees: the run while it trains, rollouts side by side, the report card."""

from recollect.display.live import COLUMNS, Column, Display, open_console
from recollect.display.report import Report, report_card, report_markdown
from recollect.display.rollouts import rollout_table

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

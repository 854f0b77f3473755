"""Reports of evaluations: Markdown and one HTML file that needs nothing else."""

from recollect.evaluation.report.files import write_report

__all__ = ["write_report"]

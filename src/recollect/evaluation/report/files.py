"""`recollect report FOLDER`: report.md and report.html from the results.json of an evaluation."""

from __future__ import annotations

from pathlib import Path

from recollect.evaluation.report.content import make_document
from recollect.evaluation.report.markdown import write_markdown
from recollect.evaluation.report.page import write_page
from recollect.evaluation.results import load
from recollect.files import write_text


def write_report(folder: Path) -> tuple[Path, Path]:
    """Write both files beside results.json; return where they are."""
    document = make_document(load(folder))
    home = folder.parent if folder.is_file() else folder
    paths = home / "report.md", home / "report.html"
    for path, text in zip(paths, (write_markdown(document), write_page(document)), strict=True):
        write_text(path, text)
    return paths

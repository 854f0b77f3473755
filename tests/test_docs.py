"""What the documentation tells a reader to type in Python does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recollect.cli import main
from tests.support.own import own_folder

DOCS = Path(__file__).parent.parent / "docs"


def snippet(page: str, heading: str) -> str:
    """Return the Python under a heading of a page."""
    section = (DOCS / page).read_text().split(f"## {heading}\n")[1]
    return re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)[0]


@pytest.mark.parametrize("page", sorted(page.name for page in DOCS.glob("own*.md")))
def test_your_own_parts_run_as_documented(page, tmp_path, monkeypatch):
    """The file of every page, with its own commands for a dry run."""
    text = (DOCS / page).read_text()
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    with own_folder(tmp_path, monkeypatch, mine=code):
        trained = re.findall(r"^recollect (train .*)$", text, re.M)
        assert trained
        for command in trained:
            assert main([*command.split(), "--dry-run"]) == 0


def test_the_readme_runs_as_printed(tmp_path, monkeypatch):
    """The agent and the reward of the README train as its first command says."""
    text = (DOCS.parent / "README.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    [command] = re.findall(r"^recollect (train demo --agent \S+ --reward \S+)", text, re.M)
    small = "--rollout.tasks 1 --rollout.n 2 --updates-per-step 1 --val.tasks 1 --steps 1"
    more = ["--val.lengths", "--folder", str(tmp_path)]
    with own_folder(tmp_path, monkeypatch, mine=code):
        assert main([*command.split(), *small.split(), *more]) == 0
    rows = (tmp_path / "demo" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [0, 1]


def test_links_between_pages_lead_somewhere():
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

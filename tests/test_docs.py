"""What the documentation tells a reader to type in Python does what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.config.presets import PRESETS
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
    more = ["--val.lengths", "--val.distractors", "--folder", str(tmp_path)]
    with own_folder(tmp_path, monkeypatch, mine=code):
        assert main([*command.split(), *small.split(), *more]) == 0
    rows = (tmp_path / "demo" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [0, 1]


def test_links_between_pages_lead_somewhere():
    for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_pages_of_presets_and_of_pages_are_complete():
    index, train = (DOCS / "index.md").read_text(), (DOCS / "train.md").read_text()
    parts = DOCS.glob("own-*.md")  # own.md lists them
    pages = set(DOCS.glob("*.md")) | set(DOCS.glob("results/*.md"))
    for page in pages.difference(parts, [DOCS / "index.md"]):
        assert f"({page.relative_to(DOCS).as_posix()})" in index, page.name
    for preset in PRESETS:
        assert f"`{preset}`" in train, preset


def test_the_commands_that_show_what_could_fool_you_name_tests_that_exist():
    root, page = DOCS.parent, (DOCS / "evaluation.md").read_text()
    commands = re.findall(r"`pytest ([^`]+)`", page)
    assert len(commands) > 30
    for command in commands:
        words = shlex.split(command)
        chosen = words[words.index("-k") + 1] if "-k" in words else ""
        paths = [root / word for word in words if word.startswith("tests/")]
        files = [f for path in paths for f in ([path] if path.is_file() else path.rglob("test_*"))]
        assert paths and all(path.exists() for path in paths), command
        named = [
            f"{file.stem} {name}"
            for file in files
            if file.suffix == ".py"
            for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)
        ]
        for word in filter(None, re.split(r" or ", chosen)):
            assert any(word in name for name in named), f"{command}: {word}"

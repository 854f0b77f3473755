"""The documentation site: every page is in the navigation, and links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import recollect
from tests.support.places import ROOT


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def test_every_page_is_in_the_navigation_once_and_every_entry_exists(site, settings):
    listed = list(site._paths(site.fill(settings["nav"], site.pages())))
    assert sorted(listed) == sorted(site.pages())
    for page in ("index.md", "own.md", "tasks.md", "rewards.md", "tools.md", "evaluation.md"):
        assert page in listed
    for page in ("train.md", "two-stage.md", "cluster.md", "reference/01-commands.md"):
        assert page in listed


def test_a_page_that_comes_later_finds_its_place(site, settings):
    later = ["own-memories.md", "viewer.md", "later.md", "results/new.md"]
    nav = {
        k: v for one in site.fill(settings["nav"], [*site.pages(), *later]) for k, v in one.items()
    }
    assert "own-memories.md" in nav["Your own parts"]
    assert {"Viewer": "viewer.md"} in nav["Use"]
    assert "later.md" in nav["Train"] and "results/new.md" in nav["Results"]


def test_the_reference_has_every_public_name_once(site):
    entries = re.findall(r"^::: ([\w.]+)$", "\n".join(site.reference().values()), re.M)
    names = [entry.rpartition(".")[2] for entry in entries]
    assert sorted(names) == sorted(set(recollect.__all__) - {"__version__"})


def test_links_out_of_the_docs_are_pages_of_the_site(site):
    assert site.relink("[rules](../AGENTS.md#style)", "index.md") == "[rules](house-rules.md#style)"
    assert site.relink("[r](../../AGENTS.md)", "results/demo.md") == "[r](../house-rules.md)"
    assert site.relink("[d](../examples/own_data.jsonl)", "data.md") == "`examples/own_data.jsonl`"
    assert site.relink("[d](docs/data.md)", "contributing.md") == "[d](data.md)"
    assert site.relink("[t](tasks.md)", "data.md") == "[t](tasks.md)"


def test_nothing_comes_from_another_host(settings):
    assert settings["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript", "repo_url"} & set(settings)
    assert not re.search(r"https?://", (ROOT / "mkdocs.yml").read_text())


@pytest.mark.skipif(
    not importlib.util.find_spec("material"), reason="mkdocs-material is not here: make docs has it"
)
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    loaded = r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(https?:[^"' >]+)"""
    for page in Path(tmp_path).rglob("*.html"):
        assert not re.findall(loaded, page.read_text()), page.name

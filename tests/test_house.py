"""The picture and the page of the architecture say what the code is."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.places import ROOT

PACKAGE = ROOT / "src" / "recollect"
PAGE = ROOT / "docs" / "architecture.md"
ROW = re.compile(r"^\|(?: \d+ \|)? `([\w/]+\.py)` \| `([\w.]+)` \|", re.M)


@pytest.fixture(scope="module")
def house() -> ModuleType:
    path = ROOT / "scripts" / "draw_house.py"
    spec = importlib.util.spec_from_file_location("draw_house", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_drawn_from_the_imports(house):
    drawn = house.PICTURE.read_text()
    assert drawn == house.draw(), "out of date: run python scripts/draw_house.py"


def test_the_house_has_few_rooms_and_no_arrow_points_up(house):
    plan = house.floors()
    floor = {room: level for level, rooms in enumerate(plan) for room in rooms}
    graph = house.arrows(set(floor))
    assert len(floor) <= 40
    assert not [(a, b) for a in graph for b in graph[a] if floor[b] < floor[a]]
    modules = [path for path in PACKAGE.glob("*.py") if path.stem != "__init__"]
    assert len(modules) <= 16, sorted(path.stem for path in modules)
    on_floors = {*floor, "__main__", "__init__", "demo", "__pycache__"}
    assert {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")} <= on_floors


def test_a_circle_would_be_seen(house):
    graph = {"a": {"b"}, "b": {"c"}, "c": set()}
    assert house.reduced({**graph, "a": {"b", "c"}}) == graph


def test_every_file_and_name_of_the_walks_exists():
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) >= 35
    for file, name in rows:
        tree = ast.parse((PACKAGE / file).read_text())
        for part in name.split("."):
            named = [n for n in tree.body if getattr(n, "name", None) == part]
            assert named, f"{file} has no {name}"
            tree = named[-1]


def test_every_file_that_the_page_names_exists():
    for file in re.findall(r"`([\w/]+(?:\.py|/))`", PAGE.read_text()):
        known = [PACKAGE / file, ROOT / file]
        assert any(path.exists() for path in known) or file == "model/", file
    for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE.read_text()):
        assert (Path(PAGE).parent / picture).exists()


def test_every_folder_and_file_says_what_it_is():
    for path in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


NAMED = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|toml|sh|txt|yaml))[`:]")
OTHERS = ("path/", "code/", "data/", "models/", "runs/", "MemAgent/")
"""Beginnings of names that are a user's, or of other projects."""


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_every_file_that_a_page_names_is_there(page):
    """As it is named from the project's folder, or from the package's."""
    names = {name for name in NAMED.findall(page.read_text()) if not name.startswith(OTHERS)}
    lost = [name for name in names if not (ROOT / name).exists() and not (PACKAGE / name).exists()]
    assert not lost

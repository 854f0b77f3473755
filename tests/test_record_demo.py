"""The picture of `make demo`: how a terminal is replayed, and that the picture is in order."""

from __future__ import annotations

import importlib.util
import io
import re
from types import ModuleType
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tests.support.places import ROOT


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    path = ROOT / "scripts" / "record_demo.py"
    spec = importlib.util.spec_from_file_location("record_demo", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_live_page_ends_as_a_terminal_shows_it(recorder):
    console = Console(file=io.StringIO(), force_terminal=True, width=40, color_system="truecolor")
    with Live(console=console, auto_refresh=False) as live:
        for number in range(3):
            console.print(f"note {number}")
            page = (
                Text(f"step {number}\nline") if number < 2 else Text("step 2\nline\n[end]", "red")
            )
            live.update(page, refresh=True)
    console.print("after", style="bold")
    lines = recorder.screen(console.file.getvalue())
    shown = [Text.from_ansi(line).plain.rstrip() for line in lines]
    assert shown == ["note 0", "note 1", "note 2", "step 2", "line", "[end]", "after", ""]
    assert "make demo" in recorder.draw(lines) and "\x1b" not in recorder.draw(lines)


def test_the_picture_is_small_whole_and_loads_nothing(recorder):
    drawn = recorder.PICTURE.read_text()
    assert len(drawn) < 200_000
    assert re.findall(r"https?://[^\"' )]+", drawn) == ["http://www.w3.org/2000/svg"]
    text = "".join(ElementTree.fromstring(drawn).itertext()).replace("\xa0", " ")
    assert "Report card: demo" in text and "recollect eval runs/demo" in text
    # It is of the run that is the first of the README's row.
    [row] = re.findall(r"\| `make demo` \|.*", (ROOT / "README.md").read_text())
    before, after, long, crowded = re.findall(r"\| ([01]\.\d+),", row)
    assert re.search(rf"before +{before}", text) and re.search(rf"after +{after}", text)
    assert re.search(rf"16x +{long}", text) and re.search(rf"2x distractors +{crowded}", text)

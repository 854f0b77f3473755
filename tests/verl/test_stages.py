"""`recollect stages` on verl: a stage is merged and served, and the next one trains against it."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("verl")

from recollect.cli import main

STAGES = """
name = "two"
engine = "verl"
preset = "two_stage"

[verl]
cpu = true
server = "recollect"

[settings]
rollout.tasks = 2
rollout.n = 2
updates_per_step = 1
val.tasks = 2
steps = 1

[[stages]]
train = "memory"

[[stages]]
train = "answer"
"""


@pytest.mark.timeout(1200)
def test_two_stages_on_verl(tmp_path, capfd):
    (tmp_path / "file.toml").write_text(STAGES)
    args = ["stages", str(tmp_path / "file.toml"), "--folder", str(tmp_path), "--no-end-to-end"]
    assert main(args) == 0
    done = json.loads((tmp_path / "two" / "stages.json").read_text())["finished"]
    assert [stage["name"] for stage in done] == ["1-memory", "2-answer"]
    assert done[1]["fixed"] == "1-memory"
    for stage in done:
        folder = tmp_path / "two" / stage["name"]
        assert (folder / "model" / "config.json").exists()
        assert (folder / "report.md").exists()
    # The second stage's pair before any update is the first one's after its last.
    assert done[1]["before"]["n"] == done[0]["after"]["n"] == 4
    settings = json.loads((tmp_path / "two" / "2-answer" / "config.json").read_text())
    assert settings["learning"] == ["answer"]
    # Nothing is left to do: a second call starts neither Ray nor a server.
    capfd.readouterr()
    assert main(args) == 0
    assert capfd.readouterr().out.count("finished earlier") == 2

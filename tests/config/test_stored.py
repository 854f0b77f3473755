"""Settings are stored as JSON and read back, with the user's own parts and their source."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.function import FunctionAgent
from recollect.config.modules import load
from recollect.config.presets import PRESETS, preset
from recollect.config.stored import read_settings, settings_of, write_settings
from recollect.errors import UserError
from recollect.rewards.answers import AnswerReward
from tests.support.own import own_folder


@pytest.mark.parametrize("name", PRESETS)
def test_settings_come_back(name, tmp_path):
    write_settings(tmp_path / "config.json", preset(name))
    assert read_settings(tmp_path / "config.json") == preset(name)


def own_config():
    return replace(
        preset("demo"),
        agent=load("mine:Reader")(max_note_tokens=9),
        reward=AnswerReward(load("mine:close_enough")),
        tasks=load("mine:Chess")(moves=5),
    )


def test_your_own_parts_come_back_with_their_fields_and_their_source(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch):
        config = own_config()
        run = tmp_path / "run"
        write_settings(run / "config.json", config)
        table = json.loads((run / "config.json").read_text())
        assert table["agent"] == {"class": "mine:Reader", "max_note_tokens": 9}
        assert table["reward"]["metric"] == "mine:close_enough"
        assert (run / "code/mine.py").read_text() == Path("mine.py").read_text()
        assert read_settings(run / "config.json") == config
        # In another process, in another folder, it comes from the run.
        del sys.modules["mine"]
        Path("mine.py").unlink()
        again = read_settings(run / "config.json")
        assert sys.modules["mine"].__file__ == str(run.resolve() / "code/mine.py")
        assert (again.agent.max_note_tokens, again.tasks.moves) == (9, 5)
        assert again.reward.score("it is e4", ("e4",)) == 1.0


def test_a_function_is_stored_under_its_name(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch):
        config = replace(
            preset("demo"),
            agent=load("mine:two_pass"),
            reward=load("mine:short"),
            tasks=load("mine:listed"),
        )
        table = settings_of(config)
        names = {part: table[part]["class"] for part in ("agent", "reward", "tasks")}
        assert names == {"agent": "mine:two_pass", "reward": "mine:short", "tasks": "mine:listed"}
        write_settings(tmp_path / "run/config.json", config)
        assert read_settings(tmp_path / "run/config.json") == config
        assert isinstance(config.agent, FunctionAgent)


def test_nothing_is_imported_but_the_modules_of_the_run(tmp_path):
    write_settings(tmp_path / "config.json", preset("demo"))
    table = json.loads((tmp_path / "config.json").read_text())

    def refused(part: str, name: str) -> str:
        (tmp_path / "config.json").write_text(json.dumps({**table, part: {"class": name}}))
        with pytest.raises(UserError) as caught:
            read_settings(tmp_path / "config.json")
        return caught.value.what

    (tmp_path / "evil.py").write_text("raise RuntimeError('imported')\n")
    for name in ("subprocess:Popen", "evil:agent", f"{tmp_path}/evil.py:agent", "os:system"):
        assert "is not a module of the run" in refused("agent", name)
    for name in ("recollect.files:remove", "recollect.config.modules:load"):
        assert "is no setting" in refused("reward", name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "holds no settings of a run"),
        ("{", "holds no settings of a run"),
        ("[]", "holds no settings of a run"),
        ('{"agent": {"chunk_size": 5}, "tasks": {}}', "another version of recollect: agent names"),
    ],
)
def test_what_is_no_run_is_refused(text, says, tmp_path):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=says):
        read_settings(tmp_path / "config.json")

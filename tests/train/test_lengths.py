"""Lengths that tasks do not have are refused at the start, by the setting that asks for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.engines.verl.run.folder import drawn
from recollect.errors import UserError
from recollect.tasks.conversations.locomo_folder import Locomo
from recollect.tasks.documents.memagent import MemAgentRows
from recollect.tasks.files.jsonl import Jsonl
from recollect.tasks.made.ledger import Ledger
from recollect.tasks.made.ledger_folder import LedgerFiles
from recollect.tasks.multiples import stretched
from recollect.train.lengths import check_tasks, crowded_tasks
from recollect.types import Question, Task


def own_data(folder: Path, **changes) -> TrainConfig:
    """Return a run on three held-out tasks of one length."""
    line = {"text": "It rains.", "question": "What is the weather?", "answer": "rain"}
    lines = [line, line, line, line | {"split": "train"}]
    (folder / "own.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return replace(preset("demo"), tasks=Jsonl(folder / "own.jsonl"), **changes)


def test_a_wrong_length_of_validation_is_refused_before_the_run_is_made(capsys, tmp_path):
    args = ["train", "ledger", "--model.path", str(preset("demo").model.path)]
    args += ["--agent.chunk-size", "64", "--agent.max-memory-tokens", "8"]
    args += ["--agent.max-answer-tokens", "8", "--val.tasks", "4", "--folder", str(tmp_path)]
    for more in ([], ["--dry-run"]):
        assert main([*args, "--val.lengths", "1", "1000000", *more]) == 2
        said = capsys.readouterr().err
        assert "val.lengths asks for 1000000 times the text" in said
        assert "set --val.lengths" in said and not list(tmp_path.iterdir())


def test_the_setting_that_asks_is_named(tmp_path):
    held_out = ValidationConfig(tasks=3, lengths=(1,), length_tasks=3)
    check_tasks(own_data(tmp_path, val=held_out), 3)
    config = own_data(tmp_path, val=replace(held_out, lengths=(1, 2)))
    with pytest.raises(UserError, match=r"(?s)one length.*set --val\.lengths"):
        check_tasks(config, 3)
    config = own_data(tmp_path, val=held_out, rollout=RolloutConfig(curriculum=(1, 2)))
    with pytest.raises(UserError, match=r"(?s)one length.*set --rollout\.curriculum"):
        check_tasks(config, 3)
    config = replace(config, rollout=replace(config.rollout, curriculum=(2,)))
    with pytest.raises(UserError, match=r"set --rollout\.curriculum"):
        next(drawn(config))
    with pytest.raises(UserError, match="at most 3"):
        check_tasks(own_data(tmp_path, val=held_out), 4)


class Round:
    """Two held-out tasks, again and again."""

    name, metric = "round", "exact_match"

    def size(self, split):
        return 2

    def longer(self, times):
        return self

    def task(self, index, seed=0, split="train"):
        return Task(f"{split}-{index % 2}", ["It rains."], (Question("Rain?", ("yes",)),))


def test_no_more_is_held_out_than_there_is_where_a_family_begins_again(tmp_path):
    val = ValidationConfig(tasks=3, lengths=(), length_tasks=2)
    config = replace(preset("demo"), tasks=Round(), val=val)
    with pytest.raises(
        UserError, match=r"val.tasks is 3, .* 2 (?s:.*)set --val.tasks to at most 2"
    ):
        check_tasks(config, 2)
    check_tasks(replace(config, val=replace(val, tasks=2)), 2)


def test_distractors_are_multiplied_where_tasks_have_some(tmp_path):
    val = ValidationConfig(tasks=3, lengths=(1,), length_tasks=3, distractors=(2, 3))
    demo = replace(preset("demo"), val=val)
    crowds = crowded_tasks(demo)
    assert crowds == {
        times: replace(demo.tasks, distractors=times * demo.tasks.distractors) for times in (2, 3)
    }
    few, many = (str(family.task(0, 0, "test").chunks).count(".") for family in crowds.values())
    assert few < many
    assert crowded_tasks(own_data(tmp_path, val=val)) == {}
    with pytest.raises(UserError, match=r"val\.distractors"):
        replace(val, distractors=(0,))


@pytest.mark.parametrize(
    "family", [Locomo(), LedgerFiles(), MemAgentRows(), Jsonl(), Ledger(sessions=100)]
)
def test_families_of_one_length(family):
    assert stretched(family, 1, "val.lengths") == family
    with pytest.raises(UserError, match=r"(?s)val\.lengths asks for 99999 .* 1 is always possible"):
        stretched(family, 99999, "val.lengths")

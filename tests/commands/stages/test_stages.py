"""The file of stages: what it means, and how it says what is wrong in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recollect.commands.stages.file import SHIPPED, StagesOptions, read_plan
from recollect.commands.stages.plan import StagePlan
from recollect.commands.stages.server import arguments
from recollect.config.overlay import to_table
from recollect.config.presets import TWO_STAGE_MODEL
from recollect.config.settings_file import read_settings_file
from recollect.errors import UserError
from tests.support.own import own_folder

THREE = """
name = "three"
folder = "FOLDER"

[settings]
seed = 7
rollout.tasks = 4
rollout.n = 2

[[stages]]
train = "memory"
steps = 3

[[stages]]
train = "answer"
steps = 2
optim.lr = 2e-3
[stages.val]
tasks = 9

[[stages]]
train = "memory"
name = "again"
start = "1-memory"
steps = 5
rollout.n = 4
"""


def plan_of(tmp_path: Path, text: str, **options: object) -> StagePlan:
    file = tmp_path / "file.toml"
    file.write_text(text.replace("FOLDER", str(tmp_path / "runs")))
    return read_plan(StagesOptions(str(file), **options))


def test_every_stage_starts_where_its_role_stands(tmp_path):
    plan = plan_of(tmp_path, THREE)
    folder = tmp_path / "runs/three"
    assert plan.folder == folder
    first, second, third, whole = plan.stages
    assert [s.name for s in plan.stages] == ["1-memory", "2-answer", "again", "end-to-end"]
    assert [s.roles for s in plan.stages[:3]] == [("memory",), ("answer",), ("memory",)]
    assert [(s.start, s.fixed) for s in plan.stages] == [
        *(("base", "base"), ("base", "1-memory"), ("1-memory", "2-answer"), ("base", ""))
    ]
    assert first.config.model.path == first.folder == str(TWO_STAGE_MODEL)
    assert second.folder == third.config.model.path == str(folder / "1-memory/model")
    assert third.folder == str(folder / "2-answer/model")
    assert whole.folder == "" and whole.roles == ("memory", "answer")


def test_settings_are_those_of_all_with_a_stage_s_own_over_them(tmp_path):
    first, second, third, whole = (s.config for s in plan_of(tmp_path, THREE).stages)
    assert [c.seed for c in (first, second, third, whole)] == [7] * 4
    assert [c.steps for c in (first, second, third)] == [3, 2, 5]
    assert second.optim.lr == 2e-3 != first.optim.lr == third.optim.lr
    assert second.val.tasks == 9 != first.val.tasks
    # as many episodes as the stages: 3 x 8 + 2 x 8 + 5 x 16 = 120 = 15 x 8
    assert [s.episodes for s in plan_of(tmp_path, THREE).stages] == [24, 16, 80, 120]
    assert whole.steps == 15


def test_the_other_role_is_given_the_server(tmp_path):
    first, second, _third, whole = plan_of(tmp_path, THREE).stages
    url = "http://localhost:9/v1"
    assert first.against(url).models.answer == url and first.against(url).models.memory != url
    assert second.against(url).models.memory == url and second.against(url).models.answer != url
    assert whole.against("") == whole.config


def test_a_server_of_the_user_s_own_is_left_to_them(tmp_path):
    text = THREE.replace('name = "again"', 'fixed = "http://gpu:8000/v1"')
    third = plan_of(tmp_path, text).stages[2]
    assert third.name == "3-memory" and third.folder == "" and third.fixed == "http://gpu:8000/v1"


def test_options_go_over_the_file(tmp_path):
    plan = plan_of(tmp_path, THREE, seed=1, folder=Path("there"), end_to_end=False)
    assert plan.folder == Path("there/three") and len(plan.stages) == 3
    assert all(stage.config.seed == 1 for stage in plan.stages)
    assert len(plan_of(tmp_path, "end_to_end = false\n" + THREE).stages) == 3


def test_servers_run_like_the_model_unless_told_otherwise(tmp_path):
    plan = plan_of(tmp_path, THREE + "[serve]\nlimits.requests = 99\n")
    assert plan.serve.device == "cpu" and plan.serve.threads == 1
    flags = arguments(plan.serve)
    assert flags[flags.index("--limits.requests") + 1] == "99"
    assert "--port" not in flags


def test_what_ships_is_a_plan():
    for file in SHIPPED.glob("*.toml"):
        assert len(read_plan(StagesOptions(file.stem)).stages) >= 3


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("rollout.n = 2", "rollout.m = 2", "line 8: there is no setting rollout.m"),
        ("rollout.n = 2", 'rollout.n = "2"', "line 8: rollout.n is '2'"),
        ("seed = 7", "val = 2", "line 6: val is 2, but it has settings of its own"),
        ("rollout.n = 2", "rollout.n = 0", "file.toml: rollout.n is 0"),
        ("optim.lr = 2e-3", "optim.lr = [1]", "line 17, stage 2: optim.lr is [1]"),
        ("tasks = 9", "tusks = 9", "line 19, stage 2: there is no setting val.tusks"),
        ("steps = 5", "steps = 5.5", "line 25, stage 3: steps is 5.5"),
        ("seed = 7", "seed = = 7", "line 6, column"),
        ("seed = 7", 'resume = "never"', "the command itself sets resume"),
        ("seed = 7", 'models.answer = "x"', "line 6: the command itself sets models.answer"),
        ('train = "answer"', 'train = "qa"', "line 15, stage 2: train is 'qa'"),
        ('train = "answer"', "", "stage 2: train is ''"),
        ('start = "1-memory"', 'start = "4-memory"', "neither an earlier stage nor a model folder"),
        ('start = "1-memory"', "start = 1", "line 24, stage 3: start is 1"),
        ('name = "again"', 'name = "2-answer"', "two stages are named '2-answer'"),
        ('name = "three"', "nme = 3", "line 2: there is no entry 'nme'"),
        ("steps = 3", 'model.path = "x"', "stage 1: a stage's model follows from where it starts"),
        ('name = "three"', 'preset = "threee"', "there is no preset 'threee'"),
        ('folder = "FOLDER"', "serve.port = 1", "the command itself sets port"),
        ('folder = "FOLDER"', "end_to_end.steps = 3", "as many episodes as all stages"),
        ('folder = "FOLDER"', "settings = 3", "ot a table"),
    ],
)
def test_mistakes_are_named_where_they_stand(tmp_path, old, new, message):
    assert old in THREE
    text = THREE.replace(old, new, 1)
    if new == "settings = 3":
        text = 'settings = 3\n[[stages]]\ntrain = "memory"\n'
    with pytest.raises(UserError) as error:
        plan_of(tmp_path, text)
    assert message in str(error.value) and error.value.fix


def test_a_file_without_stages_or_no_file(tmp_path):
    with pytest.raises(UserError, match="has no stages"):
        plan_of(tmp_path, 'name = "nothing"\n')
    with pytest.raises(UserError, match=r"there are no stages in 'nowhere'.*\n.*two_stage"):
        read_plan(StagesOptions("nowhere"))


CLUSTER = """
engine = "verl"
[verl]
overrides = ["trainer.nnodes=2"]
gpus = "7"
[[stages]]
train = "memory"
"""


def cluster_plan(tmp_path, text: str):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return read_plan(StagesOptions(str(path), folder=tmp_path, end_to_end=False))


def test_stages_can_run_on_verl(tmp_path):
    plan = cluster_plan(tmp_path, CLUSTER)
    assert plan.cluster is not None
    assert plan.cluster.overrides == ("trainer.nnodes=2",) and plan.cluster.server == "vllm"
    assert cluster_plan(tmp_path, '[[stages]]\ntrain = "memory"\n').cluster is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('engine = "verl"', 'engine = "trl"', "no engine 'trl'"),
        ('engine = "verl"', "", "verl is not the engine"),
        ('gpus = "7"', 'gpu = "7"', "there is no setting gpu"),
        ('gpus = "7"', 'server = "tgi"', "server"),
    ],
)
def test_mistakes_about_verl_are_messages(tmp_path, old, new, message):
    with pytest.raises(UserError) as refused:
        cluster_plan(tmp_path, CLUSTER.replace(old, new))
    assert message in str(refused.value)


def test_all_stages_take_parts_of_your_own(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch):
        own = {"agent": "mine:Reader", "reward": "mine:long", "tasks": "mine.py:Chess"}
        for stage in plan_of(tmp_path, THREE, **own).stages:
            config = to_table(stage.config)
            assert config["agent"]["class"] == "mine:Reader"
            assert config["reward"]["class"] == "mine:long"
            assert config["tasks"]["class"] == "mine:Chess"
        ours = plan_of(tmp_path, THREE, agent="gated", tasks="recall:diary@40").stages
        assert {type(stage.config.agent).__name__ for stage in ours} == {"GatedAgent"}
        for part, says in {"agent": "has no nobody", "reward": "has no nobody"}.items():
            with pytest.raises(UserError, match=says):
                plan_of(tmp_path, THREE, **{part: "mine:nobody"})
        with pytest.raises(UserError, match="Chess is not an agent: it has no method run"):
            plan_of(tmp_path, THREE, agent="mine:Chess")


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    pipe = tmp_path / "file.toml"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="it is not a file"):
        read_plan(StagesOptions(str(pipe)))
    with pytest.raises(UserError, match="it is not a file"):
        read_settings_file(pipe)

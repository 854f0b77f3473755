"""What is asked before a run starts on a cluster, and what reaches its process."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.config.presets import preset
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import ValidationConfig
from recollect.engines.verl.environment import HANDED_ON, handed_on
from recollect.engines.verl.launch.start import plan_launch, wait_for, write_folder
from recollect.errors import UserError


def small(folder: Path, **changes):
    config = replace(preset("demo"), folder=folder, name="run", steps=1)
    return replace(config, val=ValidationConfig(tasks=1), **changes)


def test_never_refuses_a_folder_with_a_run(tmp_path):
    plan = plan_launch(small(tmp_path, resume="never"), [])
    write_folder(plan)  # a fresh one is taken
    (plan.run / "config.json").write_text("{}")
    before = (plan.run / "settings.json").stat().st_mtime_ns
    with pytest.raises(UserError, match="nothing is ever overwritten"):
        write_folder(plan)
    assert (plan.run / "settings.json").stat().st_mtime_ns == before


def test_a_run_goes_on_from_its_own_checkpoints_only(tmp_path, monkeypatch):
    """verl unpickles a checkpoint: a stranger's would run code."""
    strange = tmp_path / "download" / "global_step_3"
    strange.mkdir(parents=True)
    with pytest.raises(UserError, match="no checkpoint of this run"):
        write_folder(plan_launch(small(tmp_path, resume=str(strange)), []))
    own = tmp_path / "run" / "checkpoints" / "global_step_3"
    with pytest.raises(UserError, match="there is no checkpoint"):
        write_folder(plan_launch(small(tmp_path, resume=str(own)), []))
    own.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    plan = plan_launch(small(tmp_path, resume="run/checkpoints/global_step_3"), [])
    write_folder(plan)
    assert plan.keys["trainer.resume_from_path"] == str(own)  # workers start elsewhere
    own.rename(own.with_name("elsewhere"))
    own.symlink_to(strange)
    with pytest.raises(UserError, match="no checkpoint of this run"):
        write_folder(plan)


def test_lengths_that_are_not_measured_are_told(tmp_path):
    config = small(tmp_path)
    assert not plan_launch(config, []).notes
    config = replace(config, val=replace(config.val, lengths=(1, 2)))
    (note,) = plan_launch(config, []).notes
    assert "val.lengths" in note and f"{tmp_path}/run/model" in note


def test_settings_that_do_less_than_they_say_are_told(tmp_path):
    config = small(tmp_path)
    config = replace(config, rollout=replace(config.rollout, top_p=0.9))
    (note,) = plan_launch(config, []).notes
    assert "rollout.top_p is 0.9" in note


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_to_this_process_alone_reaches_the_run(name):
    """Slurm signals one process. The child sends it to us, and ends when it gets it back."""
    code = (
        "import os, signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(7))\n"
        f"os.kill(os.getppid(), signal.{name})\n"
        "time.sleep(60)\n"
        "sys.exit(1)\n"
    )
    number = getattr(signal, name)
    # Where tests run in the background some are ignored, and stay so.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert wait_for([sys.executable, "-c", code], os.environ) == 7
    finally:
        signal.signal(number, before)


def test_workers_get_the_keys_of_servers_that_are_named():
    demo = preset("demo")
    assert handed_on(demo) == list(HANDED_ON)
    models = ModelsConfig(answer="http://host:1/v1", api_key_env="MY_KEY")
    assert handed_on(replace(demo, models=models)) == [*HANDED_ON, "MY_KEY"]
    judged = preset("locomo")
    judged = replace(judged, reward=replace(judged.reward, judge_url="http://host:1/v1"))
    assert handed_on(judged) == [*HANDED_ON, "OPENAI_API_KEY"]


def test_rows_are_packed_without_flash_attention(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    key = "actor_rollout_ref.model.override_config.attn_implementation"
    config = replace(preset("hotpotqa"), folder=tmp_path)
    plan = plan_launch(config, [])
    assert f"+{key}=recollect_packed" in plan.arguments
    given = plan_launch(config, [f"+{key}=sdpa"]).arguments
    assert [a for a in given if key in a] == [f"+{key}=sdpa"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert not [a for a in plan_launch(config, []).arguments if key in a]

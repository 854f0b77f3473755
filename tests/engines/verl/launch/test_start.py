"""What is asked before a run starts on a cluster, and what reaches its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.function import as_agent
from recollect.config.modules import load
from recollect.config.presets import preset
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import ValidationConfig
from recollect.engines.verl import stop
from recollect.engines.verl.environment import key_names, tracker_variables
from recollect.engines.verl.launch.start import plan_launch, wait_for, write_folder
from recollect.engines.verl.start_times import read_parts
from recollect.engines.verl.trainer.record import Record
from recollect.errors import UserError
from tests.support.own import own_folder


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


def test_a_run_goes_on_with_its_own_code_only(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch):
        config = small(tmp_path, agent=as_agent(load("mine:two_pass")))
        plan = plan_launch(config, [])
        write_folder(plan)
        Record.open(plan.run, config, 0).run.close()
        with open("mine.py", "a") as file:
            file.write("# changed before anything was learned\n")
        write_folder(plan)
        Record.open(plan.run, config, 0).run.close()
        (plan.run / "checkpoints" / "global_step_1").mkdir()
        write_folder(plan)
        before = (plan.run / "code" / "mine.py").read_text()
        with open("mine.py", "a") as file:
            file.write("# changed\n")
        with pytest.raises(UserError, match="the module mine has changed"):
            write_folder(plan)
        assert (plan.run / "code" / "mine.py").read_text() == before


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
    assert not [n for n in plan_launch(config, []).notes if "lengths" in n]
    config = replace(config, val=replace(config.val, lengths=(1, 2)))
    *_, note = plan_launch(config, []).notes
    assert "val.lengths" in note and f"{tmp_path}/run/model" in note


def test_settings_that_do_less_than_they_say_are_told(tmp_path):
    config = small(tmp_path)
    config = replace(config, rollout=replace(config.rollout, top_p=0.9))
    *_, note = plan_launch(config, []).notes
    assert "rollout.top_p is 0.9" in note


CHILD = """
import os, signal, sys, time
from pathlib import Path
run, name, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
(run / "child").write_text(str(os.getpid()))
for _ in range(times):
    os.kill(os.getppid(), getattr(signal, name))  # as Slurm does: to one process alone
    time.sleep(0.3)
for _ in range(600):
    if times == 1 and (run / ".stop").exists():
        sys.exit(75)
    time.sleep(0.05)
sys.exit(1)
"""


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    (tmp_path / "its_run.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return "its_run"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_asks_the_run_to_stop_and_another_one_interrupts_it(name, times, module, tmp_path):
    number = getattr(signal, name)
    # Where tests run in the background some are ignored, and stay so.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        status = wait_for([module, str(tmp_path), name, str(times)], os.environ, tmp_path)
    finally:
        signal.signal(number, before)
    assert status == 128 + number and stop.asked(tmp_path)


def test_a_run_that_was_asked_and_finished_all_the_same_has_finished(tmp_path, monkeypatch):
    (tmp_path / "its_run.py").write_text("import time; time.sleep(0.2)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    assert wait_for(["its_run"], os.environ, tmp_path) == 0
    (tmp_path / "its_run.py").write_text("import os; os.kill(os.getpid(), 9)")
    assert wait_for(["its_run"], os.environ, tmp_path) == 137


def test_a_run_ends_with_its_launcher_however_that_ends(module, tmp_path):
    code = (
        "import os, sys; from pathlib import Path;"
        "from recollect.engines.verl.launch.start import wait_for;"
        "wait_for(sys.argv[1:], os.environ, Path(sys.argv[2]))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code, module, str(tmp_path), "SIGHUP", "0"])
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        time.sleep(0.01)
    child = int((tmp_path / "child").read_text())
    launcher.kill()
    launcher.wait()
    for _ in range(500):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child}/stat").read_text().split(")")[-1].split()[0] == "Z":
            return  # ended, and nobody has asked for its status
        time.sleep(0.01)
    pytest.fail("the run outlives its launcher")


def test_workers_get_the_keys_of_servers_that_are_named():
    demo = preset("demo")
    assert key_names(demo) == []
    models = ModelsConfig(answer="http://host:1/v1", api_key_env="MY_KEY")
    assert key_names(replace(demo, models=models)) == ["MY_KEY"]
    judged = preset("locomo")
    judged = replace(judged, reward=replace(judged.reward, judge_url="http://host:1/v1"))
    assert key_names(judged) == ["OPENAI_API_KEY"]


def test_what_trackers_read_reaches_the_node_that_opens_them(monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "abc")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:x")
    tracked = tracker_variables(replace(preset("demo"), trackers=("wandb",)))
    assert tracked["WANDB_RUN_ID"] == "abc" and "MLFLOW_TRACKING_URI" not in tracked
    assert tracker_variables(preset("demo")) == {}


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


def test_what_takes_long_at_the_start_is_as_large_as_the_run(tmp_path):
    """Graphs for the sequences that there are, and agents for the GPUs that there are."""
    config = small(tmp_path)
    rollout = "actor_rollout_ref.rollout"
    sizes, workers = f"{rollout}.cudagraph_capture_sizes", f"{rollout}.agent.num_workers"
    one = plan_launch(config, ["trainer.n_gpus_per_node=1", "trainer.nnodes=1"])
    assert one.keys[sizes] == [1, 2, 4, 8, 16, 32, 64, 128, 192, 256] and one.keys[workers] == 2
    assert f"{sizes}=[1,2,4,8,16,32,64,128,192,256]" in one.arguments
    own = plan_launch(config, [f"{rollout}.max_num_seqs=null"])
    assert not any("cudagraph_capture_sizes" in argument for argument in own.arguments)
    given = plan_launch(config, [f"{rollout}.max_num_seqs=1024", f"{workers}=3"])
    assert given.keys[sizes][-1] == 1024 and given.keys[workers] == 3
    assert given.arguments.count(f"{workers}=3") == 1
    rows = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    assert one.keys[rows] == 2
    four = plan_launch(config, ["trainer.nnodes=4"])
    assert four.keys[workers] == 8 and four.keys[rows] == 8


def test_a_start_is_timed_from_the_command(tmp_path):
    plan = plan_launch(small(tmp_path), [])
    write_folder(plan, time.time() - 5)
    ((part, seconds),) = read_parts(plan.run)
    assert part == "settings and tasks" and 5 <= seconds < 60

"""Every recipe is a command that passes its dry run, on one node and on four."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from recollect.cli import main
from tests.support.places import ROOT

RECIPES = ROOT / "recipes"
SCRIPTS = sorted(RECIPES.glob("*.sh"))


def command_of(script: Path, nodes: int, tmp_path: Path, *more: str) -> list[str]:
    """Run a recipe with a `recollect` that only writes down how it was called."""
    said = tmp_path / "said"
    fake = tmp_path / "recollect"
    fake.write_text(f"#!/usr/bin/env bash\nprintf '%s\\0' \"$@\" > '{said}'\n")
    fake.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "NODES": str(nodes), "PATH": path}
    subprocess.run(["bash", str(script), *more], check=True, env=environment)
    return said.read_text().split("\0")[:-1]


def test_there_are_recipes():
    names = {script.stem for script in SCRIPTS}
    assert {"memagent_0.5b", "memagent_7b", "memagent_14b", "memoryupdate_locomo"} <= names
    assert {"uma", "two_stage_1_memory", "two_stage_2_qa"} <= names


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_dry_run_passes_and_fits(script, nodes, tmp_path, capsys):
    runs = tmp_path / "runs"
    args = command_of(script, nodes, tmp_path, "--dry-run", "--folder", str(runs))
    assert main(args) == 0
    text = capsys.readouterr().out
    assert "python -m recollect.engines.verl.main" in text
    assert "fits" in text and "DOES NOT FIT" not in text and "NO ROOM" not in text
    assert f"trainer.nnodes={1 if '0.5b' in script.name else nodes}" in text
    assert not runs.exists()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_recipe_says_what_to_expect(script):
    text = script.read_text()
    assert "# A good run:" in text and re.search(r"Cost \((estimated|measured)", text)
    # Nothing of this was run on that many GPUs: whoever measures it says so instead.
    assert "xpected, not measured" in text
    assert len(text.splitlines()) <= 45 and max(map(len, text.splitlines())) <= 150


def test_memagents_settings_are_the_published_ones(tmp_path):
    from recollect.commands.arguments import read_config
    from recollect.engines.verl.launch.options import split_engine
    from recollect.engines.verl.launch.start import plan_launch

    options, args = split_engine(command_of(RECIPES / "memagent_7b.sh", 4, tmp_path)[1:])
    keys = plan_launch(read_config(args, "train", ""), options.overrides).keys
    actor = "actor_rollout_ref.actor"
    assert keys["data.train_batch_size"] == 128 and keys[f"{actor}.ppo_mini_batch_size"] == 8
    assert keys["actor_rollout_ref.rollout.n"] == 16
    assert keys[f"{actor}.optim.lr"] == 1e-6 and keys[f"{actor}.optim.lr_warmup_steps"] == 20
    assert keys[f"{actor}.kl_loss_coef"] == 0.001 and keys[f"{actor}.use_kl_loss"] is True
    assert keys["algorithm.norm_adv_by_std_in_grpo"] is False
    assert keys["actor_rollout_ref.rollout.max_model_len"] == 8192 + 1024


@pytest.mark.parametrize("name", ["slurm.sbatch", *(script.name for script in SCRIPTS)])
def test_shell_can_read_it(name):
    subprocess.run(["bash", "-n", str(RECIPES / name)], check=True)


def test_the_cluster_file_is_yaml():
    yaml = pytest.importorskip("yaml")
    table = yaml.safe_load((RECIPES / "ray_cluster.yaml").read_text())
    assert table["max_workers"] == len(table["provider"]["worker_ips"])
    commands = [command for name in table if name.endswith("commands") for command in table[name]]
    assert all(".venv-verl/bin/ray" in command for command in commands)  # no other Ray
    assert not any("make" in command for command in commands)  # the CPU's, into a shared folder

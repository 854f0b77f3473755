"""`recollect train --engine verl` at the command line, where verl is not installed."""

from __future__ import annotations

import importlib.util

import pytest

from recollect.cli import main
from recollect.engines.verl.launch.options import EngineOptions, split_engine
from recollect.errors import UserError
from recollect.packaging import install

SEVEN = ["train", "hotpotqa", "--engine", "verl", "--model.path", "Qwen/Qwen2.5-7B-Instruct"]


def test_the_engines_own_arguments_are_taken_out():
    options, rest = split_engine(
        ["demo", "--engine=verl", "--steps", "3", "--gpu-gib", "141", "--", "trainer.nnodes=4"]
    )
    assert options == EngineOptions("verl", 141.0, ("trainer.nnodes=4",))
    assert rest == ["demo", "--steps", "3"]
    assert split_engine(["demo"]) == (EngineOptions(), ["demo"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--engine", "trl"], "no engine 'trl'"),
        (["--engine"], "needs a value"),
        (["--", "a=1"], "add --engine verl"),
        (["--cpu"], "drop --cpu"),
        (["--engine", "verl", "--gpu-gib", "much"], "give a number"),
    ],
)
def test_mistakes_are_messages(args, message):
    with pytest.raises(UserError) as refused:
        split_engine(args)
    assert message in str(refused.value)


def test_dry_run_shows_command_settings_and_memory(capsys, tmp_path):
    args = [*SEVEN, "--folder", str(tmp_path), "--dry-run", "--", "trainer.nnodes=4"]
    assert main(args) == 0
    text = capsys.readouterr().out
    assert "python -m recollect.engines.verl.main \\" in text
    assert f"recollect.run={tmp_path / 'hotpotqa'}" in text and "trainer.nnodes=4" in text
    assert "agent.chunk_size" in text and "7.62B weights, shared by 32 of 32 GPUs" in text
    assert "fits" in text and "DOES NOT FIT" not in text
    assert not list(tmp_path.iterdir())


def test_dry_run_says_what_does_not_fit(capsys, tmp_path):
    args = [*SEVEN, "--folder", str(tmp_path), "--dry-run", "--", "trainer.n_gpus_per_node=1"]
    assert main(args) == 0
    assert "DOES NOT FIT 80 GiB" in capsys.readouterr().out


def test_a_cpu_run_needs_no_gpu_keys_from_the_user(capsys, tmp_path):
    args = ["train", "demo", "--engine", "verl", "--cpu", "--folder", str(tmp_path), "--dry-run"]
    assert main([*args, "--", "trainer.n_gpus_per_node=2"]) == 0
    text = capsys.readouterr().out
    assert "trainer.device=cpu" in text
    assert "trainer.n_gpus_per_node=2" in text and "trainer.n_gpus_per_node=1" not in text


def test_an_unknown_model_has_no_estimate(capsys, tmp_path):
    args = ["train", "hotpotqa", "--engine", "verl", "--model.path", "a/name", "--dry-run"]
    assert main([*args, "--folder", str(tmp_path)]) == 0
    assert "neither a folder nor a known name" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed")
def test_without_verl_the_fix_is_named(capsys, tmp_path):
    assert main([*SEVEN, "--folder", str(tmp_path)]) == 2
    text = capsys.readouterr().err
    assert "make verl-env" in text and install("verl") in text
    assert not list(tmp_path.iterdir())


def test_a_name_is_no_model_on_every_node(tmp_path):
    from recollect.engines.verl.launch.start import check_model

    with pytest.raises(UserError, match="hf download Qwen"):
        check_model("Qwen/Qwen2.5-7B-Instruct")
    (tmp_path / "config.json").write_text("{}")
    check_model(str(tmp_path))

"""What a person sees at the command line: help, plans, and one clear message for every mistake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import cli
from recollect.cli import main
from tests.support.tiny import tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def refused(capsys, *args: str) -> str:
    """Run a command that must be refused; return its message."""
    with pytest.raises(SystemExit) as exited:
        raise SystemExit(main(list(args)))
    out, err = capsys.readouterr()
    assert exited.value.code == 2
    assert "Traceback" not in out + err
    return out + err


def train(model: Path, tmp_path: Path, *more: str) -> list[str]:
    return ["train", "demo", "--model.path", str(model), "--folder", str(tmp_path), *more]


@pytest.mark.parametrize("args", [["--help"], ["train", "demo", "--help"], ["doctor"]])
def test_readers_may_stop_early(args):
    """As in `recollect train --help | head -1`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "recollect.cli", *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_service_may_have_no_output():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"{sys.executable} -m recollect.cli --version >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_names_the_verbs_and_presets(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("train", "eval", "doctor", "--dry-run", "demo"))


def test_every_setting_is_explained(capsys):
    with pytest.raises(SystemExit) as exited:
        main(["train", "demo", "--help"])
    assert exited.value.code == 0
    text = capsys.readouterr().out
    for setting in ("--rollout.n", "--agent.chunk-size", "--optim.lr", "--save-freq", "--resume"):
        assert setting in text


def test_dry_run_shows_settings_sizes_and_cost_and_starts_nothing(capsys, model, tmp_path):
    assert main(train(model, tmp_path, "--dry-run", "--rollout.n", "5")) == 0
    text = capsys.readouterr().out
    assert "rollout.n" in text and "32 tasks x 5 episodes" in text
    assert "parameters" in text and "GiB" in text and "tokens sampled at most" in text
    assert not list(tmp_path.iterdir())


def test_what_a_run_holds_in_memory(model):
    from recollect.commands.dry_run import ResidentBytes, count_parameters, held
    from recollect.config.presets import preset

    plain = replace(preset("demo"), model=replace(preset("demo").model, path=str(model)))

    def each(gpu: bool = False, **changes) -> ResidentBytes:
        """Bytes for every weight."""
        it = held(replace(plain, **changes), 1 << 30, gpu)
        return ResidentBytes(it.device / 2**30, it.host / 2**30)

    half = replace(plain.model, weights="bfloat16")
    away = replace(plain.optim, offload=True)
    assert each() == ResidentBytes(4 + 4 + 8, 0)  # weights, gradients, AdamW's averages
    assert each(rollout=replace(plain.rollout, ahead=1)) == ResidentBytes(16 + 4, 0)
    assert each(loss=replace(plain.loss, kl_coef=0.1)) == ResidentBytes(16 + 4, 0)
    assert each(gpu=True) == ResidentBytes(16 + 2, 0)  # what the sampler reads
    assert each(gpu=True, model=half) == ResidentBytes(2 + 4 + 12 + 2, 0)
    assert each(gpu=True, model=half, optim=away) == ResidentBytes(2 + 4 + 2, 12)
    assert each(optim=away) == ResidentBytes(16, 0)  # a CPU's memory is the host's
    lora = replace(plain.model, lora=replace(plain.model.lora, rank=8))
    assert each(gpu=True, model=lora, optim=away) == ResidentBytes(4 + 2, 0)
    critic = count_parameters(model) / 2**30
    assert each(advantage="gae") == ResidentBytes(16 + 16 * critic, 0)
    away = each(gpu=True, model=half, optim=away, advantage="gae")
    assert away == ResidentBytes(8 + 6 * critic, 12 + 12 * critic)


def test_dry_run_tells_of_epochs_and_what_is_run_again(capsys, model):
    args = ["train", "demo", "--model.path", str(model), "--dry-run", "--epochs", "3"]
    assert main([*args, "--local.n", "4"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "12 optimiser steps; of every task 4 episodes more" in text


def test_unknown_verbs_presets_and_settings(capsys, model, tmp_path):
    assert "train" in refused(capsys, "trian")
    assert "demo" in refused(capsys, "train", "demmo")
    assert "--steps" in refused(capsys, *train(model, tmp_path, "--stepz", "3"))
    assert "steps" in refused(capsys, *train(model, tmp_path, "--steps", "many"))


LONG = "x" * 300


@pytest.mark.parametrize(
    "args",
    [
        ["train", LONG],
        ["train", "demo", "--name", LONG],
        ["train", "demo", "--agent", LONG],
        ["train", "demo", "--tasks", LONG],
        ["train", "demo", "--model.path", LONG],
        ["eval", "--tasks", LONG, "--agents", "fold", "--model", "http://127.0.0.1:9/v1"],
        ["eval", "--tasks", "recall@1k", "--agents", LONG, "--model", "http://127.0.0.1:9/v1"],
        ["eval", "--tasks", "recall@1k", "--agents", "fold", "--model", LONG],
        ["compare", LONG, "b"],
        ["report", LONG],
        ["replay", LONG],
        ["runs", LONG],
        ["view", LONG],
        ["serve", LONG],
        ["data", "validate", LONG],
        ["ask", __file__, "Who is it?", "--model", LONG],
        ["ask", __file__, "Who is it?", "--memory", LONG, "--model", "http://127.0.0.1:9/v1"],
    ],
    ids=lambda args: " ".join(args).replace(LONG, "LONG"),
)
def test_a_name_that_no_file_can_have_is_one_message(args, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    said = refused(capsys, *args)
    assert "xxxxxxxx" in said and "fix: " in said
    assert LONG not in said or "there is no" in said
    assert not list(Path("runs").iterdir())


def test_a_link_to_itself_is_one_message(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("round").symlink_to("round")
    said = refused(capsys, "report", "round/run")
    assert "round" in said and "fix: " in said


def test_settings_that_make_no_sense(capsys, model, tmp_path):
    assert "--steps" in refused(capsys, *train(model, tmp_path, "--steps", "0"))
    assert "questions" in refused(capsys, *train(model, tmp_path, "--tasks.questions", "0"))
    message = refused(capsys, *train(model, tmp_path, "--updates-per-step", "99"))
    assert "--updates-per-step" in message
    assert "tensorboard" in refused(capsys, *train(model, tmp_path, "--trackers", "abacus"))


def test_a_chunk_that_does_not_fit_the_window(capsys, model, tmp_path):
    message = refused(capsys, *train(model, tmp_path, "--agent.chunk-size", "5000"))
    assert "4096" in message and "--agent.chunk-size" in message


def test_model_folders_that_are_no_models(capsys, model, tmp_path):
    assert "--model.path" in refused(capsys, *train(tmp_path / "nowhere", tmp_path))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "config.json" in refused(capsys, *train(empty, tmp_path))
    bare = shutil.copytree(model, tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    assert "chat template" in refused(capsys, *train(bare, tmp_path))
    weightless = shutil.copytree(model, tmp_path / "weightless")
    (weightless / "model.safetensors").unlink()
    assert "safetensors" in refused(capsys, *train(weightless, tmp_path))
    torn = shutil.copytree(model, tmp_path / "torn")
    (torn / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-9])
    assert "model.safetensors" in refused(capsys, *train(torn, tmp_path))
    strange = shutil.copytree(model, tmp_path / "strange")
    (strange / "config.json").write_text(json.dumps({"model_type": "abacus"}))
    assert "abacus" in refused(capsys, *train(strange, tmp_path))


def test_a_run_folder_that_cannot_be_written(capsys, model, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in refused(capsys, *train(model, tmp_path / "file"))


def test_a_device_that_is_not_there(capsys, model, tmp_path):
    assert "--model.device" in refused(capsys, *train(model, tmp_path, "--model.device", "abacus"))


def test_doctor_looks_at_this_machine(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "torch" in text and "transformers" in text


def test_what_is_interrupted_half_made_says_nothing_as_it_is_dropped(monkeypatch, capsys):
    """An event loop whose making is interrupted has an error in its `__del__`."""

    class HalfMade:
        def __del__(self) -> None:
            raise AttributeError("half made")

    async def never() -> None: ...

    def verb(_args: list[str]) -> int:
        _held, _awaited = HalfMade(), never()
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.VERBS, "runs", verb)
    assert main(["runs"]) == 130
    assert capsys.readouterr().err == "recollect: stopped\n"

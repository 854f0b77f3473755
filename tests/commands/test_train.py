"""`recollect train` as a user runs it: to the end, killed and resumed, stopped by hand."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing import event_accumulator

from recollect.commands.train import make_report, run_training
from recollect.config.presets import DEMO_MODEL, preset
from recollect.config.stored import settings_of
from recollect.errors import UserError
from recollect.runs.episodes import read_episodes
from recollect.runs.run import Run, read_metrics, without_times
from recollect.train.loop import Outcome
from tests.support.warm import Warm

SMALL = [
    *("--rollout.tasks", "3", "--rollout.n", "3", "--val.tasks", "4", "--val.length-tasks", "4"),
    *("--val.lengths", "1", "2", "--steps", "8", "--test-freq", "3", "--save-freq", "2"),
    *("--loss.kl-coef", "0.001", "--optim.warmup-steps", "2", "--updates-per-step", "2"),
]


@pytest.fixture(scope="module")
def model() -> Path:
    """Return the demo's model: it earns rewards, so that every step has something to learn."""
    return DEMO_MODEL


def start(folder: Path, model: Path, *more: str, apart: bool = False) -> Warm:
    place = ("--model.path", str(model), "--folder", str(folder))
    return Warm(["train", "demo", *SMALL, *more, *place], apart=apart)


def finish(process: Warm) -> str:
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, out + err
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory, model) -> Path:
    """Return the folder of a run that was never disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    out = finish(start(folder, model, apart=True))
    assert "Report card" in out and "16x" not in out and "2x" in out
    return folder / "demo"


def weights(run: Path) -> dict[str, bytes]:
    return {
        name: value.tobytes() for name, value in load_file(run / "model/model.safetensors").items()
    }


def numbers(run: Path) -> list[dict[str, float]]:
    return [without_times(row) for row in read_metrics(run)]


def assert_same(run: Path, whole: Path) -> None:
    assert numbers(run) == numbers(whole)
    assert weights(run) == weights(whole)


def test_a_run_leaves_all_it_should(whole, model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rows = numbers(whole)
    assert [row["step"] for row in rows] == list(range(9))
    assert [row["step"] for row in rows if "val/accuracy" in row] == [0, 3, 6, 8]
    assert all("time/validation" in row for row in read_metrics(whole) if "val/accuracy" in row)
    assert sum(row["groups/mixed"] > 0 for row in rows[1:]) >= 4  # rewards moved the weights
    assert json.loads((whole / "config.json").read_text())["seed"] == 0
    assert (whole / "report.md").read_text().startswith("# Report card")
    assert sorted(p.name for p in (whole / "checkpoints").iterdir()) == [
        "step-000006",
        "step-000008",
    ]
    exported = AutoModelForCausalLM.from_pretrained(whole / "model")
    base = AutoModelForCausalLM.from_pretrained(model)
    assert any(
        (a != b).any() for a, b in zip(exported.parameters(), base.parameters(), strict=True)
    )
    assert AutoTokenizer.from_pretrained(whole / "model").chat_template


def test_the_card_counts_the_measuring_at_the_end_and_tells_adapters_from_the_model(tmp_path):
    config = preset("demo")
    run = Run.open(tmp_path / "run", {})
    run.log(2, {"val/accuracy": 0.5, "val/n": 1, "val/failed": 0, "val/low": 0.0, "val/high": 1.0,
                "time/validation": 1.5})  # fmt: skip
    outcome = Outcome(2, 900, adapters=30, finished=True, times={"time/validation": 2.0})
    report = make_report(config, run, outcome)
    assert report.phases["validation"] == 3.5
    assert report.facts["model"].endswith("(900 parameters, 30 in adapters)")
    run.close()


def test_same_seed_same_run_another_seed_another(whole, model, tmp_path):
    finish(start(tmp_path / "again", model))
    assert_same(tmp_path / "again/demo", whole)
    finish(start(tmp_path / "other", model, "--seed", "1"))
    assert weights(tmp_path / "other/demo") != weights(whole)


def wait_for(process: Warm, happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)


def logged(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_during_save(process: Warm, run: Path) -> None:
    """A checkpoint is made under a temporary name: kill while there is one with a file in it."""

    def begun() -> bool:
        with suppress(FileNotFoundError):  # it got its name just now
            return bool(list((run / "checkpoints").glob(".*/*")))
        return False

    wait_for(process, begun)
    process.kill()


def kill_at_random(process: Warm, run: Path) -> None:
    """Wait for a step, then for anything up to the length of a step or two."""
    before = logged(run)
    wait_for(process, lambda: logged(run) != before)
    time.sleep(random.uniform(0, 0.4))
    process.kill()


def test_killed_at_any_moment_it_ends_the_same(whole, model, tmp_path):
    run = tmp_path / "demo"
    codes = []
    for kill in (kill_at_random, kill_during_save, kill_at_random, kill_during_save):
        process = start(tmp_path, model)
        kill(process, run)
        process.communicate()
        codes.append(process.returncode)
    assert codes[:2] == [-signal.SIGKILL] * 2  # the later ones may have come to the end
    finish(start(tmp_path, model))
    assert_same(run, whole)


def test_a_signal_saves_the_run_and_the_status_names_it(whole, model, tmp_path):
    """SIGTERM does not wait for the step under way; a second signal during the save is harmless."""
    run, shown = tmp_path / "demo", ("--trackers", "tensorboard", "--tracking.rollouts", "2")
    for asked in ((signal.SIGINT,), (signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGTERM,) * 2):
        before = logged(run)
        process = start(tmp_path, model, "--save-freq", "100", *shown)
        wait_for(process, lambda known=before: logged(run) > max(known, 1))
        for number in asked:
            process.send_signal(number)
        out, err = process.communicate(timeout=280)
        assert process.returncode == 128 + asked[0], out + err
        assert "Report card" not in out and "Traceback" not in err
        if len(asked) == 1:
            assert "resumes from there" in out
            saved = max((run / "checkpoints").glob("step-*"))
            assert int(saved.name[5:]) == numbers(run)[-1]["step"], "all that was done is saved"
            assert 1 <= len(numbers(run)) < 9
    finish(start(tmp_path, model, *shown))
    assert_same(run, whole)
    events = event_accumulator.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("val/accuracy")] == [0, 3, 6, 8]
    assert [event.step for event in events.Scalars("reward/mean")] == list(range(1, 9))
    assert [event.step for event in events.Tensors("rollouts")] == [3, 6, 8]


def test_a_damaged_checkpoint_is_passed_over(whole, model, tmp_path):
    shutil.copytree(whole, tmp_path / "demo")
    damaged = tmp_path / "demo/checkpoints/step-000008/weights.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    out = finish(start(tmp_path, model))
    assert "step-000008" in out and "resumed after step 6" in out
    assert_same(tmp_path / "demo", whole)


def test_more_steps_go_on_from_where_the_run_ended(whole, model, tmp_path):
    """Also when they start from a checkpoint of another run."""
    shutil.copytree(whole, tmp_path / "longer/demo")
    more = ("--steps", "10")
    out = finish(start(tmp_path / "longer", model, *more))
    assert "resumed after step 8" in out and "10 steps" in out
    rows = numbers(tmp_path / "longer/demo")
    assert [row["step"] for row in rows] == list(range(11))
    assert rows[:9] == numbers(whole)

    origin = ("--resume", str(whole / "checkpoints/step-000006"))
    finish(start(tmp_path / "branch", model, *more, *origin))
    branch = numbers(tmp_path / "branch/demo")
    assert [row["step"] for row in branch] == [7, 8, 9, 10]
    assert branch[0] == rows[7] and branch[2:] == rows[9:]  # the whole run validated at its step 8
    assert weights(tmp_path / "branch/demo") == weights(tmp_path / "longer/demo")


def test_a_checkpoint_with_nothing_left_to_do_is_refused(whole, model, tmp_path):
    process = start(tmp_path, model, "--resume", str(whole))
    out, err = process.communicate(timeout=280)
    assert process.returncode == 2 and "--steps above 8" in err
    assert "Traceback" not in out + err
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_stopped_run_is_not_ended_where_it_was_never_measured(tmp_path):
    config = replace(preset("demo"), folder=tmp_path, steps=3)
    with Run.open(tmp_path / "demo", settings_of(config)) as run:
        run.log(0, {"val/accuracy": 0.5})
        run.log(1, {"reward/mean": 0.5})
        run.save(1, lambda folder: (folder / "weights").write_text("made up"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"has done 1 step already, and --steps asks for 1"):
        run_training(replace(config, steps=1))
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_run_that_has_its_steps_says_how_it_continues(tmp_path, model):
    words = (tmp_path, model, "--test-freq", "1", "--steps")
    finish(start(*words, "2"))
    assert "no step is left to do, and --steps above 2 continues" in finish(start(*words, "2"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    process = start(*words, "1")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 2, out + err
    assert "has done 2 steps already, and --steps asks for 1\n  fix: set --steps above 2" in err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_training_episodes_are_kept_with_their_texts(tmp_path, model):
    finish(start(tmp_path, model, "--steps", "2", "--rollout.keep-groups", "2"))
    episodes = tmp_path / "demo" / "episodes"
    assert {path.name for path in episodes.iterdir()} >= {
        "train-000001.jsonl.gz",
        "train-000002.jsonl.gz",
        "val-000000.jsonl.gz",
    }
    with gzip.open(episodes / "train-000001.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    assert len({row["task"]["id"] for row in rows}) == 2
    context = rows[0]["contexts"][0]
    turn = context["turns"][0]
    assert rows[0]["task"]["questions"][0]["text"] in turn["prompt"] and turn["text"]
    assert rows[0]["ops"][0]["data"]["text"] in turn["text"]
    back = list(read_episodes(episodes / "train-000001.jsonl.gz"))
    sampled = back[0].contexts[0].turns[0].token_ids
    assert list(sampled) == context["ids"][turn["start"] : turn["end"]]

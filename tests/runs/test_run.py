"""The run folder: what it refuses, what it stores, and that no kill leaves it in pieces."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from recollect.errors import UserError
from recollect.runs import run as runs
from recollect.runs.checkpoints import MANIFEST
from recollect.runs.run import Run, read_episodes, read_metrics, without_times
from recollect.types import Context, Episode, Failure, MemoryOp, Question, Task, Turn

CONFIG = {"lr": 1e-3, "task": {"name": "recall", "chunks": (3, 4)}, "model": Path("base")}


def write(step: int):
    def into(folder: Path) -> None:
        (folder / "model.bin").write_bytes(bytes([step % 256]) * 5000)
        (folder / "data").mkdir()
        (folder / "data" / "position.json").write_text(json.dumps({"step": step}))

    return into


def train(run: Run, to: int, save_every: int = 2) -> None:
    """Stand in for a training loop whose metrics depend only on the step."""
    start = run.checkpoint.step if run.checkpoint else 0
    for step in range(start + 1, to + 1):
        run.log(step, {"reward": step / 7, "time/step": time.perf_counter()})
        run.write_episodes(step, "train", [episode(step)])
        if step % save_every == 0:
            run.save(step, write(step))


def episode(step: int = 0, failure: Failure | None = None) -> Episode:
    question = Question("Which? [bold]", ("red", "rot"), "colour", (1,), 2)
    task = Task(f"t{step}", ("one", "two"), (question,), "recall", {"seed": np.int64(3)})
    turns = [Turn(2, (7, 8), (-0.1, -0.123456789), "stop"), Turn(5, (9,), (-2.0,), "length")]
    context = Context("memory", "memory", True, (1, 2, 7, 8, 3, 9, 4), turns, None, None, "chunk 1")
    op = MemoryOp("replace", {"text": "red\u2028", "token_ids": (7, 8)}, "chunk 1")
    reward = None if failure else 1.0
    return Episode(task, 1, [context], [op], ["red"], reward, {"answer": 1.0}, failure, 0.5, [1.0])


def steps(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "checkpoints").iterdir())


def test_metrics_are_one_sorted_json_line_each_and_read_back(tmp_path):
    with Run.open(tmp_path / "run", CONFIG) as run:
        run.log(1, {"b": np.float32(0.5), "a": math.nan, "n": np.int64(3), "c": math.inf})
        line = (tmp_path / "run" / "metrics.jsonl").read_text()
        assert line == '{"a": null, "b": 0.5, "c": null, "n": 3, "step": 1}\n'
    (record,) = read_metrics(tmp_path / "run")
    assert math.isnan(record["a"]) and record["n"] == 3
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"] == "base"


def test_without_times_compares_two_runs():
    assert without_times({"step": 1, "time/step": 0.3, "reward": 1.0}) == {"step": 1, "reward": 1.0}


def test_episodes_read_back_as_they_were(tmp_path):
    failed = episode(2, Failure("policy", "ValueError", "no"))

    def shown(role: str, ids: Sequence[int]) -> str:
        return f"<{role} {tuple(ids)}>"

    with Run.open(tmp_path / "run", CONFIG) as run:
        path = run.write_episodes(10, "val", [episode(1), failed], shown)
    assert path.name == "val-000010.jsonl.gz"
    back = list(read_episodes(path))
    for before, after in zip([episode(1), failed], back, strict=True):
        assert after.contexts == before.contexts
        assert (after.answers, after.reward, after.failure, after.scores) == (
            before.answers, before.reward, before.failure, before.scores,
        )  # fmt: skip
        assert after.task.questions == before.task.questions
        assert after.answer_scores == before.answer_scores == [1.0]
        assert after.ops[0].data["text"] == before.ops[0].data["text"]
        assert after.ops[0].data["token_ids"] == [7, 8]
    assert b"<memory (7, 8)>" in gzip.decompress(path.read_bytes())


def test_a_file_that_holds_no_episodes_gets_a_message(tmp_path):
    path = tmp_path / "train-000001.jsonl.gz"
    path.write_bytes(b"plain text")
    with pytest.raises(UserError, match="not a whole file of episodes"):
        list(read_episodes(path))
    with pytest.raises(UserError, match="No such file"):
        list(read_episodes(tmp_path / "gone.jsonl.gz"))


def test_save_seals_and_keeps_the_last_k(tmp_path):
    with Run.open(tmp_path / "run", CONFIG, keep=2) as run:
        for step in (1, 2, 3):
            saved = run.save(step, write(step))
        assert run.save(3, lambda _: pytest.fail("written twice")) == saved
        assert run.latest() == saved
    assert steps(tmp_path / "run") == ["step-000002", "step-000003"]
    manifest = json.loads((saved.path / MANIFEST).read_text())
    assert manifest["step"] == 3
    assert manifest["files"]["data/position.json"]["size"] == 11
    with Run.open(tmp_path / "all", CONFIG, keep=None) as run:
        for step in (1, 2, 3):
            run.save(step, write(step))
    assert len(steps(tmp_path / "all")) == 3


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with Run.open(tmp_path / "run", CONFIG) as run:
        run.save(1, write(1))
        with pytest.raises(KeyboardInterrupt):
            run.save(2, fail)
        assert steps(tmp_path / "run") == ["step-000001"]
        run.save(2, write(2))


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_no_checkpoint_is_refused(tmp_path, keep):
    with pytest.raises(UserError, match="at least 1"):
        Run.open(tmp_path / "run", CONFIG, keep=keep)


def test_what_belongs_to_a_saved_step_must_come_before_its_checkpoint(tmp_path):
    with Run.open(tmp_path / "run", CONFIG) as run:
        run.save(5, write(5))
        with pytest.raises(ValueError, match="after checkpoint 5"):
            run.log(5, {"late": 1.0})
        with pytest.raises(ValueError, match="after checkpoint 5"):
            run.write_episodes(5, "val", [])
        with pytest.raises(ValueError, match="after checkpoint 5"):
            run.save(4, write(4))


def test_going_on_cuts_back_to_the_checkpoint_and_ends_the_same(tmp_path):
    with Run.open(tmp_path / "whole", CONFIG) as run:
        train(run, 6)
    folder = tmp_path / "killed"
    with Run.open(folder, CONFIG) as run:
        train(run, 5)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"reward": 0.9, "st')  # a torn last line
    with Run.open(folder, CONFIG) as run:
        assert run.checkpoint and run.checkpoint.step == 4
        assert [r["step"] for r in read_metrics(folder)] == [1, 2, 3, 4]
        assert not (folder / "episodes" / "train-000005.jsonl.gz").exists()
        train(run, 6)
        assert not run.notes
    whole, killed = (
        [without_times(r) for r in read_metrics(f)] for f in (tmp_path / "whole", folder)
    )
    assert whole == killed
    assert steps(folder) == steps(tmp_path / "whole")
    assert len(list((folder / "episodes").iterdir())) == 6


def test_a_run_killed_before_its_first_checkpoint_starts_over(tmp_path):
    with Run.open(tmp_path / "run", CONFIG) as run:
        train(run, 1)
    with Run.open(tmp_path / "run", CONFIG) as run:
        assert run.checkpoint is None
        assert read_metrics(tmp_path / "run") == []


def damage_missing(path: Path) -> None:
    (path / "model.bin").unlink()


def damage_flipped(path: Path) -> None:
    (path / "model.bin").write_bytes(b"\0" * 5000)


def damage_truncated(path: Path) -> None:
    (path / "model.bin").write_bytes(b"\0" * 17)


def damage_no_manifest(path: Path) -> None:
    (path / MANIFEST).unlink()


def damage_torn_manifest(path: Path) -> None:
    (path / MANIFEST).write_text((path / MANIFEST).read_text()[:40])


def damage_odd_manifest(path: Path) -> None:
    (path / MANIFEST).write_text('{"step": 6, "files": [1]}')


def damage_other_step(path: Path) -> None:
    text = (path / MANIFEST).read_text()
    (path / MANIFEST).write_text(text.replace('"step": 6', '"step": 7'))


DAMAGES = [
    damage_missing, damage_flipped, damage_truncated, damage_no_manifest, damage_torn_manifest,
    damage_odd_manifest, damage_other_step,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_note(tmp_path, damage):
    with Run.open(tmp_path / "run", CONFIG) as run:
        train(run, 6)
    damage(tmp_path / "run" / "checkpoints" / "step-000006")
    with Run.open(tmp_path / "run", CONFIG) as run:
        assert run.checkpoint and run.checkpoint.step == 4
        assert "step-000006 is damaged" in run.notes[0]
        train(run, 6)
    with Run.open(tmp_path / "run", CONFIG) as run:
        assert run.checkpoint and run.checkpoint.step == 6
        assert not run.notes


@pytest.mark.parametrize("damage", DAMAGES[:-1])
def test_a_damaged_checkpoint_named_outright_is_refused(tmp_path, damage):
    with Run.open(tmp_path / "run", CONFIG) as run:
        train(run, 6)
    path = tmp_path / "run" / "checkpoints" / "step-000006"
    damage(path)
    with pytest.raises(UserError, match=r"step-000006 is damaged.*\n  fix: .*older"):
        Run.open(tmp_path / "run", CONFIG, path)


def test_nothing_whole_left_is_not_a_silent_fresh_start(tmp_path):
    with Run.open(tmp_path / "run", CONFIG) as run:
        train(run, 4)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        damage_truncated(path)
    with pytest.raises(UserError, match=r"no checkpoint in .* is whole"):
        Run.open(tmp_path / "run", CONFIG)
    assert len(read_metrics(tmp_path / "run")) == 4, "a refusal changes nothing"
    with pytest.raises(UserError, match="holds no whole checkpoint"):
        runs.find_checkpoint(tmp_path / "run")


def test_an_older_checkpoint_of_the_run_can_be_named(tmp_path):
    with Run.open(tmp_path / "run", CONFIG) as run:
        train(run, 6)
    with Run.open(tmp_path / "run", CONFIG, tmp_path / "run/checkpoints/step-000004") as run:
        assert run.checkpoint and run.checkpoint.step == 4
        assert "aside-step-000006" in run.notes[0]
        assert read_metrics(tmp_path / "run")[-1]["step"] == 4
        assert run.latest() == run.checkpoint


def test_another_runs_checkpoint_is_copied_in(tmp_path):
    with Run.open(tmp_path / "first", CONFIG) as run:
        train(run, 4)
    with Run.open(tmp_path / "second", CONFIG, tmp_path / "first") as run:
        assert run.checkpoint and run.checkpoint.step == 4
        assert run.checkpoint.path.parent.parent == tmp_path / "second"
    with Run.open(tmp_path / "second", CONFIG) as run:
        assert run.checkpoint and run.checkpoint.step == 4
    with pytest.raises(UserError, match="checkpoints of its own"):
        Run.open(tmp_path / "second", CONFIG, tmp_path / "first")
    with pytest.raises(UserError, match="there is no checkpoint at"):
        Run.open(tmp_path / "third", CONFIG, tmp_path / "nowhere")


def test_never_refuses_a_folder_with_a_run_in_it(tmp_path):
    Run.open(tmp_path / "run", CONFIG, "never").close()
    with pytest.raises(UserError, match=r"already holds a run.*\n  fix: .*auto"):
        Run.open(tmp_path / "run", CONFIG, "never")


def test_changed_settings_are_named(tmp_path):
    Run.open(tmp_path / "run", {**CONFIG, "steps": 10}).close()
    changed = {"lr": 2e-3, "task": {"name": "recall", "chunks": [3]}, "model": "base", "steps": 20}
    with pytest.raises(UserError) as caught:
        Run.open(tmp_path / "run", changed, may_change=["steps"])
    assert "lr: 0.001 then, 0.002 now" in caught.value.what
    assert "task.chunks: [3, 4] then, [3] now" in caught.value.what
    assert "steps" not in caught.value.what and "model" not in caught.value.what
    Run.open(tmp_path / "run", changed, may_change=["steps", "lr", "task"]).close()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == 20
    with pytest.raises(UserError, match=r"new: \(not set\) then, null now"):
        Run.open(tmp_path / "run", {**changed, "new": None})


@pytest.mark.parametrize("text", ['{"lr": 1', "[]"])
def test_a_config_that_cannot_be_read_gets_a_message(tmp_path, text):
    Run.open(tmp_path / "run", CONFIG).close()
    (tmp_path / "run" / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json"):
        Run.open(tmp_path / "run", CONFIG)


def test_folders_that_cannot_be_used_are_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        Run.open(tmp_path / "file", CONFIG)
    with pytest.raises(UserError, match=r"cannot create .*\n  fix: choose"):
        Run.open(tmp_path / "file" / "run", CONFIG)
    with pytest.raises(UserError, match=r"not empty and holds no run \(it has thesis.tex\)"):
        Run.open(tmp_path / "full", CONFIG)
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_a_folder_whose_name_is_no_text_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r"\\udcff.* no text in UTF-8\n  fix: choose a run folder"):
        Run.open(Path(os.fsdecode(os.fsencode(tmp_path) + b"/run\xff")), CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_gets_a_message(tmp_path):
    tmp_path.chmod(0o500)
    # Permission bits do not stop a superuser; /proc does.
    folder = Path("/proc/self/fdinfo") if os.geteuid() == 0 else tmp_path
    with pytest.raises(UserError, match=r"cannot create .*\n  fix: choose a folder"):
        Run.open(folder / "run", CONFIG)


def test_a_full_disk_is_a_message_and_leaves_the_run_resumable(tmp_path):
    def fill(folder: Path) -> None:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    with Run.open(tmp_path / "run", CONFIG) as run:
        run.save(1, write(1))
        with pytest.raises(UserError, match=r"No space left.*\n  fix: free some space"):
            run.save(2, fill)
    with Run.open(tmp_path / "run", CONFIG) as run:
        assert run.checkpoint and run.checkpoint.step == 1


CHILD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from test_run import CONFIG, train
    from recollect.runs.run import Run
    with Run.open(Path(sys.argv[1]), CONFIG) as run:
        print("open", flush=True)
        if len(sys.argv) > 4:
            time.sleep(60)
        train(run, int(sys.argv[3]), save_every=1)
        print("done", flush=True)
""")


def child(folder: Path, *extra: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(folder), str(Path(__file__).parent), *extra]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_second_process_is_refused_until_the_first_dies(tmp_path):
    process = child(tmp_path / "run", "1", "wait")
    assert process.stdout and process.stdout.readline() == "open\n"
    with pytest.raises(UserError, match="in use by another process"):
        Run.open(tmp_path / "run", CONFIG)
    process.kill()
    process.communicate()
    Run.open(tmp_path / "run", CONFIG).close()


def test_no_kill_at_any_moment_leaves_the_run_in_pieces(tmp_path):
    """Kill a process that does nothing but log and save, again and again, then finish its run."""
    folder, rng = tmp_path / "run", random.Random(0)
    for _ in range(8):
        process = child(folder, "1000000")
        assert process.stdout and process.stdout.readline() == "open\n", "could not go on"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 0.15))
        process.kill()
        process.communicate()
        # Every name that looks like a checkpoint must be one, whenever the kill came.
        for path in (folder / "checkpoints").glob("step-*"):
            runs.verify(path)
    with Run.open(folder, CONFIG) as run:
        assert run.checkpoint and not run.notes
        last = run.checkpoint.step + 3
        train(run, last, save_every=1)
    records = [without_times(r) for r in read_metrics(folder)]
    assert records == [{"step": s, "reward": s / 7} for s in range(1, last + 1)]
    assert len(list((folder / "episodes").iterdir())) == last
    assert steps(folder) == [f"step-{last - 1:06d}", f"step-{last:06d}"]

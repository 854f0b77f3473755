"""A full disk is one message; what was written stays whole, and what follows starts a line."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from recollect.cli import main
from recollect.engines.verl.run.task_store import open_store, write_store
from recollect.errors import UserError
from recollect.evaluation.folder import read_episodes
from recollect.files import Lines, loads, lock, read_json, read_lines, replacing, write_text
from recollect.memory.embeddings.cache import EmbeddingCache
from recollect.policies.cached import Kept
from recollect.runs.run import Run, read_metrics, without_times
from tests.evaluation.test_harness import evaluate
from tests.runs.test_run import CONFIG, train
from tests.support.faults import Refusing, files_up_to
from tests.support.scripted import Codes, Counting

FULL = r"cannot (?:write|create) .*: (File too large|No space left on device)\n  fix: "


@pytest.mark.parametrize("limit", [70, 99, 100, 101, 184])
def test_a_short_write_is_an_error_and_leaves_whole_lines(tmp_path, limit):
    lines = Lines(tmp_path / "x.jsonl")
    record = {"text": "x" * 39}  # 51 bytes with its end
    lines.append(record)
    with files_up_to(limit), pytest.raises(UserError, match=FULL):
        for _ in range(9):
            lines.append(record)
    held = (tmp_path / "x.jsonl").read_bytes()
    assert held.endswith(b"\n") and len(held) == limit // 51 * 51
    lines.append("after")  # there is room again
    lines.close()
    found = [line for _number, line in read_lines(tmp_path / "x.jsonl")]
    assert found == [record] * (limit // 51) + ["after"]


def steps_of(folder: Path) -> list[dict]:
    return [without_times(record) for record in read_metrics(folder)]


def run_in(folder: Path) -> None:
    with Run.open(folder, CONFIG) as run:
        train(run, 6)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_in(folder)
    return steps_of(folder)


@pytest.mark.parametrize("limit", [60, 184, 400, 2000, 4999])
def test_files_that_cannot_grow_end_a_run_with_a_message_and_lose_nothing(tmp_path, limit, whole):
    folder = tmp_path / "run"
    Run.open(folder, CONFIG).close()
    with files_up_to(limit), pytest.raises(UserError, match=FULL), Run.open(folder, CONFIG) as run:
        train(run, 6)
    with Run.open(folder, CONFIG) as run:
        assert not run.notes
        train(run, 6)
    assert steps_of(folder) == whole


@pytest.mark.parametrize("lasting", [True, False])
def test_a_disk_that_fills_at_any_call_loses_nothing(tmp_path, lasting, whole):
    """At each of the calls of a run in turn, for good or once."""
    counting = Refusing(after=0, lasting=False)
    with counting(), Run.open(tmp_path / "counted", CONFIG) as run:
        train(run, 6)
    assert counting.calls > 60
    for after in range(1, counting.calls + 1, 3):
        folder, disk = tmp_path / f"run{after}", Refusing(after, lasting=lasting)
        with disk(), pytest.raises(UserError, match=FULL + "free some space"):
            run_in(folder)
        assert disk.refused
        with Run.open(folder, CONFIG) as run:
            train(run, 6)
        assert steps_of(folder) == whole
        left = [p for p in folder.rglob(".*") if p.name != ".lock"]
        assert not left, "what was being written is cleared away"


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO, errno.EROFS])
def test_other_refusals_of_a_disk_are_messages_as_well(tmp_path, number):
    disk = Refusing(9, number)
    with disk(), pytest.raises(UserError, match=os.strerror(number)):
        run_in(tmp_path / "run")


def test_an_evaluation_on_a_full_disk_repeats_no_call(tmp_path):
    script = Counting()
    evaluate(tmp_path / "whole", script)
    total = script.asked.total()
    script = Counting()
    attempts = 0
    for limit in (0, 300, 5_000, 9_000, 20_000, 50_000, 1 << 30):
        try:
            with files_up_to(limit):
                evaluate(tmp_path / "full", script)
        except UserError as error:
            attempts += 1
            assert "File too large" in str(error)
    assert attempts >= 3
    # A reply that could not be written down is the only one to be asked for again.
    assert total <= script.asked.total() <= total + attempts * 4
    for name in ("answers", "failure", "contexts"):
        one, other = (
            {r["id"]: r[name] for r in read_episodes(tmp_path / end)} for end in ("whole", "full")
        )
        assert one == other


def test_a_data_set_on_a_full_disk_names_its_folder(tmp_path, capsys):
    output = tmp_path / "ledger"
    with files_up_to(1000):
        assert main(["data", "ledger", "--output", str(output), "--questions", "40"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"recollect: cannot write {output}") and "File too large" in message
    assert not output.exists(), "nothing half written is left"


def write_tensors(path: Path) -> None:
    save_file({"a": torch.zeros(4096)}, path)


def write_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(4096))


def write_table(path: Path) -> None:
    table = pa.table({"a": np.zeros(4096)})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


@pytest.mark.parametrize("write", [write_tensors, write_array, write_table])
def test_what_libraries_say_of_a_full_disk_is_understood(tmp_path, write):
    with files_up_to(1000), pytest.raises(UserError, match=FULL), replacing(tmp_path / "x") as path:
        write(path)
    assert list(tmp_path.iterdir()) == []


def test_stores_and_caches_on_a_full_disk(tmp_path):
    tasks = [Codes().task(i) for i in range(50)]
    store = tmp_path / "tasks"
    write_store(store, tasks[:1])
    with files_up_to(1000), pytest.raises(UserError, match=FULL):
        write_store(store, tasks)
    assert list(open_store(store)) == tasks[:1], "what was there stays"
    cache = EmbeddingCache(tmp_path / "vectors", "model")
    with files_up_to(1000), pytest.raises(UserError, match=FULL):
        cache.add([str(i) for i in range(500)], np.zeros((500, 8), np.float32))
    assert len(EmbeddingCache(tmp_path / "vectors", "model")) == 0
    kept = Kept(tmp_path / "answers.sqlite")
    with files_up_to(20_000), pytest.raises(UserError, match="cannot store answers"):
        for i in range(500):
            kept.put(str(i), "model", "x" * 1000)
    kept.put("a", "model", "b")
    assert Kept(tmp_path / "answers.sqlite").get("a") == "b"


DAMAGE = {
    "cut short": b'{"step": 1}\n{"st',
    "glued": b'{"step": 1}{"step": 2}\n',
    "nothing": b"\n",
    "binary": bytes(random.Random(0).randbytes(99)) + b"\n",
    "too deep": b"[" * 200_000 + b"]" * 200_000 + b"\n",
    "too long a number": b'{"step": ' + b"9" * 5000 + b"}\n",
    "not UTF-8": b'{"step": "\xff"}\n',
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_reported_with_file_and_line(tmp_path, damage):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"[1]\n" + DAMAGE[damage])
    expected = 3 if damage == "cut short" else 2
    with pytest.raises(UserError, match=rf"x\.jsonl, line {expected} is damaged"):
        list(read_lines(path))


@pytest.mark.parametrize("line", ["[]", '{"a": 1}', '{"step": null}', '{"step": NaN}',
                                  '{"step": true}', '{"step": 2, "a": "x"}',
                                  '{"step": 2, "a": Infinity}'])  # fmt: skip
def test_a_damaged_line_of_metrics_stops_a_resumed_run_with_its_place(tmp_path, line):
    with Run.open(tmp_path / "run", CONFIG) as run:
        train(run, 4)
    path = tmp_path / "run/metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    held = path.read_bytes()
    for read in (lambda: Run.open(tmp_path / "run", CONFIG), lambda: read_metrics(path.parent)):
        with pytest.raises(UserError, match=r"metrics\.jsonl, line 2 is damaged.*\n  fix: "):
            read()
    assert path.read_bytes() == held
    path.write_text("\n".join([lines[0], *lines[2:]]) + "\n")  # as the message says
    Run.open(tmp_path / "run", CONFIG).close()


def test_metrics_that_are_lost_before_a_checkpoint_are_noted(tmp_path):
    with Run.open(tmp_path / "run", CONFIG) as run:
        train(run, 4)
    path = tmp_path / "run/metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    with Run.open(tmp_path / "run", CONFIG) as run:
        assert "line 4 was cut short: the metrics after step 3 are lost" in run.notes[0]


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "[" * 200_000, "\0", '{"a": ' + "9" * 5000])
def test_a_file_that_holds_no_object_is_one_message(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"config\.json cannot be read.*\n  fix: do this"):
        read_json(path, "do this")


def test_what_is_no_file_is_neither_waited_for_nor_read_without_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name in ("pipe", "folder", "device", "nowhere", "missing"):
        with pytest.raises(UserError, match="cannot be read"):
            read_json(tmp_path / name, "do this")
    for name in ("pipe", "folder", "device"):
        with pytest.raises(UserError, match="not a file"):
            list(read_lines(tmp_path / name))


def test_a_pipe_or_a_device_in_the_place_of_lines_or_a_lock_is_refused(tmp_path):
    for name in ("x.jsonl", ".lock"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "device").symlink_to("/dev/null")
    for path in (tmp_path / "x.jsonl", tmp_path / "device"):
        with pytest.raises(UserError, match="is not a file"):
            Lines(path)
    with pytest.raises(UserError, match=r"\.lock is not a file"):
        lock(tmp_path)


def test_json_from_anywhere_is_a_value_or_a_value_error():
    assert loads('{"a": [1]}') == {"a": [1]}
    for text in ("[" * 200_000, "9" * 5000, b"\xff", "{", ""):
        with pytest.raises(ValueError):
            loads(text)


def test_a_folder_that_is_removed_while_it_is_written_is_one_message(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    lines = Lines(folder / "metrics.jsonl")
    lines.append({"step": 1})
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=r"metrics\.jsonl is gone: it was removed"):
        lines.append({"step": 2})
    lines.close()
    with pytest.raises(UserError, match=r"run is not there: it was never made, or was removed"):
        write_text(folder / "config.json", "{}")
    with pytest.raises(UserError, match=r"run is not there"), replacing(folder / "a.gz"):
        (folder / ".tmp-a.gz").write_bytes(b"")


def test_lines_of_a_file_that_another_one_took_the_place_of_are_not_lost(tmp_path):
    lines = Lines(tmp_path / "metrics.jsonl")
    lines.append({"step": 1})
    (tmp_path / "edited").write_text('{"step": 1}\n')
    (tmp_path / "edited").replace(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics\.jsonl is gone: it was removed or replaced"):
        lines.append({"step": 2})
    lines.close()


def test_a_text_that_utf8_cannot_say_is_written(tmp_path):
    write_text(tmp_path / "x.md", "a\ud800b")
    assert (tmp_path / "x.md").read_text() == "a\ufffdb"


def test_folders_that_may_hold_keys_are_their_owners_alone(tmp_path):
    os.umask(0o022)
    Run.open(tmp_path / "run", CONFIG).close()
    evaluate(tmp_path / "evaluation", n=1, seeds=1)
    for name in ("run", "evaluation"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    assert json.loads((tmp_path / "run/config.json").read_text())["model"] == "base"

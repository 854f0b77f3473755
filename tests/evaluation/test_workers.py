"""Episodes run in several processes are those that one process runs, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest
from rich.console import Console

from recollect.commands.evaluate import evaluate
from recollect.concurrency.stop import Stop
from recollect.errors import UserError
from recollect.evaluation.folder import read_episodes
from recollect.evaluation.options import EvalOptions, plain_options, read_options
from recollect.evaluation.results import load
from recollect.evaluation.workers import PER_WORKER, count_workers
from recollect.files import Lines, read_lines
from tests.evaluation.test_killed import serving, table
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.token_server import token_server
from tests.support.warm import Warm

CLOCKED = ("seconds", "at", "run", "replayed")
N = 24
CALLS = N * (5 + 3)


def options(url: str, folder: Path, **more: Any) -> EvalOptions:
    agents = ("tests.support.scripted:Reader", "tests.support.scripted:HALF")
    tasks = ("tests.support.scripted:Codes",)
    plain = {"n": N, "concurrency": 12, "closed_book": False, "out": folder}
    return EvalOptions(tasks, url, agents, **{**plain, **more})


def run(url: str, folder: Path, **more: Any) -> None:
    evaluate(options(url, folder, **more), "test", Console(quiet=True), Stop())


def episodes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return all episodes without what a clock decides."""
    found = {r["id"]: r for r in read_episodes(folder)}
    return {id: {k: v for k, v in r.items() if k not in CLOCKED} for id, r in sorted(found.items())}


def known(folder: Path) -> set[int]:
    """Return the calls whose replies are on disk."""
    found: set[int] = set()
    for path in folder.glob("calls*.jsonl"):
        Lines(path).close()  # a kill may have cut its last line short
        found |= {int(line[1].partition("-")[0], 16) for _number, line in read_lines(path)}
    return found


def test_several_processes_make_the_same_episodes_and_no_call_twice(tmp_path: Path):
    with serving() as (url, watched):
        run(url, tmp_path / "one", workers=1)
        alone = Counter(watched.seeds)
        watched.seeds.clear()
        run(url, tmp_path / "three", workers=3)
        assert watched.seeds == alone and alone.total() == CALLS
    assert episodes(tmp_path / "one") == episodes(tmp_path / "three")
    one, three = (table(replace(load(tmp_path / name))) for name in ("one", "three"))
    assert one == three
    assert [p.stat().st_size for p in (tmp_path / "three").glob("calls*")] == [0]
    assert not [child for child in psutil.Process().children() if "worker" in str(child.cmdline())]


def start(url: str, folder: Path) -> Warm:
    command = ["eval", "--tasks", "tests.support.scripted:Codes"]
    command += ["--model", url, "--out", str(folder)]
    command += ["--agents", "tests.support.scripted:Reader,tests.support.scripted:HALF"]
    command += ["--n", str(N), "--concurrency", "12", "--workers", "2", "--no-closed-book"]
    return Warm(command)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ended_in_the_middle_it_continues_and_repeats_no_call_it_has_kept(tmp_path: Path, number):
    with serving() as (url, watched):

        def both_have_begun() -> bool:
            begun = sum(path.stat().st_size > 0 for path in tmp_path.glob("calls-*.jsonl"))
            if begun < 2:
                time.sleep(0.05)  # so that one does not end before the other begins
            return begun == 2 and watched.seeds.total() >= CALLS // 3

        watched.hold = both_have_begun
        process = start(url, tmp_path)
        # Without this, episodes under way can end before a busy machine delivers the signal, and
        # then no call is left to keep.
        assert watched.held.wait(60)
        workers = psutil.Process(process.pid).children()
        process.send_signal(number)
        _, said = process.communicate(timeout=60)  # also what the others say
        assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
        assert "Traceback" not in said
        assert len(workers) == 2
        gone, alive = psutil.wait_procs(workers, 30)
        assert len(gone) == 2 and not alive
        watched.hold = lambda: False
        watched.released.set()
        kept = known(tmp_path)
        ended = len(list(read_episodes(tmp_path)))
        before = Counter(watched.seeds)
        assert kept and ended < 2 * N
        run(url, tmp_path, workers=2)
        again = watched.seeds - before
        assert not {seed for seed in again if seed in kept}
        assert watched.seeds.total() - CALLS <= 12  # what was in flight
    assert len(episodes(tmp_path)) == 2 * N


def test_a_process_that_is_killed_is_one_message_and_nothing_is_lost(tmp_path: Path):
    with serving() as (url, watched):
        process = start(url, tmp_path)
        watched.wait(CALLS // 3, process)
        psutil.Process(process.pid).children()[0].kill()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "signal 9 ended a process" in said and "Traceback" not in said
        kept = known(tmp_path)
        before = Counter(watched.seeds)
        run(url, tmp_path, workers=2)
        assert not (watched.seeds - before).keys() & kept
    assert len(episodes(tmp_path)) == 2 * N


def worker(first: bytes) -> subprocess.Popen[bytes]:
    """Start a process that runs episodes, and send it a first line."""
    command = [sys.executable, "-P", "-m", "recollect.evaluation.worker"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
    process.stdin.write(first)
    process.stdin.flush()
    return process


def test_a_process_that_is_starting_ends_when_the_one_that_started_it_does(tmp_path: Path):
    asked, over = Event(), Event()

    def silent(_request: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        over.wait(60)
        return {"content": "OK"}

    early = worker(b"")
    early.stdin.close()
    with token_server(ByteTokenizer(), None, silent) as server:
        start = {"path": sys.path, "options": plain_options(options(server.url, tmp_path))}
        start |= {"facts": {}, "started": [0, 0], "calls": str(tmp_path / "calls-0.jsonl")}
        waiting = worker(json.dumps(start).encode() + b"\n" + b'["a", "b", 0, 0, {}]\n' * 99)
        assert asked.wait(60)
        waiting.stdin.close()  # as it is when the other process is killed
        try:
            waiting.wait(5)
        finally:
            over.set()
            waiting.kill()
    early.wait(60)
    assert waiting.stdout.read() == waiting.stderr.read() == b""
    assert early.stdout.read() == early.stderr.read() == b"" and early.returncode == 0


def test_options_travel_to_another_process():
    asked = options("http://localhost:1/v1", Path("x"), workers=2, timeout=3.5, data=Path("d"))
    told = read_options(plain_options(asked))
    assert replace(told, out=asked.out) == asked


def test_processes_are_counted_by_what_they_can_do():
    served = {"memory": {"url": "http://localhost:1/v1"}}
    many = options("http://localhost:1/v1", Path("x"), concurrency=10 * PER_WORKER)
    assert 1 <= count_workers(many, served, True) <= len(os.sched_getaffinity(0))
    assert count_workers(replace(many, concurrency=32), served, True) == 1
    assert count_workers(replace(many, workers=3), served, True) == 3
    assert count_workers(many, served, False) == 1
    assert count_workers(many, {"memory": {"folder": "m"}}, True) == 1
    with pytest.raises(UserError, match="only ask a server"):
        count_workers(replace(many, workers=2), {"memory": {"folder": "m"}}, True)

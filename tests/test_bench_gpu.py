"""`make bench-gpu`: one table, also of what did not end, and nothing is measured twice."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from benchmarks import all_gpu, cluster_gpu
from benchmarks.race import fastest

FINE = "print('figure | new tokens/s | 91,600 | vLLM: 23,000')\nprint('a | line | of a | table')"
STAYS = """
import subprocess, sys, time
print("figure | so far | 2 | y")
child = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(child, start_new_session=True)
print(child.pid)
time.sleep(600)
"""
ENDS = "import sys\nprint('figure | of three shapes | 1 | x', flush=True)\nsys.exit(1)"


def test_figures_are_one_table_and_what_did_not_end_runs_again(tmp_path, monkeypatch, capfd):
    (tmp_path / "fine.py").write_text(FINE)
    (tmp_path / "race.py").write_text(ENDS)
    monkeypatch.setattr(all_gpu, "HERE", tmp_path)
    known = {"rollout": ["fine.py"], "race, 7B": ["race.py", "--peer"]}
    monkeypatch.setattr(all_gpu, "commands", lambda model, made: known)
    monkeypatch.setattr(sys, "argv", ["all_gpu.py", "--out", str(tmp_path / "out")])
    assert all_gpu.main() == 1
    page = (tmp_path / "out/figures.md").read_text()
    assert page.partition("## rollout")[0].splitlines()[2:] == [
        "| benchmark | what | figure | beside |",
        "|---|---|---|---|",
        "| rollout | new tokens/s | 91,600 | vLLM: 23,000 |",
        "| race, 7B (unfinished) | of three shapes | 1 | x |",
        "",
    ]
    assert "## race, 7B (unfinished)\n\n```\npython benchmarks/race.py --peer" in page
    capfd.readouterr()
    (tmp_path / "race.py").write_text(FINE.replace("91,600", "7,000"))
    assert all_gpu.main() == 0
    assert "== race, 7B" in (out := capfd.readouterr().out) and "== rollout" not in out
    page = (tmp_path / "out/figures.md").read_text()
    assert "| race, 7B | new tokens/s | 7,000 |" in page and "unfinished" not in page


def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path, monkeypatch):
    (tmp_path / "stays.py").write_text(STAYS)
    monkeypatch.setattr(all_gpu, "HERE", tmp_path)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    seconds = 2.0
    while "figure" not in (said := all_gpu.said_by(["stays.py"], seconds))[0] and seconds < 60:
        seconds *= 2  # on a machine that is busy
    text, status = said
    first, child, last = text.splitlines()
    assert status == 1 and first == "figure | so far | 2 | y"
    assert last.startswith("not finished in ")
    until = time.monotonic() + 30  # one that was killed ends when the machine gets round to it
    while alive(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(child)


def alive(process: str) -> bool:
    """Tell whether a process runs; one that only waits to be counted does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_the_best_of_each_side_of_a_race_is_compared():
    rows = [
        {"shape": "fold", "mode": "recollect", "rate": 9.0},
        {"shape": "fold", "mode": "offline", "rate": 3.0},
        {"shape": "fold", "mode": "engine", "rate": 4.0},
        {"shape": "lone", "mode": "recollect", "rate": 2.0},
        {"shape": "lone", "mode": "offline"},
    ]
    assert fastest(rows) == {"fold": (9.0, 4.0), "lone": (2.0, 0.0)}


def test_a_run_of_the_cluster_that_failed_is_not_taken_for_finished(tmp_path, monkeypatch):
    words = ["cluster_gpu.py", "--out", str(tmp_path), "--only", "vllm", "own"]
    monkeypatch.setattr(sys, "argv", words)
    for statuses, expected in (({"vllm": 0, "own": 0}, 0), ({"vllm": 0, "own": 143}, 1)):

        async def one(_options: object, name: str, ended: dict[str, int] = statuses) -> int:
            return ended[name]

        monkeypatch.setattr(cluster_gpu, "one", one)
        assert asyncio.run(cluster_gpu.main()) == expected


def test_a_run_on_the_cluster_ends_with_the_benchmark(tmp_path):
    """Whoever asks the benchmark to end wants its GPU back."""
    script = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    command = [sys.executable, "-c", f"import os, time; {script}"]

    async def begin_and_end() -> None:
        given = argparse.Namespace(out=tmp_path)
        running = asyncio.create_task(cluster_gpu.run(given, "vllm", command))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(begin_and_end())
    pid = (tmp_path / "pid").read_text()
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)

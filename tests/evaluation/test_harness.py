"""Episodes are run once, stored as they end, and found again by the next process."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console

from recollect.errors import UserError
from recollect.evaluation.costs import Spending
from recollect.evaluation.folder import EvaluationFolder, read_episodes
from recollect.evaluation.harness import Harness
from recollect.evaluation.jobs import Grid
from recollect.evaluation.progress import Progress
from tests.support.scripted import Codes, Counting, Reader, respond, scripted_models

AGENTS = {"reader": Reader(), "half": Reader(2), "closed_book": Reader(0)}


def evaluate(folder: Path, script=respond, n: int = 6, seeds: int = 2, **settings) -> list[dict]:
    """Run a small grid and return the episodes that were run now."""
    run: list[dict] = []
    grid = Grid({"codes@4": Codes(), "codes@6": Codes(6, limit=3)}, list(AGENTS), n, seeds)
    store = EvaluationFolder(folder, settings.pop("retry_failed", False))
    try:
        harness = Harness(grid, AGENTS, scripted_models(script), store, 4, **settings)
        asyncio.run(harness.run(run.append))
    finally:
        store.close()
    return run


def test_every_episode_is_stored_with_all_that_was_said_and_spent(tmp_path: Path):
    evaluate(tmp_path)
    records = list(read_episodes(tmp_path))
    assert len({r["id"] for r in records}) == len(records) == 3 * 2 * (6 + 3)
    record = next(r for r in records if r["id"] == "codes@4|reader|1|2")
    task = Codes().task(2, 1, "test")
    assert record["questions"][0]["text"] == task.questions[0].text
    assert record["answers"] == [f"It is \\boxed{{{task.questions[0].answers[0]}}}"]
    assert record["failure"] is None and record["chunks"] == 4
    assert [c["role"] for c in record["contexts"]] == ["memory"] * 4 + ["answer"]
    assert record["contexts"][0]["turns"][0][3] == "The code of box0 is c1x2x0"
    read, written, reason, _text = record["contexts"][0]["turns"][0]
    assert read > len("NOTE The code of box0 is") and reason == "stop"
    assert written == len("The code of box0 is c1x2x0") + 1  # and an end token
    assert record["memory"]["chars"] == 4 * len("The code of box0 is c1x2x0 ")
    assert record["chars"] == sum(map(len, task.chunks))


def test_agents_are_given_the_same_tasks_and_seeds_give_others(tmp_path: Path):
    evaluate(tmp_path)
    hashes: dict[tuple, set] = {}
    for r in read_episodes(tmp_path):
        hashes.setdefault((r["task"], r["seed"], r["index"]), set()).add(r["hash"])
    assert all(len(found) == 1 for found in hashes.values())
    assert len({h for found in hashes.values() for h in found}) == len(hashes)


def test_nothing_is_run_twice_and_more_can_be_asked_for(tmp_path: Path):
    script = Counting()
    assert len(evaluate(tmp_path, script, n=2)) == 3 * 2 * 4
    calls = script.asked.total()
    assert evaluate(tmp_path, script, n=2) == []
    assert script.asked.total() == calls
    more = evaluate(tmp_path, script, n=4)
    assert {r["index"] for r in more} == {2, 3}
    assert len(list(read_episodes(tmp_path))) == 3 * 2 * (4 + 3)


def test_a_failed_episode_is_stored_and_run_again_only_if_asked(tmp_path: Path):
    def failing(prompt: str) -> str:
        if "box3" in prompt.rpartition("NOTE")[2]:
            raise ConnectionError("gone")
        return respond(prompt)

    evaluate(tmp_path, failing, n=1, seeds=1)
    failed = [r for r in read_episodes(tmp_path) if r["failure"]]
    assert [r["agent"] for r in failed] == ["reader", "reader"]
    assert failed[0]["failure"] == {
        "boundary": "policy",
        "kind": "ConnectionError",
        "message": "gone",
        "fault": "environment",
        "place": "",
    }
    assert failed[0]["answers"] == []
    script = Counting()
    assert evaluate(tmp_path, script, n=1, seeds=1) == []
    again = evaluate(tmp_path, script, n=1, seeds=1, retry_failed=True)
    assert len(again) == 2 and not any(r["failure"] for r in again)
    # What the first three calls said was kept: only the rest is asked.
    assert script.asked.total() == (1 + 1) + (3 + 1)
    assert [r["replayed"] for r in again] == [3, 3]
    assert not any(r["failure"] for r in read_episodes(tmp_path))


def test_a_call_that_is_refused_is_counted_by_those_who_count(tmp_path: Path):
    """Its context has no turns: neither the live table nor the costs may stumble over it."""

    def refusing(prompt: str) -> str:
        raise ConnectionError("no")

    records = evaluate(tmp_path, refusing, n=1, seeds=1)
    cells = {(r["task"], r["agent"]): 1 for r in records}
    primary = {task: "exact_match" for task, _agent in cells}
    progress = Progress(Console(quiet=True), cells, primary, "refused", plain=True)
    spending = Spending()
    for record in records:
        progress.episode(record)
        spending.add(record)
    assert progress.done == len(records) == 6 and all(r["failure"] for r in records)
    assert spending.cost(None).calls == 0


def test_an_episode_that_takes_too_long_has_failed(tmp_path: Path):
    async def slow(prompt: str) -> str:
        await asyncio.sleep(30)
        return prompt

    evaluate(tmp_path, slow, n=1, seeds=1, timeout=0.01)
    assert {r["failure"]["boundary"] for r in read_episodes(tmp_path)} == {"timeout"}


def test_torn_lines_are_run_again_and_damaged_ones_named(tmp_path: Path):
    evaluate(tmp_path, n=1, seeds=1)
    path = tmp_path / "episodes.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:40])
    with pytest.raises(UserError, match=f"line {len(lines)} is damaged: it was cut short"):
        list(read_episodes(tmp_path))
    again = evaluate(tmp_path, n=1, seeds=1)
    assert [r["id"] for r in again] == [json.loads(lines[-1])["id"]]
    assert len(list(read_episodes(tmp_path))) == len(lines)
    path.write_bytes(b"".join(lines[:1]) + b'{"id": 3\n' + lines[1])
    with pytest.raises(UserError, match="line 2 is damaged"):
        list(read_episodes(tmp_path))


def test_a_folder_in_use_is_refused(tmp_path: Path):
    store = EvaluationFolder(tmp_path)
    with pytest.raises(UserError, match="in use"):
        EvaluationFolder(tmp_path)
    store.close()
    EvaluationFolder(tmp_path).close()


def test_at_most_so_many_episodes_are_in_flight(tmp_path: Path):
    flying = most = 0

    async def script(prompt: str) -> str:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0)
        flying -= 1
        return respond(prompt)

    evaluate(tmp_path, script, n=4, seeds=1)
    assert most == 4


def test_a_clock_that_is_set_back_makes_nothing_earlier(tmp_path: Path, monkeypatch):
    clock = count(2_000_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    evaluate(tmp_path, n=2)
    evaluate(tmp_path, n=3)  # in a process that begins an hour before the first one did
    records = list(read_episodes(tmp_path))
    assert len({r["id"] for r in records}) == len(records) == 3 * 2 * (3 + 3)
    runs: dict[float, list[float]] = {}
    for r in records:
        assert r["seconds"] >= 0
        runs.setdefault(r["run"], []).append(r["at"])
    assert list(runs) == [2_000_000_000, 2_000_000_000 - 3600]
    for began, times in runs.items():
        assert times == sorted(times) and began <= times[0] and times[-1] < began + 60

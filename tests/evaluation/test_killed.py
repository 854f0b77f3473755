"""Killed at random moments, an evaluation ends with the same table and repeats no call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Condition, Event
from typing import Any

import pytest

from recollect.evaluation.results import Results, load
from recollect.files import Lines, read_lines
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.scripted import respond
from tests.support.token_server import token_server
from tests.support.warm import Warm

N = 40
CONCURRENCY = 8
KILLS = 10
CALLS = N * (5 + 3 + 1)
"""Of the three agents together."""


class Watched:
    """A scripted model; counts what it is asked, and lets a test wait for a number of calls."""

    def __init__(self) -> None:
        self.seeds: Counter[int] = Counter()
        self.hold: Callable[[], bool] = lambda: False
        """Whether an episode's last call is left without an answer, and all calls after it."""
        self.held, self.released = Event(), Event()
        self._more = Condition()

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        prompt = "\n".join(m["content"] for m in request["messages"])
        if prompt != "Say OK.":  # what `connect` asks to see whether anybody is there
            with self._more:
                self.seeds[request["seed"]] += 1  # decided by episode, context and turn
                self._more.notify_all()
            if "ASK" in prompt and self.hold():  # its episode has replies on disk, and cannot end
                self.held.set()
                self.released.wait(60)
        return {"content": respond(prompt)}

    def wait(self, calls: int, process: Warm) -> None:
        with self._more:
            while self.seeds.total() < calls and process.poll() is None:
                self._more.wait(0.05)


@contextmanager
def serving():
    watched = Watched()
    with token_server(ByteTokenizer(), None, watched) as server:
        yield server.url, watched


def start(url: str, folder: Path) -> Warm:
    return Warm([url, str(folder), str(N), str(CONCURRENCY)], "tests.support.evaluate_codes")


def known(folder: Path) -> set[int]:
    """Return the calls whose replies a killed process had written down."""
    path = folder / "calls.jsonl"
    Lines(path).close()  # the kill may have cut its last line short
    return {int(line[1].partition("-")[0], 16) for _number, line in read_lines(path)}


def table(results: Results) -> Any:
    """Leave out what a clock decides."""
    cells = [replace(c, cost=replace(c.cost, seconds=0.0)) for c in results.cells]
    return cells, results.comparisons, results.examples, results.data


@pytest.mark.parametrize("seed", [0])
def test_killed_ten_times_it_ends_with_the_same_table_and_repeats_no_call(tmp_path: Path, seed):
    with serving() as (url, watched):
        process = start(url, tmp_path / "whole")
        assert process.wait(120) == 0
        assert watched.seeds.total() == len(watched.seeds) == CALLS
    whole = load(tmp_path / "whole")

    random = Random(seed)
    folder = tmp_path / "killed"
    moments = sorted(random.sample(range(1, CALLS - 20), KILLS))
    told: set[int] = set()
    kills = 0
    with serving() as (url, watched):
        for moment in moments:
            before = Counter(watched.seeds)
            process = start(url, folder)
            watched.wait(moment, process)
            process.kill()
            assert process.wait(60) == -9
            kills += 1
            repeated = {s for s in told if watched.seeds[s] > before[s]}
            assert not repeated
            told |= known(folder)
        before = Counter(watched.seeds)
        process = start(url, folder)
        assert process.wait(120) == 0
        assert not {s for s in told if watched.seeds[s] > before[s]}
        assert kills == KILLS and len(told) > CALLS / 2
        # Whatever was asked twice was under way when a process was killed.
        assert watched.seeds.total() - len(watched.seeds) <= KILLS * CONCURRENCY
        assert len(watched.seeds) == CALLS
    assert table(load(folder)) == table(whole)

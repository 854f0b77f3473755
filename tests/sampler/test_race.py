"""The race with vLLM: its shapes, its cells, and our own side of it on a CPU."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import pytest

from benchmarks.race import Shape, cells, measure, shapes, table
from benchmarks.vllm_peer import run_cell
from recollect.config.presets import DEMO_MODEL


def test_siblings_share_a_prefix_and_tool_contexts_grow():
    seen: list[list[list[int]]] = []

    async def turn(prompts: list[list[int]], new: int) -> list[list[int]]:
        seen.append(prompts)
        return [[7] * new for _ in prompts]

    fold = Shape("fold", tasks=2, group=3, turns=2, shared=5, own=4, new=2)
    assert asyncio.run(fold.run(turn, 50, 0))[0] == 2 * 2 * 3 * 2
    for prompts in seen:
        assert [len(p) for p in prompts] == [9] * 6
        assert len({tuple(p[:5]) for p in prompts}) == 2 and len({tuple(p) for p in prompts}) == 6
    seen.clear()
    tools = Shape("tools", tasks=1, group=2, turns=3, shared=5, own=4, new=2, grows=True)
    asyncio.run(tools.run(turn, 50, 0))
    assert [len(prompts[0]) for prompts in seen] == [9, 15, 21]
    assert seen[2][0][:15] == seen[1][0] and seen[2][0][15:17] == [7, 7]


def asked(**more: object) -> argparse.Namespace:
    usual = {
        "model": str(DEMO_MODEL), "tasks": 2, "group": 2, "new_tokens": 3, "chunks": 1, "words": 30,
        "lone": 1, "lone_tokens": 50, "tool_turns": 2, "tool_tasks": 2, "cache_gib": 0.05,
        "shapes": ["lone", "tools"], "modes": ["recollect"], "sequences": [8], "device": "cpu",
        "batch_tokens": [64], "logprobs": [1], "seeds": [1], "graphs": [0], "profile": False,
        "limit": 0.0,
    }  # fmt: skip
    return argparse.Namespace(**usual | more)


def test_our_own_side_of_a_race_on_a_cpu_says_that_it_has_started_then_each_shape():
    assert [shape.name for shape in shapes(asked())] == ["lone", "tools"]
    (cell,) = cells(asked(), lock="")
    said: list[dict] = []
    run_cell(cell, said.append)
    assert said[0] == {"started": True}
    assert [row["shape"] for row in said[1:]] == ["lone", "tools"]
    assert [row["tokens"] for row in said[1:]] == [2 * 3, 2 * 2 * 2 * 30]
    assert all(row["rate"] > 0 and row["warm"] > 0 for row in said[1:])


SCRIPT = """#!/bin/sh
sleep 0.4
echo '{"started": true}'
echo '{"shape": "lone", "tokens": 6, "seconds": 0.5, "warm": 0.25, "rate": 12.0}'
sleep 600 &
[ -n "$HALF" ] && wait
echo '{"shape": "tools", "tokens": 240, "seconds": 2.0, "warm": 1.0, "rate": 120.0}'
wait
"""


@pytest.fixture
def scripted(tmp_path, monkeypatch) -> None:
    """Let a script measure; like vLLM, it has a child that keeps the pipe open."""
    script = tmp_path / "python"
    script.write_text(SCRIPT)
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


def test_a_start_is_apart_from_the_rate_and_nobody_waits_for_vllms_children(scripted):
    (cell,) = cells(asked(), lock="")
    began = time.monotonic()
    rows = measure(cell)
    assert time.monotonic() - began < 60
    assert [(row["shape"], row["rate"]) for row in rows] == [("lone", 12.0), ("tools", 120.0)]
    assert all(0.4 <= row["start"] < 60 for row in rows)
    lost = {"shape": "lone", "start": None, **dict.fromkeys(("sequences", "batch_tokens"), 8),
            "mode": "offline", "graphs": 1024, "logprobs": True, "seeds": False}  # fmt: skip
    head, _, *shown = table([*rows, lost]).splitlines()
    assert "| start, s | warm-up, s | new tokens | s | tokens/s |" in head
    assert all(line.count("|") == head.count("|") for line in shown)
    assert "**12**" in shown[0] and "not started" in shown[1] and "not measured" in shown[1]


def test_a_limit_keeps_the_shapes_that_were_measured_by_then(scripted, monkeypatch):
    monkeypatch.setenv("HALF", "1")
    (cell,) = cells(asked(limit=1.0), lock="")
    lone, tools = measure(cell)
    assert lone["rate"] == 12.0 and "rate" not in tools and tools["start"] == lone["start"]
    assert "not measured" in table([lone, tools]).splitlines()[-1]


def test_vllm_has_more_settings_than_our_sampler():
    both = cells(asked(modes=["recollect", "offline", "engine"], seeds=[1, 0], graphs=[0, 1024],
                       logprobs=[1, 0], batch_tokens=[64, 128]), "")  # fmt: skip
    found = [cell.mode for cell in both]
    assert (found.count("recollect"), found.count("offline"), found.count("engine")) == (1, 16, 2)
    assert len(set(both)) == len(both)

"""The race with vLLM: its shapes, its cells, and our own side of it on a CPU."""

from __future__ import annotations

import argparse
import asyncio

from benchmarks.vllm_peer import Cell, Shape, run_cell, shapes, table
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


def test_our_own_side_of_a_race_on_a_cpu():
    asked = argparse.Namespace(
        tasks=2, group=2, new_tokens=3, chunks=1, words=30, lone=1, lone_tokens=50, tool_turns=2,
        tool_tasks=2,
        shapes=["lone", "tools"],
    )  # fmt: skip
    wanted = tuple(shapes(asked))
    assert [shape.name for shape in wanted] == ["lone", "tools"]
    cell = Cell("recollect", str(DEMO_MODEL), 8, 0, True, 0.05, "cpu", wanted, 400)
    rows = run_cell(cell)
    assert [row["tokens"] for row in rows] == [2 * 3, 2 * 2 * 2 * 30]
    own = {"mode": "recollect", "sequences": 8, "batch_tokens": 0, "logprobs": True}
    lost = {"shape": "lone", **own, "mode": "offline", "batch_tokens": 64}
    text = table([row | own for row in rows] + [lost])
    assert text.count("\n") == 4 and "failed" in text and "**" in text

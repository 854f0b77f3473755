"""Which way of learning by reward helps after the warm-up? A few steps of each, side by side.

    python -m benchmarks.chronicle_pilot --model models/smollm2 --out runs/pilot --steps 12

All ways start from the same weights, and see the same tasks with the same seed. OUT/best holds the
settings of the one with the highest reward in the last third of its steps, for
benchmarks.chronicle; OUT/pilot.md the table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from benchmarks import chronicle, chronicle_plan
from benchmarks.squad import shared_gpu

WAYS: dict[str, dict[str, float]] = {
    "siblings": {"lr": 1e-5, "updates": 1, "negative_weight": 1},
    "better": {"lr": 3e-5, "updates": 2, "negative_weight": 0},
    "better-faster": {"lr": 1e-4, "updates": 2, "negative_weight": 0},
    "adapters": {"lr": 3e-4, "updates": 1, "negative_weight": 1, "rank": 16},
}
"""Settings that differ from the plan's, by name."""


async def all_ways(o: argparse.Namespace) -> None:
    """Train every way, side by side; one that breaks does not end the others."""
    await chronicle.warm_up(o, "warm", o.model, "--tasks", o.warm_up, "--lr", o.warm_lr)
    chronicle.divide(o, o.at_once)
    agent = chronicle_plan.trained_agents(o)["gated"]
    runs = [
        chronicle.train(argparse.Namespace(**vars(o) | way), name, agent, 0)
        for name, way in WAYS.items()
    ]
    await asyncio.gather(*(chronicle.apart(o, training) for training in runs))


def learned(out: Path, name: str) -> tuple[list[float], list[float]]:
    """Return the rewards of the steps, and the held-out accuracies."""
    path = out / f"{name}-0" / "chronicle" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rewards = [row["reward/mean"] for row in rows if "reward/mean" in row]
    return rewards, [row["val/accuracy"] for row in rows if "val/accuracy" in row]


def table(out: Path) -> tuple[str, str]:
    """Return the table, and the settings of the way that did best, or nothing."""
    lines = [
        "| way | settings | reward, first third | last third | held-out |",
        "|---|---|---|---|---|",
    ]
    best: tuple[float, str] = (-1.0, "")
    for name, way in WAYS.items():
        rewards, held_out = learned(out, name)
        if not rewards:
            continue
        third = max(1, len(rewards) // 3)
        first, last = (sum(own) / third for own in (rewards[:third], rewards[-third:]))
        settings = " ".join(f"--{key.replace('_', '-')} {value:g}" for key, value in way.items())
        best = max(best, (last, settings))
        accuracies = ", ".join(f"{accuracy:.3f}" for accuracy in held_out)
        lines.append(f"| {name} | `{settings}` | {first:.3f} | {last:.3f} | {accuracies} |")
    return "\n".join(lines), best[1]


def main() -> int:
    """Try all ways, and say which did best; return 1 if one failed."""
    o = chronicle_plan.parse(__doc__)
    o.out.mkdir(parents=True, exist_ok=True)
    o.failed = False
    try:
        with shared_gpu(o.out):
            asyncio.run(all_ways(o))
    finally:
        text, best = table(o.out)
        (o.out / "pilot.md").write_text(text + "\n")
        (o.out / "best").write_text(best + "\n")
        print(text, f"best: {best}", sep="\n\n")
    return int(o.failed)


if __name__ == "__main__":
    sys.exit(main())

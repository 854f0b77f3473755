"""Tables of benchmarks/curator_gpu.py: what was held out, by seed and over all conversations."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recollect.metrics import Interval, cluster_scores, mean_interval

STAGES = ("before", "warmed", "after")
Row = dict[str, Any]

FIGURES: dict[str, Callable[[Row], float]] = {
    "reward": lambda row: row["reward"],
    "perf before the edits": lambda row: row["before"],
    "perf after the edits": lambda row: row["answer"],
    "panel before": lambda row: row.get("panel/before", 0.0),
    "panel after": lambda row: row.get("panel", 0.0),
    "growth, words": lambda row: row["growth/tokens"],
    "created": lambda row: row["growth/created"],
    "updated": lambda row: row["growth/updated"],
    "deleted": lambda row: row["growth/deleted"],
    "calls": lambda row: row.get("tools/calls", 0.0),
    "calls that succeed": lambda row: row.get("tools/ok", 0.0),
    "malformed calls": lambda row: row.get("tools/malformed", 0.0),
    "searches": lambda row: row.get("tools/calls/search_memory", 0.0),
    "reward above 0": lambda row: float(row["reward"] > 0),
    "reward below 0": lambda row: float(row["reward"] < 0),
}


def rows_of(folder: Path, stage: str) -> list[Row]:
    """Read the rows of a seed's stage, those that failed included."""
    rows: list[Row] = json.loads((folder / f"{stage}.json").read_text(encoding="utf-8"))
    return rows


def interval(rows: Sequence[Row], figure: Callable[[Row], float], by: str) -> Interval:
    """Average a figure over the episodes that ended, with an interval by conversation or question.

    A failed episode left the memories as nobody measured them; it is counted apart.
    """
    ended = [row for row in rows if not row["failure"]]
    named = ((row[by], row["question"], figure(row)) for row in ended)
    return mean_interval(cluster_scores(named))


def gain(earlier: Sequence[Row], later: Sequence[Row], by: str) -> Interval:
    """Average what the same questions of the same seed earn more."""
    was = {(row["seed"], row["question"]): row for row in earlier if not row["failure"]}
    pairs = [
        (was[key], row)
        for row in later
        if not row["failure"] and (key := (row["seed"], row["question"])) in was
    ]
    named = ((b[by], b["question"], b["reward"] - a["reward"]) for a, b in pairs)
    return mean_interval(cluster_scores(named))


def figure_of(found: Interval) -> str:
    """Write a mean with its interval."""
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def table(stages: dict[str, list[Row]], by: str) -> list[str]:
    """Write every figure of every stage as a table in Markdown, and what the reward gained."""
    lines = ["| | " + " | ".join(stages) + " |", "|---" * (len(stages) + 1) + "|"]
    counted = (f"{len(rows)}, {sum(bool(r['failure']) for r in rows)}" for rows in stages.values())
    lines.append("| questions, failed | " + " | ".join(counted) + " |")
    for name, figure in FIGURES.items():
        cells = (
            figure_of(interval(rows, figure, by))
            if any(not r["failure"] for r in rows)
            else "none ended"
            for rows in stages.values()
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for earlier, later in (("before", "warmed"), ("warmed", "after"), ("before", "after")):
        gained = figure_of(gain(stages[earlier], stages[later], by))
        lines.append(f"reward, {earlier} to {later}: {gained}")
    return [f"95% intervals by {by}", "", *lines]


def show_seed(folder: Path) -> None:
    """Print the tables of one seed, and how its training went."""
    seed = int(folder.name.removeprefix("seed"))
    stages = {s: [row | {"seed": seed} for row in rows_of(folder, s)] for s in STAGES}
    print("\n".join(table(stages, "question")))  # two conversations have no spread to speak of
    show_training(folder / "curator")


def show_training(folder: Path) -> None:
    """Print the curve of training, what its groups had to say, and what a step takes."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [row for row in map(json.loads, lines) if "reward/mean" in row]
    names = {
        "reward": "reward/mean",
        "groups that differ": "groups/mixed",
        "perf after": "score/answer",
        "created": "score/growth/created",
        "updated": "score/growth/updated",
        "deleted": "score/growth/deleted",
        "malformed": "score/tools/malformed",
        "failed": "episodes/failed",
        "entropy": "train/entropy",
        "mismatch": "train/mismatch",
    }
    print(f"{len(steps)} steps, means of five:")
    for name, key in names.items():
        values = [row.get(key) or 0.0 for row in steps]
        means = (statistics.mean(values[i : i + 5]) for i in range(0, len(values), 5))
        print(f"{name:20}" + " ".join(f"{mean:8.4f}" for mean in means))
    for part in ("rollout", "update"):
        print(f"{part}: {statistics.median(row[f'time/{part}'] for row in steps):.1f} s a step")


def show(out: Path, seeds: int) -> None:
    """Print every seed, and all conversations together."""
    stages: dict[str, list[Row]] = {stage: [] for stage in STAGES}
    for seed in range(seeds):
        folder = out / f"seed{seed}"
        for stage in STAGES:
            stages[stage] += [row | {"seed": seed} for row in rows_of(folder, stage)]
        held_out = sorted({row["conversation"] for row in rows_of(folder, "before")})
        print(f"\n## Seed {seed}: held out {', '.join(held_out)}")
        show_seed(folder)
    print(f"\n## All {seeds} seeds")
    print("\n".join(table(stages, "conversation")))

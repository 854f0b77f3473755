"""Curves of runs with intervals, what their settings differ in, and accuracy by length."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import UserError
from recollect.files import read_json
from recollect.foreign import one_line
from recollect.metrics import cluster_scores, score_interval
from recollect.runs.run import TIME, read_records
from recollect.view.rows import Row
from recollect.view.sources import Source

LENGTHS = "lengths.json"
PANELS = (
    ("reward", "Reward in training"),
    ("accuracy", "Held-out accuracy"),
    ("length", "Tokens a reply"),
    ("entropy", "Entropy"),
    ("mismatch", "Sampler and trainer differ by"),
    ("speed", "Sampled tokens a second"),
)
_METRICS = {"length": "tokens/per_turn", "entropy": "train/entropy", "mismatch": "train/mismatch"}

Point = tuple[int, float, float | None, float | None]
"""Step, value, and the interval around it if there is one."""


def curves(source: Source) -> dict[str, Any]:
    """Return the curves of a run, and an empty list for an evaluation."""
    if source.kind != "run":
        return {"panels": {}, "metrics": []}
    try:
        rows = list(read_records(source.folder))
    except UserError as error:
        return {"panels": {}, "metrics": [], "error": one_line(str(error), 300)}
    tasks = _tasks(source.config())
    panels: dict[str, list[Point]] = {name: [] for name, _ in PANELS}
    for row in rows:
        for name in panels:
            if point := _point(name, row, tasks):
                panels[name].append(point)
    names = sorted({name for row in rows for name, value in row.items() if value is not None})
    return {"panels": panels, "metrics": [n for n in names if n != "step"], "steps": len(rows)}


def metric(source: Source, name: str) -> list[Point]:
    """Return any metric of a run by its name, with its interval where one is logged beside it."""
    rows = [row for row in read_records(source.folder) if row.get(name) is not None]
    base = name.rpartition("/")[0]
    return [
        (row["step"], row[name], *_beside(row, base, name.endswith(("/accuracy", "/mean"))))
        for row in rows
    ]


def _beside(row: Mapping[str, Any], base: str, has: bool) -> tuple[float | None, float | None]:
    return (row.get(f"{base}/low"), row.get(f"{base}/high")) if has else (None, None)


def _point(name: str, row: Mapping[str, Any], tasks: int) -> Point | None:
    step = row["step"]
    if name == "accuracy":
        value = row.get("val/accuracy")
        return None if value is None else (step, value, row.get("val/low"), row.get("val/high"))
    if name == "reward":
        value, spread = row.get("reward/mean"), row.get("reward/std")
        if value is None:
            return None
        # Episodes of one task are alike: the interval rests on the tasks, not on the episodes.
        half = 1.96 * (spread or 0.0) / math.sqrt(max(1, tasks))
        return step, value, value - half, value + half
    if name == "speed":
        seconds = sum(v for k, v in row.items() if k in (f"{TIME}rollout", f"{TIME}update") and v)
        sampled = row.get("tokens/sampled")
        return (step, sampled / seconds, None, None) if sampled and seconds else None
    value = row.get(_METRICS[name])
    return None if value is None else (step, value, None, None)


def _tasks(config: Mapping[str, Any]) -> int:
    rollout = config.get("rollout")
    tasks = rollout.get("tasks") if isinstance(rollout, dict) else None
    return tasks if isinstance(tasks, int) else 1


def lengths(source: Source) -> list[dict[str, Any]]:
    """Return held-out accuracy by length: of a run at its end, of an evaluation by task set."""
    if source.kind == "run":
        path = source.folder / LENGTHS
        if not path.is_file():
            return []
        stored = read_json(path, "delete it")
        return [{"name": f"{times}x", "at": int(times), "line": source.name, **own}
                for times, own in stored.items() if own["n"]]  # fmt: skip
    parts: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in list(source.rows):
        parts[row["split"], row["set"]].append(row)
    return [_accuracy(agent, name, rows) for (agent, name), rows in sorted(parts.items())]


def _accuracy(agent: str, name: str, rows: Sequence[Row]) -> dict[str, Any]:
    scored = ((r["cluster"], f"{r['task']}#{r['q']}", r["score"]) for r in rows)
    found = score_interval(cluster_scores(scored))
    return {
        "name": name,
        "at": sum(row["length"] for row in rows) / len(rows),
        "line": agent,
        "n": len(rows),
        "failed": sum(bool(row["failure"]) for row in rows),
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
    }


def differences(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Return the settings in which folders differ, by their dotted names."""
    flat = [_flat(source.config()) for source in sources]
    names = sorted({name for own in flat for name in own})
    return [
        {"name": one_line(name, 200), "values": [one_line(own.get(name, "–"), 200) for own in flat]}
        for name in names
        if len({own.get(name) for own in flat}) > 1
    ]


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return flat

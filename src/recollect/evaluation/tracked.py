"""The results of an evaluation as trackers take them: numbers by name, and a table of scores."""

from __future__ import annotations

from recollect.evaluation.results import Results
from recollect.runs.tracker_services import Columns, Rows

SCORES = ("tasks", "agent", "metric", "mean", "low", "high", "n", "failed", "tasks drawn")


def tracked(results: Results) -> tuple[dict[str, float], dict[str, tuple[Columns, Rows]]]:
    """Return every score under `eval/TASKS/AGENT/METRIC`, and a table with n and intervals."""
    metrics: dict[str, float] = {}
    rows = []
    for cell in results.cells:
        place = f"eval/{cell.task}/{cell.agent}"
        for metric, score in cell.scores.items():
            metrics |= {
                f"{place}/{metric}": score.mean,
                f"{place}/{metric}/low": score.low,
                f"{place}/{metric}/high": score.high,
            }
            ends = (score.mean, score.low, score.high)
            counts = (score.n, score.n_failed, score.n_tasks)
            rows.append((cell.task, cell.agent, metric, *ends, *counts))
        first = cell.scores[cell.primary]
        metrics |= {f"{place}/n": first.n, f"{place}/failed": first.n_failed}
        metrics[f"{place}/tokens"] = cell.cost.tokens / max(1, cell.cost.episodes)
    return metrics, {"scores": (SCORES, rows)}

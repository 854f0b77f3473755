"""`recollect report RUN` and `recollect replay RUN`: show what a run measured, or score it again.

Both read the run's folder and ask no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.text import Text

from recollect import metrics
from recollect.accuracy import Accuracy, stored_accuracy
from recollect.commands.runs import describe
from recollect.config.modules import is_named
from recollect.display.figures import accuracy_table
from recollect.errors import UserError
from recollect.evaluation.scoring import score_named, try_metric
from recollect.files import write_text
from recollect.foreign import for_markdown
from recollect.runs.episodes import read_episodes
from recollect.runs.run import METRICS, read_records
from recollect.types import Episode


def is_run_folder(folder: Path) -> bool:
    """Tell a run's folder from that of an evaluation."""
    return (folder / METRICS).is_file()


def report_run(folder: Path, console: Console) -> Path:
    """Show every validation of a run; write its report unless training has."""
    measured = [
        (int(row["step"]), stored_accuracy(row))
        for row in read_records(folder)
        if row.get("val/accuracy") is not None
    ]
    if not measured:
        raise UserError(f"{folder} has measured nothing yet", "wait for its first validation")
    rows = [([str(step)], result) for step, result in measured]
    console.print(accuracy_table([Text("After step", "bold")], rows))
    path = folder / "report.md"
    if not path.exists():
        about = describe(folder)
        lines = [
            f"# {for_markdown(about.name)}: {for_markdown(about.agent)} on"
            f" {for_markdown(about.tasks)}, {about.steps} steps, {about.state}",
            "",
            "| step | accuracy | 95% interval | n | failed |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {step} | {a.mean:.3f} | {a.low:.3f} to {a.high:.3f} | {a.n} | {a.failed} |"
            for step, a in measured
        ]
        write_text(path, "\n".join(lines) + "\n")
    return path


def replay_run(folder: Path, names: Sequence[str], console: Console) -> int:
    """Score the stored validations of a run again, by its own score and by other metrics."""
    files = sorted((folder / "episodes").glob("val-*.jsonl.gz"))
    if not files:
        raise UserError(f"{folder} has stored no validation", "wait for its first one")
    score = {name: score_named(name) for name in names}
    for name in filter(is_named, names):
        for episode in islice(read_episodes(files[0]), 3):
            for answer, question in zip(episode.answers[:1], episode.task.questions, strict=False):
                try_metric(name, answer, question)
    rows = []
    for path in files:
        step = str(int(re.findall(r"\d+", path.name)[-1]))
        episodes = list(read_episodes(path))
        rows.append(([step, "answer"], _mean(episodes, [_own(e) for e in episodes])))
        for name, question_score in score.items():
            values = [
                sum(question_score(a, q) for a, q in zip(e.answers, e.task.questions, strict=False))
                / max(1, len(e.task.questions))
                for e in episodes
            ]
            rows.append(([step, name], _mean(episodes, values)))
    console.print(accuracy_table([Text("after step", "bold"), Text("score")], rows))
    return 0


def _own(episode: Episode) -> float:
    return float(episode.scores.get("answer", episode.reward or 0.0))


def _mean(episodes: Sequence[Episode], values: Sequence[float]) -> Accuracy:
    """Average with an interval; a failed episode counts as wrong, an unmeasured one not at all."""
    kept = [(e, v if e.ok else 0.0) for e, v in zip(episodes, values, strict=True) if e.measured]
    failed = sum(not e.ok for e, _ in kept)
    missing = len(episodes) - len(kept)
    if not kept:
        return Accuracy(0, failed, float("nan"), float("nan"), float("nan"), missing)
    named = ((e.task.cluster, e.task.item, value) for e, value in kept)
    found = metrics.score_interval(metrics.cluster_scores(named))
    return Accuracy(len(kept), failed, found.mean, found.low, found.high, missing)

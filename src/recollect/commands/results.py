"""What training and evaluation return. Plain data; knows nothing of torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.accuracy import Accuracy
from recollect.config.train import TrainConfig
from recollect.display.plot import Plot
from recollect.display.report import Report
from recollect.evaluation import folder as evaluations
from recollect.evaluation.records import Record
from recollect.evaluation.results import Estimate, Results
from recollect.rollout import Group
from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from recollect.types import Episode


@dataclass(frozen=True)
class TrainResult:
    """What a training run left behind."""

    folder: Path
    """The run folder: settings, metrics, episodes, checkpoints, and at the end the model."""
    step: int
    """The last finished step."""
    finished: bool
    """False if it was stopped; training again continues from there."""
    config: TrainConfig = field(repr=False)
    """Every setting."""
    report: Report | None = None
    """The report card; None unless finished."""
    groups: list[Group] = field(default_factory=list, repr=False)
    """The last step's rollouts, one group per task."""
    signal: int = 0
    """The signal that stopped it; 0 for none."""

    @property
    def before(self) -> Accuracy | None:
        """Held-out accuracy before training, if it was measured and the run is finished."""
        return self.report.before if self.report else None

    @property
    def accuracy(self) -> Accuracy | None:
        """Held-out accuracy after training, with its interval; None unless finished."""
        return self.report.after if self.report else None

    @property
    def lengths(self) -> dict[int, Accuracy]:
        """Held-out accuracy by multiple of the training length."""
        return dict(self.report.lengths) if self.report else {}

    @property
    def distractors(self) -> dict[int, Accuracy]:
        """Held-out accuracy by multiple of the distractors."""
        return dict(self.report.distractors) if self.report else {}

    @property
    def model(self) -> Path:
        """The folder of the trained model, once the run is finished."""
        return self.folder / "model"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One record per step, as in metrics.jsonl; step 0 is the model before training."""
        return read_metrics(self.folder)

    def curve(self, metric: str) -> tuple[list[int], list[float]]:
        """Return the steps at which a metric was recorded, and its values, ready to be plotted."""
        rows = [row for row in self.metrics if metric in row]
        return [row["step"] for row in rows], [row[metric] for row in rows]

    def plot(self, *metrics: str) -> Plot:
        """Draw metrics by step, such as `reward/mean`; a notebook shows the picture."""
        return Plot({metric: self.curve(metric) for metric in metrics})

    @property
    def episodes(self) -> list[Episode]:
        """The episodes of the last validation, read from the run folder."""
        stored = sorted((self.folder / "episodes").glob("val-*.jsonl.gz"))
        return list(read_episodes(stored[-1])) if stored else []


@dataclass(frozen=True)
class HeldOut:
    """Held-out accuracy of a preset or a run."""

    lengths: dict[int, Accuracy]
    """By multiple of the training length."""
    details: dict[int, dict[str, Accuracy]] = field(default_factory=dict, repr=False)
    """Reward, every score of the reward (performance before, growth, tool use) and every category,
    by the same multiples."""
    groups: dict[int, list[Group]] = field(default_factory=dict, repr=False)
    """The episodes they come from, one group per task, by the same multiples."""
    distractors: dict[int, Accuracy] = field(default_factory=dict)
    """By multiple of the distractors."""

    @property
    def accuracy(self) -> Accuracy:
        """Accuracy at the first length, with its interval."""
        return next(iter(self.lengths.values()))

    @property
    def episodes(self) -> list[Episode]:
        """All episodes, shortest texts first."""
        return [e for groups in self.groups.values() for group in groups for e in group]


@dataclass(frozen=True)
class EvalResult:
    """A stored evaluation: agents side by side on task sets."""

    folder: Path
    """Settings, episodes, results.json and the report."""
    results: Results = field(repr=False)
    """Everything that was found, as in results.json."""

    @property
    def scores(self) -> dict[tuple[str, str], Estimate]:
        """The primary metric with its interval, by (task set, agent)."""
        return {(c.task, c.agent): c.scores[c.primary] for c in self.results.cells}

    @property
    def report(self) -> Path:
        """The report as a page that needs nothing else."""
        return self.folder / "report.html"

    @property
    def episodes(self) -> Iterator[Record]:
        """The stored episodes, as plain data."""
        return evaluations.read_episodes(self.folder)

    @property
    def n_episodes(self) -> int:
        """Episodes that were run, failed ones included."""
        return sum(cell.cost.episodes for cell in self.results.cells)

    @property
    def all_failed(self) -> bool:
        """Whether no episode ended with an answer."""
        return self.results.n_failed == self.n_episodes

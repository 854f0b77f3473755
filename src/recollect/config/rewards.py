"""What a person can set about rewards, one dataclass for each kind. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recollect.bounds import FINITE, FROM_0, FROM_1, check_bounds
from recollect.memory.retrieval import Retrieval
from recollect.rewards.memory_delta import Mode

Metric = Literal[
    "boxed_exact_match",
    "exact_match",
    "sub_exact_match",
    "token_f1",
    "value_match",
    "numeric_match",
    "rouge_l",
    "stemmed_f1",
    "ruler_recall",
    "ruler_any",
]
"""The names in `metrics.METRICS`."""


@dataclass(frozen=True)
class AnswerConfig:
    """Reward an episode for its answers."""

    metric: Metric = "boxed_exact_match"


@dataclass(frozen=True)
class AnswerAndToolsConfig:
    """Reward an episode for its answers, and every chat for tool calls that succeed."""

    metric: Metric = "value_match"
    boxed_bonus: float = 0.5
    """For an answer in a box, right or wrong."""
    tool_bonus: float = 0.5
    """Times the share of a chat's calls that succeeded."""

    def __post_init__(self) -> None:
        check_bounds("reward", self, boxed_bonus=FINITE, tool_bonus=FINITE)


@dataclass(frozen=True)
class CallbacksConfig:
    """Reward an episode for its answers; each step for what it wrote, brought back, and its form.

    Steps count with `outcome_share` below 1.
    """

    metric: Metric = "boxed_exact_match"
    callback: float = 1.0
    """For words of the answers that only an earlier memory brings into view."""
    well_formed: float = 1.0

    def __post_init__(self) -> None:
        check_bounds("reward", self, callback=FINITE, well_formed=FINITE)


@dataclass(frozen=True)
class GatesConfig:
    """Reward an episode for its answers and for stopping in time; each step for its update gate.

    Steps count with `outcome_share` below 1.
    """

    metric: Metric = "boxed_exact_match"
    early: float = -0.75
    """For an end before the last evidence."""
    late: float = -0.5
    """For reading on after it."""
    malformed: float = -0.5
    """Times the share of replies that cannot be read."""

    def __post_init__(self) -> None:
        check_bounds("reward", self, early=FINITE, late=FINITE, malformed=FINITE)


@dataclass(frozen=True)
class RoundsConfig:
    """Reward an episode for its answers, and for reading in few rounds."""

    metric: Metric = "boxed_exact_match"
    bonus: float = 0.2
    """For one round only; none for as many as are allowed."""

    def __post_init__(self) -> None:
        check_bounds("reward", self, bonus=FINITE)


@dataclass(frozen=True)
class DeltaConfig:
    """Reward an episode for how much better its memories answer the question than those before."""

    reader: Literal["evidence", "policy", "endpoint"] = "evidence"
    """evidence asks no model: does retrieval bring the answer and the turns it rests on?"""
    reader_url: str = ""
    """The server of the reader `endpoint`, such as http://localhost:8000/v1."""
    metric: Metric = "token_f1"
    """For answers that a model gives, unless there is a judge."""
    judge_url: str = ""
    """The server of a judge; without one the metric decides."""
    judge_model: str = ""
    """Empty takes the first model that the judge's server lists."""
    answers: Path | None = None
    """A folder that keeps what reader and judge answered; without it they are asked once a run."""
    max_answer_tokens: int = 64
    retrieval: Retrieval = Retrieval()
    """What the reader sees of a store."""
    mode: Mode = "delta"
    """new_only is how well the reader does with what was written alone; new+format is that with
    0.1 for writing anything and -1 for nothing, the published reward."""
    growth_budget: int = 128
    """Words by which a store may grow for free."""
    growth_penalty: float = 1.0

    def __post_init__(self) -> None:
        check_bounds("reward", self, max_answer_tokens=FROM_1)
        check_bounds("reward", self, growth_budget=FROM_1, growth_penalty=FROM_0)

"""`results.json`: what an evaluation found, as plain data. The report is made from it alone.

Knows nothing of how episodes are run or scored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from recollect.errors import UserError
from recollect.files import read_file, write_text
from recollect.foreign import readable_json

VERSION = 1
EMPTY = (
    "a model that thinks first may need more tokens (--max-answer-tokens), and some servers put all"
    " it says into another field than the answer"
)
NAME = "results.json"


@dataclass(frozen=True)
class Estimate:
    """A mean over questions with its 95% interval; a failed episode's questions count as wrong."""

    mean: float
    low: float
    high: float
    n: int
    """Answers scored, those of failed episodes included."""
    n_failed: int
    """How many of these belong to a failed episode."""
    n_tasks: int
    """Different tasks they come from."""
    interval: Literal["wilson", "clusters"]
    """Wilson's, or for answers of clusters that are no independent draws."""
    n_clusters: int = 0
    """What the interval rests on: conversations, articles, or tasks where nothing joins them."""


@dataclass(frozen=True)
class Cost:
    """What one agent spent on one task set: totals over all its episodes, except where named."""

    episodes: int = 0
    questions: int = 0
    build_read: int = 0
    """Tokens sent to the model in the role `memory`, while the memory was built."""
    build_written: int = 0
    """Tokens sampled in the role `memory`."""
    build_calls: int = 0
    answer_read: int = 0
    """Tokens sent in the role `answer`."""
    answer_written: int = 0
    answer_calls: int = 0
    seconds: float = 0.0
    """Sum of the episodes' own wall times; they ran side by side."""
    memory_tokens: float = 0.0
    """Mean size of the memory at an episode's end."""
    memory_chars: float = 0.0
    dollars: float | None = None
    """None where no prices were given."""

    @property
    def calls(self) -> int:
        return self.build_calls + self.answer_calls

    @property
    def tokens(self) -> int:
        """All tokens read and written."""
        return self.build_read + self.build_written + self.answer_read + self.answer_written


@dataclass(frozen=True)
class Cell:
    """One agent on one task set."""

    task: str
    """The task set as it was asked for, with one length: hotpotqa@7k."""
    family: str
    """Without the length: hotpotqa, ruler:vt. Cells of one family form a length curve."""
    agent: str
    primary: str
    """The metric that counts first: ours, which hedging cannot win; a key of `scores`."""
    scores: dict[str, Estimate]
    """By metric."""
    seeds: dict[str, float]
    """The primary metric's mean, by seed."""
    spread: float | None
    """Standard deviation of the means over seeds; None with one seed."""
    closed_book: Estimate | None
    """The primary metric where nothing was read, on the same tasks: what the model knew before."""
    axes: dict[str, dict[str, Estimate]]
    """The primary metric by category, position of the evidence, distance, order; then by value."""
    cost: Cost
    failures: dict[str, int]
    """How often episodes failed, by boundary and kind of error."""
    tokens: float | None = None
    """Mean length of the tasks' text in tokens, measured or estimated: the curve's x axis."""
    chars: float = 0.0
    """Mean length of the tasks' text in characters."""
    published: list[str] = field(default_factory=list)
    """Which of the scores are the benchmark's own, to compare with published figures."""
    bound: bool = False
    """Whether the agent was shown the accepted answers: then it cannot be the best."""
    empty: int = 0
    """Episodes that ended with nothing but empty answers."""
    early: bool = False
    """Whether code of a user's own got questions with the text that are to be asked after it."""


@dataclass(frozen=True)
class Comparison:
    """Two agents on the same tasks, by the primary metric: first minus second."""

    task: str
    metric: str
    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    """Two-sided, for the difference above: whole clusters change sides."""
    p_adjusted: float
    """After Holm's correction for all comparisons of this evaluation."""
    n_tasks: int
    n_clusters: int = 0


@dataclass(frozen=True)
class Example:
    """One answer worth looking at: failed, or wrong where others were right."""

    task: str
    agent: str
    episode: str
    """Its id in episodes.jsonl."""
    question: str
    answers: list[str]
    """What is accepted."""
    answer: str
    """What the agent said, cut to a readable length. Model text: escape it."""
    score: float
    failure: str = ""
    category: str = ""
    memory: str = ""
    """What the agent's memory said at the end, cut as well. Model text."""
    others: float = 0.0
    """The best score another agent had on this question."""


@dataclass(frozen=True)
class JudgeKind:
    """How a judge did on one kind of labelled pair."""

    kind: str
    right: bool
    """Whether the pairs of this kind should be accepted."""
    accepted: int
    n: int


@dataclass(frozen=True)
class JudgeError:
    """Who judged, and how often it errs on labelled pairs."""

    model: str
    prompt_hash: str
    temperature: float
    false_accept: Estimate
    """Wrong answers it passed, of all wrong ones."""
    false_reject: Estimate
    """Right answers it refused, of all right ones."""
    kinds: list[JudgeKind]


@dataclass(frozen=True)
class Results:
    """Everything an evaluation found, and what it takes to find it again."""

    command: str
    """Type this to get the same results."""
    created: str
    """UTC, ISO 8601."""
    model: dict[str, Any]
    """Id, address or folder, fingerprint, sampling; by role where they differ."""
    config: dict[str, Any]
    """Every setting, the agents' own included."""
    versions: dict[str, str]
    """Versions of recollect, Python and the packages that matter; `commit` where it is known."""
    data: dict[str, str]
    """A hash of the content of every task set, by `Cell.task`."""
    cells: list[Cell]
    comparisons: list[Comparison] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    judge: JudgeError | None = None
    seconds: float = 0.0
    """Wall time of all runs that made these results together."""
    version: int = VERSION

    @property
    def n_failed(self) -> int:
        """Failed episodes over all cells."""
        return sum(sum(cell.failures.values()) for cell in self.cells)


def remarks(results: Results) -> list[str]:
    """Say whose scores are no memory's: who was shown the answers, and who asks or says nothing."""
    bounds = {cell.agent for cell in results.cells if cell.bound}
    spoke = {cell.agent for cell in results.cells if cell.cost.calls or cell.failures}
    silent = {cell.agent for cell in results.cells if cell.cost.episodes} - spoke - bounds
    early: dict[str, list[str]] = defaultdict(list)
    for cell in results.cells:
        early[cell.agent] += [cell.task] if cell.early else []
    empty: Counter[str] = Counter()
    said: Counter[str] = Counter()
    for cell in results.cells:
        empty[cell.agent] += cell.empty
        said[cell.agent] += cell.cost.episodes - sum(cell.failures.values()) - cell.empty
    return [
        *(
            f"{name} was shown the accepted answers and the evidence: it is a bound"
            for name in sorted(bounds)
        ),
        *(
            f"{name} was given the questions of {', '.join(sets)} with the text, though they are"
            " to be asked after it: its own code decides when it looks at them"
            for name, sets in sorted(early.items())
            if sets
        ),
        *(
            f"{name} never asked the model: its answers come from its own code"
            for name in sorted(silent)
        ),
        *(
            f"{name}: all answers of {n} episodes are empty: {EMPTY}"
            for name, n in sorted(empty.items())
            if n and not said[name]
        ),
    ]


def save(results: Results, folder: Path) -> Path:
    """Write results.json into a folder, whole or not at all."""
    path = folder / NAME
    write_text(path, readable_json(asdict(results), indent=1) + "\n")
    return path


def load(folder: Path) -> Results:
    """Read the results.json of a folder."""
    from pydantic import TypeAdapter, ValidationError

    path = folder if folder.is_file() else folder / NAME
    try:
        return TypeAdapter(Results).validate_json(read_file(path))
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}",
            "name a folder that `recollect eval` wrote to the end",
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{path} is no results file of this version: {where}: {first['msg']}",
            "make it again with `recollect replay FOLDER`",
        ) from error

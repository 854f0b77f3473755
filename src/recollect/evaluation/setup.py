"""From settings to what is run: task sets, agents and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, runtime_checkable

from recollect.agents.base import Agent, bound, is_ours
from recollect.agents.named import agents
from recollect.agents.resources import Resources
from recollect.config.modules import is_named, load
from recollect.config.overlay import to_table
from recollect.config.starting import exported, is_run, is_trained, starting_point
from recollect.config.stored import absolute
from recollect.errors import UserError
from recollect.evaluation.assessment import CLOSED_BOOK
from recollect.evaluation.identity import described
from recollect.evaluation.jobs import Grid
from recollect.evaluation.models import Opened
from recollect.evaluation.options import EvalOptions, choose_agents, split_names
from recollect.memory.store import Embed
from recollect.metrics import never_right
from recollect.tasks.base import TaskFamily, notes_of
from recollect.tasks.files.columns import Rows
from recollect.tasks.files.fingerprint import fingerprint
from recollect.tasks.function import as_family, first_task
from recollect.tasks.named import OPENERS, TaskSpec, open_family, parse_specs, refuse
from recollect.types import Task

ROWS = ("parquet", "dataset")
"""Families whose columns a person can map."""


@dataclass(frozen=True)
class Setup:
    """What an evaluation consists of, before a model is asked."""

    specs: dict[str, TaskSpec]
    grid: Grid
    agents: dict[str, Agent]
    """As the folder describes them."""
    bound: dict[str, Agent]
    """The same with what they need: whichever searches by meaning has the embedder."""
    own: Mapping[str, str]
    """What the task sets are that no name of ours stands for."""
    embeds: bool = False
    """Whether one of them does."""

    @cached_property
    def data(self) -> dict[str, str]:
        """A hash of the files of every task set, empty for one that reads no file."""
        return {name: fingerprint(family) for name, family in self.grid.families.items()}

    @property
    def primary(self) -> dict[str, str]:
        """The metric of every task set, as its family says."""
        return {name: to_table(family.metric) for name, family in self.grid.families.items()}


@dataclass(frozen=True)
class Own:
    """What a Python program brings itself, beside what is asked for by name."""

    tasks: Mapping[str, TaskFamily] = field(default_factory=dict)
    agents: Mapping[str, Agent] = field(default_factory=dict)
    opened: Opened | None = None
    """The models; None opens what the options name."""


NOTHING_OWN = Own()


def set_up(options: EvalOptions, known: dict[str, Agent], own: Own = NOTHING_OWN) -> Setup:
    """Open the task sets and choose the agents; fail early if task data is missing."""
    named = {str(s): s for word in options.tasks for s in parse_specs(word)}
    specs = {**named, **{name: TaskSpec(name) for name in own.tasks}}
    known = {**known, **own.agents}
    if options.columns and not any(spec.name in ROWS for spec in named.values()):
        raise UserError("--columns maps no table", "name one: --tasks parquet:FILE or dataset:NAME")
    if not specs:
        raise UserError("there are no tasks", "name some, such as --tasks recall@1k,4k")
    names = [*split_names(options.agents), *own.agents]
    if not names:
        raise UserError("there are no agents", f"choose from {', '.join(known)}")
    if options.closed_book and CLOSED_BOOK in known:
        names = list(dict.fromkeys([*names, CLOSED_BOOK]))
    chosen = choose_agents(names, known, options.set)
    families: dict[str, TaskFamily] = {
        **{n: absolute(open_set(s, options.data, options.columns)) for n, s in named.items()},
        **own.tasks,
    }
    grid = Grid(families, list(chosen), options.n, options.seeds, options.split, options.first_seed)
    for name, family in families.items():
        if not grid.tasks(name):
            raise UserError(*_without_tasks(name, family, options.split))
        _check_scored(name, family, first_task(family, 0, options.split))
    open_embedder = cache(partial(_embedder, options))
    ready = {
        name: bound(agent, Resources(agent, open_embedder=open_embedder))
        for name, agent in chosen.items()
    }
    brought = {
        name: described(family)
        for name, family in families.items()
        if name in own.tasks or not is_ours(family)
    }
    return Setup(specs, grid, chosen, ready, brought, open_embedder.cache_info().currsize > 0)


def _without_tasks(name: str, family: TaskFamily, split: str) -> tuple[str, str]:
    """Say that a split is empty, and what to do about it."""
    what, fix = f"{name} has no tasks in its {split} split", f"let it make some for {split!r}"
    if isinstance(family, Rows):
        what = "; ".join((what, *notes_of(family)))
        fix = f"give more rows, or a column `split` that says {split} in some of them"
    return what, "build its data" if is_ours(family) and not isinstance(family, Rows) else fix


def _check_scored(name: str, family: TaskFamily, task: Task) -> None:
    """Refuse questions without an answer that a score of ours could find right."""
    if not task.questions:
        raise UserError(f"{name}: task {task.id[:40]!r} has no questions", "ask some in every task")
    if lacking := never_right(family.metric, task.questions):
        raise UserError(
            f"{name}: {lacking[:40]!r} in task {task.id[:40]!r} has no accepted answer",
            f"give it some, or a metric of your own in place of {family.metric}",
        )


def _embedder(options: EvalOptions) -> Embed:
    """Open the embedder that is named; refuse one that is not there before anything is run."""
    from recollect.memory.embeddings.folder import FolderEmbedder
    from recollect.memory.embeddings.live import LiveEmbedder

    # A GPU that serves a model has no room for more.
    beside = options.device == "auto" and options.model.startswith(("http://", "https://"))
    folder = FolderEmbedder(options.embed, "cpu" if beside else options.device)
    folder.check()
    return LiveEmbedder(folder)


def open_set(spec: TaskSpec, data: Path | None, columns: str = "") -> TaskFamily:
    """Open one of our families, or a user's own: module:Name, with a length if it has some."""
    own = f"{spec.name}:{spec.variant}"
    if spec.name in OPENERS or not is_named(own):
        family = open_family(spec, data)
        if columns and isinstance(family, Rows):
            return replace(family, columns=columns)
        return family
    refuse(spec, "documents", "position")
    family = as_family(load(own))
    if spec.length is None:
        return family
    if not isinstance(family, OfLength):
        raise UserError(
            f"{own} has no method of_length, but {str(spec)!r} asks for a length",
            f"write {own}, or define of_length(tokens)",
        )
    return family.of_length(spec.length)


@runtime_checkable
class OfLength(Protocol):
    """A family that can be asked for a length in tokens."""

    def of_length(self, tokens: int) -> TaskFamily:
        """Return the family with texts of about this many tokens."""


def with_model(options: EvalOptions) -> EvalOptions:
    """Let a run bring the model: the one that is named, or else the first among the agents."""
    runs = [name for name in split_names(options.agents) if is_run(name)]
    named = options.model or next(iter(runs), "")
    return replace(options, model=_model(named), answer_model=_model(options.answer_model))


def _model(named: str) -> str:
    path = Path(named).expanduser()
    return str(exported(path if path.is_dir() else path.parent)) if is_trained(named) else named


def known_agents(options: EvalOptions) -> dict[str, Agent]:
    """Return every agent by name, with the settings that they share."""
    known = agents(options.chunk_size, options.max_memory_tokens, options.max_answer_tokens)
    named = (name for name in split_names(options.agents) if name not in known)
    return {**known, **{name: starting_point(name).agent for name in named if is_run(name)}}


def default_folder(options: EvalOptions, setup: Setup, own: Own = NOTHING_OWN) -> Path:
    """Name a folder after what is asked for: the same command finds it again."""
    asked = (
        options.tasks,
        options.agents,
        options.model,
        options.answer_model,
        options.split,
        options.temperature,
        options.top_p,
        options.chunk_size,
        options.max_memory_tokens,
        options.max_answer_tokens,
        options.set,
        options.closed_book,
        *([options.columns] if options.columns else []),
        *([] if options.run_models else ["--model for all"]),
        *([f"from seed {options.first_seed}"] if options.first_seed else []),
    )
    brought = [described(part) for part in (*own.tasks.values(), *own.agents.values())]
    data = [found for found in setup.data.values() if found]
    digest = blake2b(repr((*asked, *brought, *data)).encode(), digest_size=4).hexdigest()
    named = [Path(s.name).stem for word in options.tasks for s in parse_specs(word)]
    name = "-".join(dict.fromkeys([*named, *own.tasks]))
    return Path("evaluations") / f"{name[:60]}-{digest}"

"""What a person can set about an evaluation. Plain data."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Any, Literal

from recollect.agents.base import Agent
from recollect.agents.function import as_agent
from recollect.bounds import ABOVE_0, DRAFT, FROM_0, FROM_1, NUCLEUS, check_bounds
from recollect.config.modules import is_named, load
from recollect.config.overlay import overlay
from recollect.errors import UserError
from recollect.runs.tracker_services import TrackerConfig


@dataclass(frozen=True)
class EvalOptions:
    """Measure agents on tasks, side by side."""

    tasks: tuple[str, ...]
    """NAME[:VARIANT,...][@LENGTH,...], such as ruler:niah_multikey_1@8k,64k hotpotqa@7k,28k."""
    model: str = ""
    """The address of an OpenAI-compatible server, such as http://localhost:8000/v1, a folder, or
    a run; with a run among the agents, by default the model that it trained."""
    agents: tuple[str, ...] = ("fold",)
    """Names, between commas or spaces; your own as module:Name or path/to/file.py:Name; the
    folder of a run stands for its agent with all of its settings."""
    run_models: bool = True
    """Whether a run among the agents speaks with the model that it trained; otherwise with --model,
    like the others."""
    answer_model: str = ""
    """Another model for the role `answer`, which reads the memories; empty takes the same model."""
    n: int = 128
    """Tasks per set; a smaller set is used in full."""
    seeds: int = 1
    """Number of runs, each with its own seed for making tasks and for sampling."""
    first_seed: int = 0
    """Seed of the first run: where tasks are made from a seed, another one makes other tasks."""
    split: Literal["test", "train"] = "test"
    data: Path | None = None
    """Where the data of the task families are; by default the folder data."""
    columns: str = ""
    """For parquet:PATH and dataset:NAME: which column holds what, such as
    question=q,context=doc,answers=a."""
    out: Path | None = None
    """Where everything is stored. The same command continues where it stopped."""
    concurrency: int = 32
    """Episodes in flight at once."""
    workers: int = 0
    """Processes that run agents where a server is asked; 0 takes one for every 64 episodes in
    flight, as far as there are cores."""
    temperature: float = 0.7
    top_p: float = 0.95
    timeout: float | None = None
    """Seconds before an episode counts as failed."""
    closed_book: bool = True
    """Also measure what the model answers without reading anything."""
    chunk_size: int = 5000
    """Tokens that an agent reads at a time, and tokens of a passage."""
    max_memory_tokens: int = 1024
    max_answer_tokens: int = 1024
    embed: str = "minilm"
    """Embedder of agents that search by meaning: minilm, or a sentence-transformers folder."""
    set: tuple[str, ...] = ()
    """Settings of single agents: AGENT.FIELD=VALUE, such as fold.order=memory_first."""
    metrics: tuple[str, ...] = ()
    """Metrics to report beside the family's own; the usual ones by default."""
    prices: str = ""
    """Dollars per million tokens, in and out, such as 0.15,0.6."""
    judge: str = ""
    """The address of a server whose model judges the answers."""
    judge_model: str = ""
    """The judge's model; empty takes the first one that its server lists."""
    longmemeval_prompts: Path | None = None
    """JSON with the published wording of LongMemEval's judge, by type of question; without it the
    same rules are given in our words."""
    retry_failed: bool = False
    """Run failed episodes again; replies they already got are not asked for again."""
    served_model: str = ""
    """Which model to ask, if the server has several."""
    tokenizer: str = ""
    """The folder of the served model's tokenizer, for counting tokens."""
    window: int | None = None
    """Tokens that a context may hold, if the server does not report it."""
    device: str = "auto"
    """Device of a model folder, and of the embedder: auto takes the first GPU if there is one, else
    the CPU."""
    threads: int = 0
    """CPU threads for a model folder; 0 leaves the choice to torch."""
    cache_gib: float = 4.0
    """Memory for the keys and values of a model folder."""
    drafts: int = 9
    """Tokens that a model folder's sampler guesses at one step on a GPU; 0 guesses none."""
    trackers: tuple[str, ...] = ()
    """Where the scores go beside results.json: tensorboard, wandb, swanlab, trackio, mlflow."""
    tracking: TrackerConfig = TrackerConfig()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(split_names(self.metrics)))
        check_bounds("", self, temperature=FROM_0, top_p=NUCLEUS, timeout=ABOVE_0)
        check_bounds("", self, window=FROM_1, threads=FROM_0, cache_gib=ABOVE_0, workers=FROM_0)
        check_bounds("", self, drafts=DRAFT)
        check_bounds(
            "", self, chunk_size=FROM_1, max_memory_tokens=FROM_1, max_answer_tokens=FROM_1
        )


@dataclass(frozen=True)
class ReplayOptions:
    """Score stored episodes again; no model is asked but the judge."""

    metrics: tuple[str, ...] = ()
    """Metrics to report beside the family's own; the usual ones by default."""
    prices: str = ""
    """Dollars per million tokens, in and out, such as 0.15,0.6."""
    judge: str = ""
    """The address of a server whose model judges the answers."""
    judge_model: str = ""
    """The judge's model; empty takes the first one that its server lists."""
    longmemeval_prompts: Path | None = None
    """JSON with the published wording of LongMemEval's judge, by type of question; without it the
    same rules are given in our words."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(split_names(self.metrics)))


def make_options(**settings: Any) -> EvalOptions:
    """Make options of what a Python program passes; paths may be texts."""
    known = [spec.name for spec in fields(EvalOptions)]
    for name, value in settings.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 3) or known
            raise UserError(f"evaluate has no option {name!r}", f"choose from {', '.join(close)}")
        if name in ("data", "out") and value is not None:
            settings[name] = Path(value)
    return EvalOptions(**settings)


def plain_options(options: EvalOptions) -> dict[str, Any]:
    """Return the options as plain data, but for those that decide nothing about an episode."""
    given = {spec.name: getattr(options, spec.name) for spec in fields(options)}
    plain = (str, int, float, tuple)
    kept = {name: value for name, value in given.items() if isinstance(value, plain)}
    return kept | {"data": None if options.data is None else str(options.data)}


def read_options(table: Mapping[str, Any]) -> EvalOptions:
    """Make options of plain data."""
    lists = {name: tuple(value) for name, value in table.items() if isinstance(value, list)}
    return make_options(**{**table, **lists})


def split_names(words: Sequence[str]) -> list[str]:
    """Take names apart at commas; each counts once."""
    return list(dict.fromkeys(name for word in words for name in word.split(",") if name))


def choose_agents(
    names: Sequence[str], known: Mapping[str, Agent], settings: Sequence[str]
) -> dict[str, Agent]:
    """Take agents by name and lay settings such as fold.chunk_size=2000 over them."""
    agents = {}
    for name in names:
        if name in known:
            agents[name] = known[name]
        elif is_named(name):
            agents[name] = as_agent(load(name))
        else:
            raise UserError(
                f"there is no agent {name!r}",
                f"choose from {', '.join(known)}, or name your own as module:Name",
            )
    for setting in settings:
        path, equals, value = setting.partition("=")
        name = next((own for own in agents if path.startswith(f"{own}.")), "")
        field = path[len(name) + 1 :]
        if not (equals and name and field):
            raise UserError(
                f"{setting!r} sets nothing",
                f"write AGENT.FIELD=VALUE, with one of the agents {', '.join(agents)}",
            )
        try:
            agents[name] = _laid_over(agents[name], field.split("."), value, setting)
        except UserError as error:
            raise UserError(
                *(_named_here(text, name) for text in (error.what, error.fix))
            ) from error
    return agents


def _named_here(text: str, name: str) -> str:
    """Say `rag.top_k` where a message for a run says `--agent.top-k`, or `agent.top_k`."""
    own = re.compile(r"(?<![\w.])(?:--)?agent\.([\w.-]*\w)")
    return own.sub(lambda found: f"{name}.{found[1].replace('-', '_')}", text)


def _laid_over(part: Any, path: list[str], value: str, setting: str) -> Any:
    known = [f.name for f in fields(part)] if is_dataclass(part) else []
    field, *rest = path
    if field not in known:
        none = f"{type(part).__name__} has no settings: those of a class are fields of a dataclass"
        fix = f"choose from {', '.join(known)}" if known else none
        raise UserError(f"{setting!r}: there is no {field}", fix)
    old = getattr(part, field)
    if rest:
        return replace(part, **{field: _laid_over(old, rest, value, setting)})
    found, where = _value(value), lambda _dotted: repr(setting)
    try:
        return overlay(part, {field: found}, where)
    except UserError:
        if isinstance(found, str):
            raise
        with suppress(UserError):  # a text that looks like a number, where a text is wanted
            return overlay(part, {field: value}, where)
        raise


def _value(text: str) -> Any:
    """Read a number, None, True or a tuple; anything else is a text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        plain = {"true": True, "false": False, "none": None, "inf": inf, "nan": nan}
        return plain.get(text, text)

"""`recollect.train` and `recollect.evaluate`: the commands, called from Python.

They return results instead of only printing them, and work in a notebook, whose event loop is
running. What they need is imported when they are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from recollect.agents.base import Agent
    from recollect.chat.chat import Model
    from recollect.commands.results import EvalResult, HeldOut, TrainResult
    from recollect.config.train import TrainConfig
    from recollect.evaluation.models import Opened
    from recollect.evaluation.options import EvalOptions
    from recollect.tasks.base import TaskFamily

    T = TypeVar("T")
    Start = TrainConfig | TrainResult | str | Path
    Tasks = str | TaskFamily | list[str | TaskFamily] | tuple[str | TaskFamily, ...]
    Agents = str | Agent | list[str | Agent] | tuple[str | Agent, ...] | Mapping[str, Agent]
    Models = str | Path | Model | Mapping[str, Model]


def preset(name: str) -> TrainConfig:
    """Return the settings of a preset, such as `demo`; `dataclasses.replace` changes them."""
    from recollect.config.presets import preset as find

    return find(name)


def train(start: Start = "demo", *, quiet: bool = False, **overrides: Any) -> TrainResult:
    """Train an agent as `recollect train` does, and return what came of it.

    Start from a preset's name, from settings such as `preset("demo")`, or from a run: its folder,
    or its result. Overrides are settings by name: `steps=5`, `agent=my_function`,
    `rollout={"n": 4}`. With `quiet` nothing is printed.
    """
    settings = with_overrides(_settings(start), overrides)
    with _needing("training"):
        from recollect.commands.train import train_to_result
    from recollect.concurrency.stop import outside_loops
    from recollect.display import open_console

    return outside_loops(lambda stop: train_to_result(settings, open_console(quiet), stop))


@overload
def evaluate(start: Start, *, quiet: bool = False, **overrides: Any) -> HeldOut: ...


@overload
def evaluate(
    start: None = None,
    *,
    tasks: Tasks,
    agents: Agents = "fold",
    model: Models,
    quiet: bool = False,
    **options: Any,
) -> EvalResult: ...


def evaluate(
    start: Start | None = None, *, quiet: bool = False, **options: Any
) -> HeldOut | EvalResult:
    """Measure as `recollect eval` does, and return what was found.

    With a preset's name, settings, or a run (its folder or its result): its model on held-out
    tasks, at several lengths. Without, agents side by side, by name or as objects:
    `evaluate(tasks="recall@1k", agents=["fold", my_function], model=URL)`. With `quiet` nothing is
    printed.
    """
    if start is None:
        return _side_by_side(quiet, **options)
    settings = with_overrides(_settings(start, trained="model" not in options), options)
    with _needing("measuring a preset"):
        from recollect.commands.held_out import measure_held_out
        from recollect.commands.stages.partner import with_partner
    from recollect.concurrency.stop import outside_loops
    from recollect.display import open_console

    console = open_console(quiet)
    with with_partner(settings, settings.folder / settings.name, console) as settings:
        return outside_loops(lambda stop: measure_held_out(settings, console, stop, keep=True))


def _side_by_side(
    quiet: bool, tasks: Tasks = (), agents: Agents = "fold", model: Models = "", **options: Any
) -> EvalResult:
    from recollect.commands.evaluate import evaluate as run
    from recollect.concurrency.stop import outside_loops
    from recollect.display import open_console
    from recollect.evaluation.options import make_options
    from recollect.evaluation.setup import Own

    set_names, families = _tasks(tasks)
    agent_names, own_agents = _agents(agents)
    where, models = ("", _by_role(model)) if not isinstance(model, str | Path) else (str(model), {})
    if models:  # recorded as they are
        sampling = models["memory"].sampling
        options = {"temperature": sampling.temperature, "top_p": sampling.top_p} | options
    chosen = make_options(tasks=set_names, agents=agent_names, model=where, **options)
    opened = _opened(models, chosen) if models else None
    own = Own(families, own_agents, opened)
    return outside_loops(
        lambda stop: run(chosen, "recollect.evaluate(...)", open_console(quiet), stop, own)
    )


def _settings(start: Start, trained: bool = False) -> TrainConfig:
    """Return the settings to start from; of a run with the model that it `trained`, if asked."""
    from recollect.commands.results import TrainResult
    from recollect.config.starting import is_run, starting_point
    from recollect.config.starting import trained as with_model

    if isinstance(start, TrainResult):
        return with_model(start.config) if trained else start.config
    if not isinstance(start, str | Path):
        return start
    found = starting_point(str(start))
    return with_model(found) if trained and is_run(str(start)) else found


def with_overrides(settings: TrainConfig, overrides: Mapping[str, Any]) -> TrainConfig:
    """Lay settings by name over others; parts of a section as a dict.

    An agent, a reward or tasks may also be a function or a class of your own. `memory`, `tools` and
    `metric`, by name or as objects, change the agent and the reward, as on the command line.
    """
    from dataclasses import is_dataclass

    from recollect.agents.function import as_agent
    from recollect.config.overlay import overlay
    from recollect.config.parts import GIVEN, with_given
    from recollect.rewards.function import as_reward
    from recollect.tasks.function import as_family

    kinds = {"agent": as_agent, "reward": as_reward, "tasks": as_family}
    objects: dict[str, Any] = {}
    table: dict[str, Any] = {}
    for name, value in overrides.items():
        if name in kinds and not isinstance(value, str | Mapping):
            objects[name] = kinds[name](value)
        elif is_dataclass(getattr(settings, name, None)) and is_dataclass(value):
            objects[name] = value
        elif name not in GIVEN:
            table[name] = value
    found = overlay(settings, table, lambda name: name or "these settings", given=objects)
    return with_given(found, {name: overrides[name] for name in GIVEN if name in overrides})


def _tasks(tasks: Tasks) -> tuple[tuple[str, ...], dict[str, TaskFamily]]:
    """Part the names of task sets from task families."""
    from recollect.tasks.function import as_family

    listed = list(tasks) if isinstance(tasks, list | tuple) else [tasks]
    names = tuple(one for one in listed if isinstance(one, str))
    families = [as_family(one) for one in listed if not isinstance(one, str)]
    return names, _named("task families", [(one.name, one) for one in families])


def _agents(agents: Agents) -> tuple[tuple[str, ...], dict[str, Agent]]:
    """Part the names of agents from agents, which are called after their class or function."""
    from recollect.agents.base import part_name
    from recollect.agents.function import as_agent

    if isinstance(agents, Mapping):
        return (), {name: as_agent(one) for name, one in agents.items()}
    listed = list(agents) if isinstance(agents, list | tuple) else [agents]
    names = tuple(one for one in listed if isinstance(one, str))
    own = [as_agent(one) for one in listed if not isinstance(one, str)]
    return names, _named("agents", [(part_name(one), one) for one in own])


def _named(what: str, parts: list[tuple[str, T]]) -> dict[str, T]:
    """Key parts by name; refuse two of one name, of which one would be lost."""
    from collections import Counter

    from recollect.errors import UserError

    name, count = Counter(name for name, _ in parts).most_common(1)[0] if parts else ("", 0)
    if count > 1:
        how = "give agents as a dict of names" if what == "agents" else "give each another `name`"
        raise UserError(f"{count} {what} are called {name}", how)
    return dict(parts)


def _by_role(model: Model | Mapping[str, Model]) -> dict[str, Model]:
    return dict(model) if isinstance(model, Mapping) else {"memory": model, "answer": model}


def _opened(models: dict[str, Model], options: EvalOptions) -> Opened:
    """Let models that a program made itself be sampled as the options say."""
    from dataclasses import replace

    from recollect.evaluation.models import Opened

    found, facts = {}, {}
    for role, model in models.items():
        sampling = replace(model.sampling, temperature=options.temperature, top_p=options.top_p)
        found[role] = replace(model, sampling=sampling)
        name = getattr(model.policy, "model", "")  # what a server calls it
        name = name if isinstance(name, str) and name else type(model.policy).__name__
        facts[role] = {"id": name, "window": model.window}
    return Opened(found, facts)


@contextmanager
def _needing(what: str) -> Iterator[None]:
    """Name the extra that brings a package which is not installed."""
    import warnings

    from recollect.errors import UserError
    from recollect.packaging import install

    # In a notebook a library asks for progress bars that nothing here uses.
    warnings.filterwarnings("ignore", "IProgress not found")
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package == "recollect":
            raise
        raise UserError(f"{what} needs {package or error}", install("local")) from error

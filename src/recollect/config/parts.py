"""The parts of a run by name: its agent, its reward and its tasks, built in or your own.

Every part can be named as `module:Name`; ours have short names as well.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from recollect.agents.base import Agent, is_ours, part_name
from recollect.agents.function import as_agent
from recollect.chat.tools import Tool, as_tool
from recollect.config.modules import Loader, is_named, load
from recollect.errors import UserError
from recollect.metrics import METRICS, Metric
from recollect.rewards.base import Reward
from recollect.rewards.function import as_reward
from recollect.tasks.base import TaskFamily
from recollect.tasks.files.columns import HELD_OUT
from recollect.tasks.files.jsonl import Jsonl
from recollect.tasks.function import as_family
from recollect.tasks.named import OPENERS, is_file_name, open_family, parse_specs

if TYPE_CHECKING:
    from recollect.config.train import TrainConfig

AGENTS: Mapping[str, str] = MappingProxyType(
    {
        "fold": "recollect.agents.fold:FoldAgent",
        "bank": "recollect.agents.bank:BankAgent",
        "curator": "recollect.agents.curator:CuratorAgent",
        "callback": "recollect.agents.callback:CallbackAgent",
        "gated": "recollect.agents.gated:GatedAgent",
        "parallel": "recollect.agents.parallel:ParallelAgent",
        "recursive": "recollect.agents.recursive:RecursiveAgent",
        "rolling": "recollect.agents.rolling:RollingAgent",
        "full_context": "recollect.agents.baselines:FullContextAgent",
        "closed_book": "recollect.agents.baselines:ClosedBookAgent",
        "rag": "recollect.agents.rag:RagAgent",
    }
)
REWARDS: Mapping[str, str] = MappingProxyType(
    {
        "answers": "recollect.rewards.answers:AnswerReward",
        "answers_and_tools": "recollect.rewards.answers:AnswerAndTools",
        "callbacks": "recollect.rewards.reading:CallbackReward",
        "gates": "recollect.rewards.reading:GateReward",
        "rounds": "recollect.rewards.reading:RoundReward",
        "programs": "recollect.rewards.programs:ProgramReward",
        "memory_delta": "recollect.rewards.memory_delta:MemoryDelta",
        "verifiers": "recollect.rewards.verifiers:VerifiersReward",
    }
)
GIVEN = ("memory", "tools", "metric")
"""What an agent or a reward can be given by a name of its own."""
TOOL_FIELDS = ("tools", "more_tools")
"""Where agents keep the tools that they are given."""
OTHER_NAMES = {"max_memory_tokens": "max_core_tokens", "max_core_tokens": "max_memory_tokens"}
"""Names of settings that agents call differently."""


def agent_named(name: str, current: Any, load: Loader = load) -> Agent:
    """Return an agent by name.

    One of ours takes over the settings that it shares with the current one; yours has its own.
    """
    found: Any = as_agent(_named("agent", name, AGENTS, load))
    agent: Agent = found
    if name in AGENTS and type(found) is type(current):
        agent = current
    elif name in AGENTS and is_ours(current) and is_dataclass(current):
        agent = replace(found, **taken_over(current, found)[0])
    return agent


def reward_named(name: str, current: Any, load: Loader = load) -> Reward:
    """Return a reward by name; the current one if that is of the kind."""
    found = as_reward(_named("reward", name, REWARDS, load))
    kept: Reward = current if name in REWARDS and type(found) is type(current) else found
    return kept


def tasks_named(name: str, _current: Any, load: Loader = load) -> TaskFamily:
    """Return a family of tasks: NAME[:VARIANT][@LENGTH] of ours, FILE.jsonl, or yours."""
    if is_file_name(name):
        return _trainable(Jsonl(Path(name)))
    if name.partition(":")[0].partition("@")[0] in OPENERS:
        specs = parse_specs(name)
        if len(specs) != 1:
            raise UserError(f"{name!r} names {len(specs)} task families", "name one")
        return _trainable(open_family(specs[0]))
    return as_family(_named("family of tasks", name, dict.fromkeys(OPENERS, ""), load))


def _trainable(family: TaskFamily) -> TaskFamily:
    """Hold out a tenth of JSON lines of which none names a split: a run needs both."""
    if isinstance(family, Jsonl) and family.file.is_file() and not family.size("train"):
        halved = replace(family, held_out=HELD_OUT)
        return halved if halved.size("train") else family
    return family


def metric_named(name: str, load: Loader = load) -> str | Metric:
    """Return a metric by name: ours stay names, yours is loaded."""
    if name in METRICS:
        return name
    found = _named("metric", name, dict.fromkeys(METRICS, ""), load)
    if not callable(found):
        how = "write `def name(prediction, answers)` that returns a number from 0 to 1"
        raise UserError(f"{name} is not a metric: it cannot be called", how)
    metric: Metric = found
    return metric


def with_metric(reward: Any, metric: str | Metric) -> Reward:
    """Return a reward that scores answers by another metric."""
    names = {spec.name for spec in fields(reward)} if is_dataclass(reward) else set()
    if "metric" not in names:
        raise UserError(
            f"the reward {part_name(reward)} has no metric to set",
            "leave --metric out, or set --reward to one of ours, such as answers",
        )
    changed: Any = replace(reward, metric=metric)
    return changed


def with_memory(agent: Any, kind: Any) -> Agent:
    """Return an agent whose episodes start with a memory of another kind."""
    if not callable(kind):
        raise UserError(f"{kind!r:.80} is not a class of memories", "write --memory module:Class")
    if not (is_dataclass(agent) and callable(getattr(agent, "memory", None))):
        raise UserError(
            f"the agent {part_name(agent)} chooses its own memory",
            "name your own agent with --agent: a function's memory can be set, and that of a"
            " dataclass with the field `memory: Callable[..., Any] = TextMemory`",
        )
    changed: Any = replace(agent, memory=kind)  # type: ignore[type-var]
    return changed


def tools_named(names: str, load: Loader = load) -> tuple[Tool, ...]:
    """Load tools, written between commas."""
    return tuple(as_tool(load(name)) for name in names.split(",") if name)


def with_tools(agent: Any, tools: tuple[Tool, ...]) -> Agent:
    """Return an agent that has these tools, or has them beside its own."""
    names = {spec.name for spec in fields(agent)} if is_dataclass(agent) else set()
    field = next((f for f in TOOL_FIELDS if isinstance(getattr(agent, f, None), tuple)), "")
    if field not in names:
        raise UserError(
            f"the agent {part_name(agent)} takes no tools",
            "choose bank or curator, or give your dataclass the field"
            " `tools: tuple[Tool, ...] = ()`",
        )
    changed: Any = replace(agent, **{field: tools})
    return changed


def with_given(config: TrainConfig, given: Mapping[str, Any]) -> TrainConfig:
    """Give the agent of a run another memory or tools, its reward another metric."""
    agent, reward = config.agent, config.reward
    if memory := given.get("memory"):
        agent = with_memory(agent, load(memory) if isinstance(memory, str) else memory)
    if tools := given.get("tools"):
        listed = tools if isinstance(tools, list | tuple) else (tools,)
        named = ((tools_named(one) if isinstance(one, str) else (as_tool(one),)) for one in listed)
        agent = with_tools(agent, tuple(tool for tools in named for tool in tools))
    if metric := given.get("metric"):
        reward = with_metric(reward, metric_named(metric) if isinstance(metric, str) else metric)
    return replace(config, agent=agent, reward=reward) if given else config


def _named(what: str, name: str, known: Mapping[str, str], load: Loader) -> Any:
    if known.get(name):
        return load(known[name])
    if is_named(name):
        return load(name)
    file = name.rstrip(":").removesuffix(".py")
    if Path(f"{file}.py").is_file():
        raise UserError(f"{name} names a file, and no {what} in it", f"write {file}.py:Name")
    close = difflib.get_close_matches(name, known, 3) or list(known)
    raise UserError(
        f"there is no {what} {name!r}",
        f"choose from {', '.join(close)}, or name your own as module:Name or path/to/file.py:Name",
    )


def taken_over(agent: Any, fresh: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the settings of an agent by another's names for them, and those it has no names for.

    Prompts and tools are an agent's own, even where they have one name, and so is a value that the
    other's setting of that name cannot have: a fold's order is no order of passages.
    """
    known = {spec.name for spec in fields(fresh)}
    hints = get_type_hints(type(fresh))
    taken: dict[str, Any] = {}
    left: set[str] = set()
    for spec in fields(agent):
        value = getattr(agent, spec.name)
        name = spec.name if spec.name in known else OTHER_NAMES.get(spec.name, "")
        own_kind = is_dataclass(value) and name and type(value) is not type(getattr(fresh, name))
        if name not in known or own_kind or not _fits(value, hints[name]):
            left.add(spec.name)
        else:
            taken[name] = value
    return taken, left


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a setting of this type can have a value; an unusual type takes any."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    wanted = (int, float) if hint is float else hint
    return hint not in (bool, int, float, str, NoneType) or isinstance(value, wanted)

"""Settings from the command line: parts of a run by name, then every field of them as a flag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from recollect.config.modules import is_named, load
from recollect.config.overlay import to_table
from recollect.config.parts import (
    agent_named,
    metric_named,
    reward_named,
    tasks_named,
    with_metric,
)
from recollect.config.published import Arguments
from recollect.errors import UserError

PARTS = ("agent", "reward", "tasks", "metric")
CHOOSING = (
    "--agent, --reward, --tasks and --metric name another part: one of ours, module:Name or"
    " path/to/file.py:Name. The fields of what you name are then the flags below."
)


def take_parts(args: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Take --agent, --reward, --tasks and --metric out of arguments: they decide other flags."""
    found: dict[str, str] = {}
    rest: list[str] = []
    left = list(args)
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in (f"--{part}" for part in PARTS):
            rest.append(word)
            continue
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") else ""
        if not value:
            raise UserError(f"{flag} names nothing", f"write {flag} NAME or {flag} module:Name")
        found[flag[2:]] = value
    return found, rest


def with_parts(given: Arguments, names: dict[str, str]) -> Arguments:
    """Put the parts that are named in place of a preset's."""
    chosen: dict[str, Any] = {}
    if "agent" in names:
        chosen["agent"] = agent_named(names["agent"], given.agent)
    if "tasks" in names:
        chosen["tasks"] = tasks_named(names["tasks"], given.tasks)
    if "reward" in names:
        chosen["reward"] = reward_named(names["reward"], given.reward)
    if "metric" in names:
        metric = metric_named(names["metric"])
        chosen["reward"] = with_metric(chosen.get("reward", given.reward), metric)
    return replace(given, **chosen)


def settings_registry() -> ConstructorRegistry:
    """Let settings that are functions or classes be given by name."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def named(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if get_origin(info.type) not in (Callable, type):
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="MODULE:NAME",
            instance_from_str=_loaded,
            is_instance=callable,
            str_from_instance=lambda value: [to_table(value)],
        )

    return registry


def _loaded(args: list[str]) -> Any:
    if not is_named(args[0]):
        raise ValueError("write module:Name")
    return load(args[0])

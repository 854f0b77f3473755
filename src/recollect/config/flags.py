"""Settings from the command line: parts of a run by name, then every field of them as a flag."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_origin, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from recollect.chat.tools import Tool, as_tool
from recollect.config.modules import is_named, load, name_of
from recollect.config.overlay import is_plain_class, to_table
from recollect.config.parts import (
    agent_named,
    metric_named,
    reward_named,
    tasks_named,
    tools_named,
    with_memory,
    with_metric,
    with_tools,
)
from recollect.config.published_names import Arguments
from recollect.config.rollout import ValidationConfig
from recollect.errors import UserError
from recollect.tasks.base import TaskFamily
from recollect.tasks.files.columns import Rows

PARTS = ("agent", "reward", "tasks", "metric", "columns", "memory", "tools")
CHOOSING = (
    "--agent, --reward, --tasks and --metric name another part: one of ours, module:Name or"
    " path/to/file.py:Name. The fields of what you name are then the flags below. --memory and"
    " --tools (several between commas) give the agent yours. --columns"
    " question=q,context=doc,answers=a maps the columns of --tasks parquet:FILE."
)


def take_parts(args: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Take the names of parts, such as --agent, and --columns out of arguments.

    They decide what other flags there are, or what these begin with.
    """
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
        tasks = chosen["tasks"] = tasks_named(names["tasks"], given.tasks)
        if "columns" in names:
            tasks = chosen["tasks"] = with_columns(tasks, names["columns"])
        chosen["val"] = fitting(given.val, tasks)
    elif "columns" in names:
        chosen["tasks"] = with_columns(given.tasks, names["columns"])
    if "reward" in names:
        chosen["reward"] = reward_named(names["reward"], given.reward)
    if "metric" in names:
        metric = metric_named(names["metric"])
        chosen["reward"] = with_metric(chosen.get("reward", given.reward), metric)
    if "memory" in names:
        chosen["agent"] = with_memory(chosen.get("agent", given.agent), load(names["memory"]))
    if "tools" in names:
        chosen["agent"] = with_tools(chosen.get("agent", given.agent), tools_named(names["tools"]))
    return replace(given, **chosen)


def with_columns(tasks: TaskFamily, columns: str) -> TaskFamily:
    """Map the columns of a table."""
    if not isinstance(tasks, Rows):
        raise UserError("--columns maps no table", "name one: --tasks parquet:FILE or dataset:NAME")
    return replace(tasks, columns=columns)


def fitting(val: ValidationConfig, tasks: TaskFamily) -> ValidationConfig:
    """Measure a preset's own numbers of tasks and lengths only as far as other tasks have them."""
    try:
        size = tasks.size("test")
    except UserError:  # columns that are mapped later, or a mistake that is reported then
        return val
    most = size or max(val.tasks, val.length_tasks)
    fewer = replace(val, tasks=min(val.tasks, most), length_tasks=min(val.length_tasks, most))
    try:
        tasks.longer(2)
    except UserError:  # texts of one length
        return replace(fewer, lengths=tuple(times for times in val.lengths if times == 1))
    return fewer


def settings_registry() -> ConstructorRegistry:
    """Let settings that are functions or classes be given by name."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def named(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if info.type is Tool:
            return _by_name(lambda args: as_tool(_loaded(args)), Tool)
        if get_origin(info.type) not in (Callable, type) and info.type not in (Callable, type):
            return None
        return _by_name(_loaded, object)

    registry.struct_rule(_plain_object)
    return registry


def _plain_object(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Give an object of a user's plain class flags that begin with what the object has.

    Where none is changed the object stays as it is: its class may make another one of less.
    """
    value, kind = info.default, info.type
    if type(value) is not kind or not is_plain_class(kind):
        return None
    hints = get_type_hints(kind.__init__)
    own_name, missing = name_of(value), inspect.Parameter.empty
    known: dict[str, Any] = {}
    lost: list[str] = []
    for name, spec in inspect.signature(kind).parameters.items():
        if spec.kind not in (spec.POSITIONAL_OR_KEYWORD, spec.KEYWORD_ONLY):
            continue
        kept = getattr(value, name, missing)
        if kept is not missing and _is_of(kept, hints.get(name, Any)):
            known[name] = kept
        elif own_name or spec.default is missing:  # it was made of something, none knows of what
            lost.append(name)
        else:
            known[name] = spec.default

    def made(**given: Any) -> Any:
        if all(given[name] is known[name] or given[name] == known[name] for name in given):
            return value
        if lost:
            raise UserError(
                f"no setting of {own_name or kind.__name__} can be changed: it does not keep"
                f" {' and '.join(lost)} as it was given",
                f"let {kind.__name__} keep it, such as self.{lost[0]} = {lost[0]}",
            )
        return kind(**known | given)

    return StructConstructorSpec(
        made,
        tuple(StructFieldSpec(name, hints[name], known[name]) for name in known if name in hints),
    )


def _is_of(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type; one that cannot be checked may have any."""
    try:
        TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError:
        return False
    except (PydanticUserError, TypeError):
        pass
    return True


def _by_name(made: Callable[[list[str]], Any], kind: type) -> PrimitiveConstructorSpec[Any]:
    """Read a setting that is written as module:Name."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="MODULE:NAME",
        instance_from_str=made,
        is_instance=lambda value: isinstance(value, kind) and (kind is Tool or callable(value)),
        str_from_instance=lambda value: [to_table(value)],
    )


def _loaded(args: list[str]) -> Any:
    if not is_named(args[0]):
        raise ValueError("write module:Name")
    return load(args[0])

"""The agents that can be set, and one by its published name in place of a preset's."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from recollect.agents.bank import BankAgent
from recollect.agents.callback import CallbackAgent
from recollect.agents.curator import CuratorAgent
from recollect.agents.fold import FoldAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.parallel import ParallelAgent
from recollect.errors import UserError

AgentConfig = FoldAgent | CuratorAgent | BankAgent | CallbackAgent | GatedAgent | ParallelAgent
OneText = FoldAgent | CallbackAgent | GatedAgent | ParallelAgent
"""Agents whose memory is one text."""
AGENT_LOOPS: dict[str, type[AgentConfig]] = {
    "mem_agent": FoldAgent,
    "tool_agent": CuratorAgent,
    "tool_mem_agent": BankAgent,
    "tool_mem_agent_twostage": BankAgent,
    "callback": CallbackAgent,
    "gated": GatedAgent,
    "parallel": ParallelAgent,
}
"""Agents by the names that the published scripts give them, and readers by their own."""
OTHER_NAMES = {"max_memory_tokens": "max_core_tokens", "max_core_tokens": "max_memory_tokens"}
"""Of settings that agents call differently."""


def named_agent(name: str, agent: AgentConfig, preset: str = "") -> AgentConfig:
    """Return the agent of a name: the one given if it is of that kind.

    Another takes over every setting that it has, too. One that it does not have is left behind,
    unless it was set: neither what the preset says nor what such an agent has anyway.
    """
    if not name:
        return agent
    if name not in AGENT_LOOPS:
        raise UserError(
            f"Agent loop {name} not registered, registered agent loops: {', '.join(AGENT_LOOPS)}",
            "set --agent-name-override to one of them, or leave it to the preset",
        )
    kind = AGENT_LOOPS[name]
    if isinstance(agent, kind):
        return agent
    if type(agent) not in AGENT_LOOPS.values():
        raise UserError(
            f"the agent {type(agent).__name__} is given, and --agent-name-override names {name}",
            "leave one of them out",
        )
    taken, left = _taken_over(agent, kind())
    if lost := sorted(left - _unset(agent, preset)):
        names = ", ".join(f"agent.{setting}" for setting in lost)
        raise UserError(
            f"{names} would be lost: the agent {name} has nothing like it",
            f"leave {names} as the preset has it, or set another --agent-name-override",
        )
    return kind(**taken)


def _taken_over(agent: AgentConfig, fresh: AgentConfig) -> tuple[dict[str, Any], set[str]]:
    """Return the settings of an agent by another's names for them, and those it has no names for.

    Prompts and tools are an agent's own, even where they have one name.
    """
    known = {spec.name for spec in fields(fresh)}
    taken: dict[str, Any] = {}
    left: set[str] = set()
    for spec in fields(agent):
        value = getattr(agent, spec.name)
        name = spec.name if spec.name in known else OTHER_NAMES.get(spec.name, "")
        own_kind = is_dataclass(value) and name and type(value) is not type(getattr(fresh, name))
        if name not in known or own_kind:
            left.add(spec.name)
        else:
            taken[name] = value
    return taken, left


def _unset(agent: AgentConfig, preset: str) -> set[str]:
    """Name the settings of an agent that are as its kind or the preset has them."""
    from recollect.config.presets import PRESETS  # which is made of what is defined here

    usual = [type(agent)()]
    if preset in PRESETS and isinstance(PRESETS[preset].agent, type(agent)):
        usual.append(PRESETS[preset].agent)
    return {
        spec.name
        for spec in fields(agent)
        if any(getattr(agent, spec.name) == getattr(other, spec.name) for other in usual)
    }

"""The published systems' names for our settings, translated to ours.

`--training-stage` and `--fixed-model-api` are another way to set `models`, and
`--agent-name-override` names the agent.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any

from recollect.agents.bank import BankAgent
from recollect.agents.base import Agent
from recollect.agents.callback import CallbackAgent
from recollect.agents.curator import CuratorAgent
from recollect.agents.fold import FoldAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.parallel import ParallelAgent
from recollect.agents.recursive import RecursiveAgent
from recollect.config.parts import taken_over
from recollect.config.presets import PRESETS
from recollect.config.roles import ROLES, TRAINABLE, ModelsConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError

STAGES = {"memory": "memory", "qa": "answer"}
"""The role that learns in each stage of two-stage training."""
TWO_STAGE = "tool_mem_agent_twostage"
"""The published name of an agent of which one role is a fixed model."""
AGENT_LOOPS: dict[str, type] = {
    "mem_agent": FoldAgent,
    "tool_agent": CuratorAgent,
    "tool_mem_agent": BankAgent,
    TWO_STAGE: BankAgent,
    "callback": CallbackAgent,
    "gated": GatedAgent,
    "parallel": ParallelAgent,
    "recursive": RecursiveAgent,
}
"""Agents by the names that the published scripts give them, and readers by their own."""


@dataclass(frozen=True)
class Arguments(TrainConfig):
    """All settings of a run, with the published names beside ours."""

    training_stage: str = ""
    """Train one role, memory or qa, while the other is fixed; a shorthand for `models`."""
    fixed_model_api: str = ""
    """The address of the fixed model of a training stage."""
    agent_name_override: str = ""
    """An agent by its published name, in place of the preset's; settings that both have stay."""

    @classmethod
    def of(cls, config: TrainConfig, **names: Any) -> Arguments:
        """Put published names beside settings."""
        return cls(**{spec.name: getattr(config, spec.name) for spec in fields(config)}, **names)

    @property
    def kind(self) -> type[Arguments]:
        """This class with the actual classes of its parts as types, so that their fields show.

        A protocol with properties, such as `TaskFamily`, cannot be compared with a class.
        """
        parts = [(name, type(getattr(self, name))) for name in ("tasks", "agent", "reward")]
        return make_dataclass("Arguments", parts, bases=(Arguments,), frozen=True)

    def __post_init__(self) -> None:
        """Leave the checks to `config`: some settings are right only after the translation."""

    @property
    def config(self) -> TrainConfig:
        """The settings in our own names."""
        own = {spec.name: getattr(self, spec.name) for spec in fields(TrainConfig)}
        own["models"] = staged(self.models, self.training_stage, self.fixed_model_api)
        if self.agent_name_override == TWO_STAGE and not own["models"].fixed:
            raise no_fixed_model()
        own["agent"] = named_agent(self.agent_name_override, self.agent, self.preset)
        return TrainConfig(**own)


def named_agent(name: str, agent: Agent, preset: str = "") -> Agent:
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
    taken, left = taken_over(agent, kind())
    if lost := sorted(left - _unset(agent, preset)):
        names = ", ".join(f"agent.{setting}" for setting in lost)
        raise UserError(
            f"{names} would be lost: the agent {name} has nothing like it",
            f"leave {names} as the preset has it, or set another --agent-name-override",
        )
    found: Agent = kind(**taken)
    return found


def _unset(agent: Any, preset: str) -> set[str]:
    """Name the settings of an agent that are as its kind or the preset has them."""
    usual: list[Any] = [type(agent)()]
    if preset in PRESETS and isinstance(PRESETS[preset].agent, type(agent)):
        usual.append(PRESETS[preset].agent)
    return {
        spec.name
        for spec in fields(agent)
        if any(getattr(agent, spec.name) == getattr(other, spec.name) for other in usual)
    }


def no_fixed_model() -> UserError:
    """Say, in the reference's words, that two-stage training has a model that stays as it is."""
    return UserError(
        "fixed_model_api is required for two-stage training",
        "set --training-stage to memory or qa, and --fixed-model-api to the address of the other"
        " role's model, such as http://localhost:8000/v1",
    )


def staged(models: ModelsConfig, training_stage: str, fixed_model_api: str) -> ModelsConfig:
    """Return the models of a stage as the published scripts name it; without one, the given."""
    if not training_stage and not fixed_model_api:
        return models
    if training_stage not in STAGES:
        raise UserError(
            f"training_stage must be 'memory' or 'qa', got: {training_stage or None}",
            "set --training-stage to memory or qa",
        )
    if not fixed_model_api:
        raise no_fixed_model()
    learns = STAGES[training_stage]
    stage = {role: TRAINABLE if role == learns else fixed_model_api for role in ROLES}
    given = {role: getattr(models, role) for role in ROLES}
    if given not in (stage, dict.fromkeys(ROLES, TRAINABLE)):
        raise UserError(
            f"training_stage {training_stage} and models.memory, models.answer say different"
            " things",
            "give --training-stage with --fixed-model-api, or --models.memory and --models.answer",
        )
    return replace(models, memory=stage["memory"], answer=stage["answer"])

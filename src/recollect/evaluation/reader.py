"""An agent with the models it reads with, opened by name: what keeps memories for people.

Used by every command that reads a text or a conversation to keep it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recollect.agents.base import Agent
from recollect.config.parts import agent_named
from recollect.config.starting import is_trained, run_of_checkpoint, starting_point, trained
from recollect.evaluation.models import Opened, open_models
from recollect.evaluation.options import EvalOptions, choose_agents
from recollect.files import plain
from recollect.keeping.keeper import Keeper, fitting
from recollect.keeping.shelf import Shelf


@dataclass(frozen=True)
class Reader:
    """An agent and its models."""

    agent: Agent
    opened: Opened

    @classmethod
    def open(cls, options: EvalOptions, agent: str = "", settings: Sequence[str] = ()) -> Reader:
        """Open the model that is named, and the agent that reads with it.

        Without a name, the agent is that of the run whose model is named, else fold.
        """
        model, own = options.model, None
        if is_trained(model):
            config = trained(starting_point(model))
            model, own = config.model.path, config.agent
        elif run := run_of_checkpoint(model):
            own = starting_point(str(run)).agent
        chosen = agent_named(agent or "fold", own) if agent or not own else own
        if settings:
            named = [f"agent.{setting}" for setting in settings]
            chosen = choose_agents(["agent"], {"agent": chosen}, named)["agent"]
        opened = open_models(replace(options, model=model))
        return cls(fitting(chosen, opened.models["memory"].window), opened)

    @property
    def identity(self) -> str:
        """What tells the models from others."""
        return json.dumps(self.opened.facts, sort_keys=True, default=plain)

    def keeper(self, shelf: Shelf) -> Keeper:
        """Return what reads, and keeps every state of the memory on a shelf."""
        return Keeper(self.agent, self.opened.models, shelf, self.identity)

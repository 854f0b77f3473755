"""Start an endpoint: the agent, the model that reads and answers, and the memories."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from socket import socket
from typing import Any

from recollect.agents.base import Agent, part_name
from recollect.chat.chat import Model
from recollect.config.parts import agent_named
from recollect.config.starting import is_run, starting_point
from recollect.endpoint.answers import Answers
from recollect.endpoint.app import Endpoint, make_app
from recollect.endpoint.episodes import Episodes
from recollect.endpoint.folding import Folding
from recollect.endpoint.memories import Memories
from recollect.endpoint.settings import EndpointConfig
from recollect.endpoint.upstream import UpstreamAnswers
from recollect.errors import UserError
from recollect.evaluation.models import fingerprint
from recollect.evaluation.options import choose_agents
from recollect.files import plain
from recollect.foreign import one_line
from recollect.keeping.keeper import Keeper, check_keeps, fitting
from recollect.keeping.shelf import Shelf
from recollect.models.connect import connect
from recollect.policies.client import Endpoint as Server
from recollect.policies.served import EndpointPolicy, EndpointSpeaker
from recollect.runs.stopping import status_of
from recollect.serve.admission import Admission
from recollect.serve.bodies import Bodies
from recollect.serve.life import listening, until_signal
from recollect.serve.listening import LOCAL_NAMES, bind, find_key, is_loopback
from recollect.types import Sampling

UNKNOWN_WINDOW = 8192
"""Tokens of an upstream's window where neither it nor a setting says."""
USUAL_MEMORY = 1024
"""Tokens of a memory where neither the agent nor a setting says."""
LIMITS = ("max_memory_tokens", "max_core_tokens", "max_state_tokens")
READING = Sampling(temperature=0.0)
"""How an agent reads: the same text makes the same memory."""


def run_endpoint(config: EndpointConfig) -> int:
    """Serve until a signal says to stop; return the exit status that names it."""
    # Mistakes come before minutes of loading.
    key = find_key(config.host, config.api_key_env, config.insecure)
    agent = find_agent(config)
    if config.ready_file:
        config.ready_file.unlink(missing_ok=True)  # an earlier server's address
    with bind(config.host, config.port) as listener:
        opened = _upstream(config) if config.upstream else _local(config)
        answers, model, identity = opened
        server = _serving(config, listener, key, answers, model, agent, identity)
        what = f"{one_line(answers.name)} with the agent {one_line(config.agent)}"
        return status_of(asyncio.run(until_signal(server, config, what)))


def find_agent(config: EndpointConfig) -> Agent:
    """Return the agent that is named, with the settings of the run where that has the same."""
    own: Any = None
    where = config.checkpoint
    if where and is_run(where) and not (Path(where) / "tokenizer_config.json").exists():
        own = starting_point(where).agent
    agent = agent_named(config.agent, own)
    if config.set:
        settings = [f"agent.{setting}" for setting in config.set]
        agent = choose_agents(["agent"], {"agent": agent}, settings)["agent"]
    check_keeps(agent)
    if config.know_question and not getattr(agent, "query_aware", True):
        raise UserError(
            "--know-question has no effect on an agent that reads without the question",
            "leave it out, or add --set query_aware=True",
        )
    return agent


def with_budget(agent: Agent, window: int, tokens: int) -> tuple[Agent, int]:
    """Return the agent within a window, and the tokens that its memory may have."""
    known: list[str] = [s.name for s in fields(agent)] if is_dataclass(agent) else []
    limits = [name for name in LIMITS if name in known]
    if tokens > window // 2:
        raise UserError(
            f"memories of {tokens} tokens take more than half of the window of {window}",
            f"set --memory-tokens to at most {window // 2}",
        )
    if tokens and limits:
        agent = replace(agent, **dict.fromkeys(limits, tokens))  # type: ignore[type-var]
    agent = fitting(agent, window)
    own = max((getattr(agent, name) for name in limits), default=tokens or USUAL_MEMORY)
    return agent, min(own, window // 2)


@asynccontextmanager
async def _serving(
    config: EndpointConfig,
    listener: socket,
    key: str,
    answers: Answers,
    model: Model,
    agent: Agent,
    identity: dict[str, Any],
) -> AsyncIterator[str]:
    endpoint = open_endpoint(config, answers, model, agent, identity)
    local = is_loopback(listener.getsockname()[0])
    app = make_app(endpoint, api_key=key, hosts=LOCAL_NAMES if local else ())
    try:
        async with listening(app, config, listener) as url:
            yield url
    finally:
        await answers.close()
        endpoint.folding.memories.close()
        if endpoint.episodes:
            endpoint.episodes.close()


def open_endpoint(
    config: EndpointConfig,
    answers: Answers,
    model: Model,
    agent: Agent,
    identity: dict[str, Any],
) -> Endpoint:
    """Put the parts of an endpoint together."""
    agent, budget = with_budget(agent, model.window, config.memory_tokens)
    named = json.dumps(identity, sort_keys=True, default=plain)
    roles = {"memory": model, "answer": model}
    root = Keeper(agent, roles, Shelf(), named).root

    def open_keeper(shelf: Shelf) -> Keeper:
        return Keeper(
            agent, roles, shelf, named, record=config.keep_episodes is not None, root=root
        )

    folder = config.memories or Path(f"memories-{Path(answers.name).name or 'model'}")
    tokenizer = model.renderer.tokenizer
    folding = Folding(
        Memories(folder, open_keeper),
        lambda text: len(tokenizer.encode(text)),
        model.window,
        budget,
        min(config.limits.max_tokens, model.window // 4),
        config.know_question,
    )
    bodies = Bodies(config.limits, model.window, folded=True)
    episodes = None
    if config.keep_episodes:
        about = _about(answers.name, agent)
        episodes = Episodes(config.keep_episodes, model, about)
    admission = Admission(config.limits.requests, config.max_running)
    return Endpoint(answers, folding, bodies, admission, episodes)


def _about(name: str, agent: Agent) -> dict[str, Any]:
    """Return settings by which the viewer knows a folder of episodes."""
    kinds = {"agent": {"type": part_name(agent)}, "tasks": {"type": "endpoint"}, "reward": {}}
    return {"name": name, **kinds}


def _local(config: EndpointConfig) -> tuple[Answers, Model, dict[str, Any]]:
    from recollect.endpoint.local import LocalAnswers
    from recollect.serve.engine import Engine
    from recollect.serve.server import loaded
    from recollect.serve.service import Service
    from recollect.train.source import find_source

    source = find_source(config.checkpoint)
    model = loaded(source, config)
    engine = Engine(model, config.max_running, config.cache_gib, config.drafts)
    answers = LocalAnswers(Service(config.name or source.name, engine, config.limits))
    identity = {"fingerprint": fingerprint(source.folder), "window": answers.service.window}
    if source.checkpoint:
        identity["checkpoint"] = fingerprint(source.checkpoint)
    return answers, answers.model(READING), identity


def _upstream(config: EndpointConfig) -> tuple[Answers, Model, dict[str, Any]]:
    variable = config.upstream_key_env
    key = os.environ.get(variable, "").strip() if variable else ""
    if variable and not key:
        raise UserError(
            f"the environment variable {variable} is empty", f"set it: export {variable}=..."
        )
    server = Server(
        config.upstream,
        config.upstream_model,
        api_key_env=variable,
        timeout=config.upstream_seconds,
        retries=2,
        breaker=1 << 30,  # an endpoint outlives a server that comes back
    )
    model = connect(
        server,
        tokenizer=config.tokenizer or None,
        sampling=READING,
        window=config.upstream_window or None,
    )
    if model.window >= 1 << 30:
        model = replace(model, window=UNKNOWN_WINDOW)
    policy = model.policy
    assert isinstance(policy, EndpointPolicy | EndpointSpeaker)
    name = config.name or policy.model
    answers = UpstreamAnswers(config.upstream, key, policy.model, name, config.upstream_seconds)
    identity = {"id": policy.model, "url": config.upstream, "window": model.window}
    return answers, model, identity

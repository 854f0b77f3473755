"""Run an agent on a task over scripted policies, and look at what was asked and said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from recollect.agents.base import Agent
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer
from recollect.policies.scripted import ScriptedPolicy
from recollect.types import Context, Task
from tests.support.bytes_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()


@dataclass
class Played:
    """One episode: its contexts, memory and answers, and the prompts by role as texts."""

    contexts: list[Context]
    memory: Any
    answers: list[str]
    prompts: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for context in self.contexts:
            for turn in context.turns:
                text = TOKENIZER.decode(context.ids[: turn.start])
                self.prompts.setdefault(context.role, []).append(text)


def play(
    agent: Agent,
    task: Task,
    answer: Callable[[str], str] = lambda prompt: "",
    write: Callable[[str], str] = lambda prompt: "",
    window: int = 1 << 30,
) -> Played:
    """Let `write` speak in the role memory and `answer` in the role answer."""
    models = {
        role: Model(ScriptedPolicy(TOKENIZER, script), Renderer(TOKENIZER), window=window)
        for role, script in (("memory", write), ("answer", answer))
    }
    chats, memory = Chats(models, (0,)), agent.new_memory(task)
    answers = asyncio.run(agent.run(task, chats, memory))
    return Played(chats.contexts, memory, answers)

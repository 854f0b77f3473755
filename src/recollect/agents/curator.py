"""Curator: search and edit a database of memories so that a question is answered better from it.

One chat with tools in role `memory` (MemoryUpdate's loop). The agent sees the question but must
not answer it: a reader will, from what retrieval then finds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from recollect.agents.estimates import Lengths, Work, chat_lengths, said_in_chat
from recollect.agents.resources import Resources, Stores
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.chat.rendering import Message, Tokenizer, system, user
from recollect.chat.tool_loop import converse
from recollect.chat.tools import Limits, Tool, ToolBox
from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.memory.selection import READ_PROMPT, Retrieval, reader_text
from recollect.memory.store import Store
from recollect.memory.tools import MemoryTools
from recollect.tasks.base import RememberedFamily
from recollect.types import Task

_FIELD = re.compile(r"\{(card|operations|question)\}")


@dataclass(frozen=True)
class CuratorPrompts:
    """The prompts of the agent; `user` has the fields {card}, {operations} and {question}."""

    system: str = (
        "You look after a database of memories about people. You search it, think about what you"
        " find, and edit it so that questions can be answered from it."
    )
    user: str = (
        "{card}\n\n"
        "Later somebody will be asked this question:\n{question}\n\n"
        "They will see only the few memories that a search for the question finds, not the"
        " database and not this chat. Make those memories hold what the answer needs. Do not"
        " answer the question yourself.\n"
        "- You may: {operations}.\n"
        "- Search first. What matters may be spread over several sessions.\n"
        "- Write short, complete facts: who, what, and when as a date rather than 'yesterday'.\n"
        "- Give the evidence ids of the memories a fact rests on, and invent nothing.\n"
        "- Write no more than helps: a database that grows for nothing is worse.\n"
        "When nothing is left to do, say DONE."
    )
    answer: str = READ_PROMPT

    def __post_init__(self) -> None:
        if "{question}" not in self.user:
            raise UserError(
                "the curator's prompt does not show {question}",
                "set --agent.prompts.user to a text with it",
            )


@dataclass(frozen=True)
class CuratorAgent:
    """Edit a trial of the task's memories with tools, until nothing is left to do."""

    tools: MemoryTools = MemoryTools()
    limits: Limits = Limits()
    prompts: CuratorPrompts = CuratorPrompts()
    more_tools: tuple[Tool, ...] = ()
    """Tools of yours beside its own, in every chat; --tools sets them."""
    answer: bool = False
    """Also answer from what retrieval finds afterwards, in role `answer`; trained if that is."""
    retrieval: Retrieval = Retrieval()
    """Retrieval for those answers."""
    max_answer_tokens: int = 64
    stores: Stores | None = None
    """Where the memories of a task's `namespace` are; `bind` fills it in."""

    def __post_init__(self) -> None:
        check_bounds("agent", self, max_answer_tokens=FROM_1)

    def check(self, resources: Resources) -> None:
        """Refuse tasks without memories, step rewards, and searches without vectors."""
        if not isinstance(resources.tasks, RememberedFamily):
            name = getattr(resources.tasks, "name", resources.tasks)
            raise UserError(
                f"there are no memories to edit in tasks of {name}",
                "start from the preset curator or locomo",
            )
        modes = {"agent.tools": self.tools.mode}
        if self.answer:
            modes["agent.retrieval"] = self.retrieval.mode
        resources.require_vectors(modes)

    def bind(self, resources: Resources) -> CuratorAgent:
        """Open the memories that the tasks are about."""
        if resources.open_stores is None:
            return self
        return replace(self, stores=resources.open_stores())

    def lengths(self, window: int | None) -> Lengths:
        """Bound the chats by their limits."""
        return chat_lengths(self.limits, window)

    def work(self, task: Task, tokenizer: Tokenizer, window: int) -> Work:
        """Add up one episode; what a chat reads depends on what is found."""
        questions = len(task.questions) * self.answer
        most, said = said_in_chat(self.limits, window)
        read = most + questions * self.retrieval.max_tokens
        return Work(1 + questions, read, 0, said + questions * self.max_answer_tokens)

    def check_window(self, window: int) -> None:
        """Refuse limits that cannot fit a model's window."""
        limits = self.limits
        if (most := limits.max_context_tokens) is not None and most > window:
            raise UserError(
                f"chats of {most} tokens do not fit the model's window of {window}",
                f"set --agent.limits.max-context-tokens to at most {window}",
            )
        if limits.max_turn_tokens + limits.min_reply_tokens >= (most or window):
            raise UserError(
                f"turns of {limits.max_turn_tokens} tokens leave no room in {most or window}",
                f"set --agent.limits.max-turn-tokens to at most {(most or window) // 4}",
            )

    def new_memory(self, task: Task) -> Store:
        """Open a trial of the task's base."""
        if self.stores is None:
            raise UserError("the curator has no memories", "give the agent its stores")
        if "namespace" not in task.meta:
            raise UserError(
                f"task {task.id!r} names no memories",
                "use tasks made by `recollect data locomo`, or put a namespace into their meta",
            )
        return self.stores.open(task.meta["namespace"])

    async def run(self, task: Task, chats: Chats, memory: Store) -> list[str]:
        """Edit the memory; return the answers if asked for, or empty ones."""
        tools = self.tools.bind(memory, lambda: f"turn {len(chat.context.turns)}")
        toolbox = ToolBox((*tools, *self.more_tools), self.limits)
        chat = chats.open("memory", label="curate", tools=toolbox.schemas)
        await converse(chat, self.opening(task, memory.corpus), toolbox)
        if not self.answer:
            return [""] * len(task.questions)
        every = range(len(task.questions))
        return await concurrently(self._answer(task, i, chats, memory) for i in every)

    def opening(self, task: Task, corpus: Corpus) -> list[Message]:
        """Write the card, the rules and the questions."""
        fields = {
            "card": card(corpus),
            "operations": ", ".join(("search", *self.tools.operations)),
            "question": "\n".join(question.text for question in task.questions),
        }
        asked = user(_FIELD.sub(lambda match: fields[match[1]], self.prompts.user))
        return [system(self.prompts.system), asked] if self.prompts.system else [asked]

    async def _answer(self, task: Task, index: int, chats: Chats, memory: Store) -> str:
        question = task.questions[index]
        found = await self.retrieval.find(memory, question.text)
        name = f"question {index + 1}"
        chat = chats.open("answer", label=name, stratum=name, question=index)
        prompt = user(f"{self.prompts.answer}\n\n{reader_text(question, found)}")
        reply = await chat.say(prompt, max_tokens=self.max_answer_tokens)
        return reply.text.rpartition("</think>")[2].strip()


def card(corpus: Corpus) -> str:
    """Describe a base in a few words: how much it holds, of which sources, sessions and people."""
    found = corpus.spelt
    sources = ", ".join(f"{count} of source {name}" for name, count in found["source"].items())
    people = [name for name, _ in sorted(found["speaker"].items(), key=lambda pair: -pair[1])]
    return (
        f"The database holds {len(corpus)} memories"
        + (f" ({sources})" if sources else "")
        + (f" of {len(found['session'])} sessions" if found["session"] else "")
        + (f" about {' and '.join(people[:2])}" if people else "")
        + ". Each has an id, a speaker, its evidence, a session, a time and a source."
    )

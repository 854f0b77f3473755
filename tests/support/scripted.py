"""A model that copies facts, agents and tasks for it: what evaluations are tested with."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.memory.text import TextMemory
from recollect.policies.scripted import ScriptedPolicy
from recollect.tasks.base import Split
from recollect.types import Question, Sampling, Task
from tests.support.bytes_tokenizer import ByteTokenizer

FACT = re.compile(r"the code of (\w+) is (\w+)", re.IGNORECASE)


@dataclass(frozen=True)
class Codes:
    """Codes told over some chunks; one question about one of them, easy to read."""

    name: ClassVar[str] = "codes"
    metric: ClassVar[str] = "answer_match"
    chunks: int = 4
    limit: int | None = None

    def size(self, split: Split) -> int | None:
        return self.limit

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        asked = (index + seed) % self.chunks
        words = [f"c{seed}x{index}x{i}" for i in range(self.chunks)]
        chunks = tuple(f"The code of box{i} is {word}." for i, word in enumerate(words))
        question = Question(
            f"What is the code of box{asked}?", (words[asked],), f"kind{index % 2}", (asked,)
        )
        return Task(f"codes-{split}-{seed}-{index}", chunks, (question,), self.name)

    def longer(self, times: int) -> Codes:
        return Codes(self.chunks * times, self.limit)


@dataclass(frozen=True)
class Reader:
    """Reads `read` chunks one by one, keeping all it was told, and answers from that."""

    read: int | None = None
    """Chunks it reads; None reads all."""

    def new_memory(self, task: Task) -> TextMemory:
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        for i, chunk in enumerate(task.chunks[: self.read]):
            reply = await chats.open("memory", label=f"chunk {i + 1}").say(user(f"NOTE {chunk}"))
            memory.replace(f"{memory.text}{reply.text} ")
        question = task.questions[0]
        chat = chats.open("answer", label="question 1", question=0)
        return [(await chat.say(user(f"{memory.text}\nASK {question.text}"))).text]


HALF = Reader(2)
"""Reads the first two chunks."""


def respond(prompt: str) -> str:
    """Note what is told; answer with the code asked for, if it was noted."""
    if "NOTE" in prompt:
        found = FACT.search(prompt)
        return found[0] if found else "nothing"
    asked = prompt.rpartition("ASK")[2]
    for box, code in FACT.findall(prompt.rpartition("ASK")[0]):
        if f"{box}?" in asked:
            return f"It is \\boxed{{{code}}}"
    return "I do not know."


@dataclass
class Counting:
    """Counts what the model was asked."""

    asked: Counter[str] = field(default_factory=Counter)

    def __call__(self, prompt: str) -> str:
        self.asked[prompt] += 1
        return respond(prompt)


def scripted_models(script=respond) -> dict[str, Model]:
    """Put a scripted model into both roles."""
    tokenizer = ByteTokenizer()
    model = Model(
        ScriptedPolicy(tokenizer, script), Renderer(tokenizer), False, Sampling(temperature=0.7)
    )
    return {"memory": model, "answer": model}

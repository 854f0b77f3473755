"""A user's own file: an agent, a reward, tasks and a metric, as tests name them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MINE = '''\
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from recollect import AgentError, Limits, Score, TextMemory, Tool, ToolBox, converse, tool, user
from recollect.types import Question, Task


async def two_pass(task, chats, memory):
    for chunk in task.chunks:
        memory.text = (await chats.open("memory").say(f"{task.questions[0].text}\\n{chunk}\\nMemory: {memory.text}", max_tokens=64)).text
    return [(await chats.open("answer").say(f"{q.text}\\nMemory: {memory.text}\\nAnswer:", max_tokens=32)).text for q in task.questions]


@dataclass(frozen=True)
class Reader:
    max_note_tokens: int = 4
    """Tokens of a note."""

    async def run(self, task, chats, memory):
        for chunk in task.chunks:
            reply = await chats.open("memory").say(chunk, max_tokens=self.max_note_tokens)
            memory.text = reply.text
        chats_ = [chats.open() for _ in task.questions]
        return [(await c.say(memory.text, max_tokens=3)).text for c in chats_]


@tool
def shout(word: str) -> str:
    """Write a word in capitals."""
    return word.upper()


def whisper(word: str) -> str:
    """Write a word in small letters."""
    return word.lower()


class Notebook(TextMemory):
    """A text that knows how often it was written."""

    def snapshot(self):
        return {"text": self.text, "edits": len(self.ops)}

    def fork(self):
        return Notebook(self.text, self.token_ids, list(self.ops))


@dataclass(frozen=True)
class Seeker:
    """Reads with a tool at hand, and keeps what it said last."""

    limits: Limits = Limits(max_assistant_turns=2, max_turn_tokens=8, min_reply_tokens=4)
    tools: tuple[Tool, ...] = (shout,)
    memory: Callable[..., Any] = TextMemory

    async def run(self, task, chats, memory):
        box = ToolBox(self.tools, self.limits)
        for chunk in task.chunks:
            chat = chats.open("memory", tools=box.schemas)
            memory.text = (await converse(chat, [user(chunk)], box)).text
        prompts = [f"{q.text}\\n{memory.text}" for q in task.questions]
        return [(await chats.open().say(p, max_tokens=3)).text for p in prompts]


@dataclass(frozen=True)
class Thrifty:
    """Pays for right answers, less for long memories."""

    price: float = 0.01

    async def __call__(self, episode, memory):
        right = float(any(a in episode.answers[0] for a in episode.task.questions[0].answers))
        edits = memory.snapshot().get("edits", 0)
        parts = {"answer": right, "edits": float(edits)}
        return Score(right - self.price * len(memory.text), parts)


def short(episode, memory):
    return -len(memory.text) / 100


async def long(episode, memory):
    return len(memory.text) / 100


def close_enough(prediction, answers):
    return max(float(answer in prediction) for answer in answers)


@dataclass(frozen=True)
class Chess:
    name = "chess"
    metric = "sub_exact_match"
    moves: int = 3

    def size(self, split):
        return None

    def longer(self, times):
        return Chess(self.moves * times)

    def task(self, index, seed=0, split="train"):
        chunks = [f"Move {i}: e{(index + i) % 8 + 1}." for i in range(self.moves)]
        question = Question("Which was the first move?", (f"e{index % 8 + 1}",))
        return Task(f"chess-{split}-{index}", chunks, (question,), "chess")


def listed(split):
    return [Chess().task(i, 0, split) for i in range(20)]
'''  # noqa: E501
"""`two_pass` is the agent of the README, word for word."""


@contextmanager
def own_folder(folder: Path, monkeypatch, **files: str) -> Iterator[Path]:
    """Work in a folder with mine.py and other files in it, and forget what was imported there."""
    for name, text in {"mine": MINE, **files}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    before, path = set(sys.modules), list(sys.path)
    try:
        yield folder
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[name]
        sys.path[:] = path

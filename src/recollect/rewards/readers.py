"""Readers: how well a question is answered from the memories that retrieval found.

Every reader returns a number in [0, 1]. One that fails raises: a failure is never a 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from recollect import metrics
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import user
from recollect.errors import boundary
from recollect.memory.entries import Entry
from recollect.memory.selection import READ_PROMPT, Passage, reader_text
from recollect.seeds import Key
from recollect.tasks.conversations.locomo import CATEGORIES
from recollect.types import Question, Task

Answerer = Callable[[str, str], Awaitable[str]]
"""Follow a prompt on a text: a chat over a policy, or a model behind an endpoint."""
Scorer = Callable[[Question, str], Awaitable[float]]
"""Score an answer to a question in [0, 1]: a metric, or a judge."""


class Reader(Protocol):
    """Tell how well a task's question is answered from what was found for it."""

    async def __call__(self, task: Task, index: int, found: Sequence[Passage]) -> float: ...


@dataclass(frozen=True)
class EvidenceReader:
    """No model reads: does retrieval bring the answer and its evidence? Deterministic and free.

    With the found memories m, the words t of the answer, and the turns G that are its evidence:

        w(m)  share of the turns m cites that are in G
        A     mean over t of the highest w(m) among the memories that hold t
        V     mean over G of the highest w(m) b(m) among the memories that cite the turn
        b(m)  1 for a memory of the base; for a written one A if it holds a word of the answer, or 0

    perf = (A + V) / 2: half for having the evidence in view, half for the words of the answer.
    Citing without saying anything, or citing everything, does not pay. The best accepted answer
    counts. A question that names no evidence is judged by A alone, and every memory may hold it.
    """

    async def __call__(self, task: Task, index: int, found: Sequence[Passage]) -> float:
        """Score what was found; the evidence is in the task's meta, as `dia_ids`."""
        evidence = frozenset(task.meta.get("dia_ids", ()))
        answers = [frozenset(metrics.normalise(a).split()) for a in task.questions[index].answers]
        if not any(answers):
            raise ValueError(f"question {index + 1} of {task.id} has no answer to look for")
        read = [_Read.of(passage, evidence) for passage in found]
        return max(_support(words, evidence, read) for words in answers if words)


@dataclass(frozen=True)
class _Read:
    """One found memory: its words, the turns it cites, and how many of these are evidence."""

    words: frozenset[str]
    cited: frozenset[str]
    weight: float
    written: bool

    @classmethod
    def of(cls, passage: Passage, evidence: frozenset[str]) -> _Read:
        words = frozenset(metrics.normalise(passage.text).split())
        cited = cited_turns(passage.entry)
        weight = len(cited & evidence) / len(cited) if cited and evidence else float(not evidence)
        return cls(words, cited, weight, is_written(passage.entry))


def _support(words: frozenset[str], evidence: frozenset[str], read: Sequence[_Read]) -> float:
    def best(weights: list[float]) -> float:
        return max(weights, default=0.0)

    answer = sum(best([m.weight for m in read if t in m.words]) for t in words) / len(words)
    if not evidence:
        return answer
    believed = [m.weight * (answer * bool(m.words & words) if m.written else 1.0) for m in read]
    pairs = list(zip(read, believed, strict=True))
    view = sum(best([b for m, b in pairs if g in m.cited]) for g in evidence) / len(evidence)
    return (answer + view) / 2


def cited_turns(entry: Entry) -> frozenset[str]:
    """Return the evidence ids in a memory's metadata."""
    value = entry.metadata.get("evidence", ())
    return frozenset((value,) if isinstance(value, str) else value)


def is_written(entry: Entry) -> bool:
    """Tell whether an agent wrote a memory, or changed it."""
    return entry.provenance.kind != "base"


@dataclass(frozen=True)
class TextReader:
    """Somebody answers from the memories, and the answer is scored."""

    answerer: Answerer
    scorer: Scorer
    prompt: str = READ_PROMPT

    async def __call__(self, task: Task, index: int, found: Sequence[Passage]) -> float:
        """Have the question answered and score the answer."""
        question = task.questions[index]
        with boundary("reader"):
            answer = await self.answerer(self.prompt, reader_text(question, found))
        with boundary("judge"):
            return await self.scorer(question, answer)


@dataclass(frozen=True)
class ChatAnswerer:
    """A policy as reader: a greedy chat in role `answer` that is in no episode and not trained."""

    model: Model
    max_tokens: int = 64
    key: Key = ("reader",)

    async def __call__(self, prompt: str, text: str) -> str:
        """Answer in one turn."""
        sampling = dataclasses.replace(self.model.sampling, temperature=0.0, top_p=1.0)
        model = dataclasses.replace(self.model, trainable=False, sampling=sampling)
        chat = Chats({"answer": model}, self.key).open("answer", label="reader")
        reply = await chat.say(user(f"{prompt}\n\n{text}"), max_tokens=self.max_tokens)
        return reply.text.rpartition("</think>")[2].strip()


@dataclass(frozen=True)
class MetricScorer:
    """Score by a metric; a question without an answer is answered right by saying so."""

    metric: metrics.Metric = metrics.token_f1

    async def __call__(self, question: Question, answer: str) -> float:
        """Score an answer against the accepted ones."""
        if question.category == CATEGORIES[5]:
            return float(metrics.abstains(answer))
        return metrics.score_question(self.metric, answer, question)

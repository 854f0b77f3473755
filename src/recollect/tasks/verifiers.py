"""Environments of the package verifiers: one as a family of tasks, and a family as one.

    recollect train demo --tasks verifiers:my_env --reward verifiers

An environment is named as verifiers names it, by its installed package; its tasks are scored by its
own rewards, as far as these need no sandbox. Needs the extra `verifiers` (0.4, `verifiers.v1`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Self

from recollect.bounds import FROM_1, check_bounds
from recollect.errors import UserError
from recollect.metrics import find_score
from recollect.packaging import install
from recollect.tasks.base import Split, TaskFamily
from recollect.tasks.splits import deal, pick
from recollect.types import Question, Task

TRAINED = 0.9
"""The share of tasks for training; the others are held out, chosen by their keys."""
_PARAGRAPH = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class VerifiersTasks:
    """The tasks of an environment: the prompt is the question, and a long text the chunks."""

    environment: str = ""
    """Its package, such as my_env."""
    context: str = ""
    """The field of its data that holds a text to be read in chunks, if one does."""
    answer: str = "answer"
    """The field that holds the accepted answer or answers, if one does."""
    chunk_size: int = 2000
    """Characters of a chunk, at most; it ends with a paragraph where it can."""
    most: int = 10_000
    """Tasks that are read; an environment may have no end."""

    metric: ClassVar[str] = "answer_match"

    def __post_init__(self) -> None:
        check_bounds("tasks", self, chunk_size=FROM_1, most=FROM_1)

    @property
    def name(self) -> str:
        """The environment's name."""
        return f"verifiers:{self.environment}"

    def size(self, split: Split) -> int:
        """Count the tasks of a split."""
        return len(self._splits[split])

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return one task; training goes round, held-out ones come once."""
        place = pick(self._splits[split], index, seed, split, self.name, "ask for fewer")
        data = self.tasks[place].data
        texts = [data.system_prompt or "", data.prompt_text]
        text = str(getattr(data, self.context, "") or "") if self.context else ""
        found = getattr(data, self.answer, None) if self.answer else None
        answers = [found] if isinstance(found, str | int | float) else list(found or ())
        question = Question("\n\n".join(filter(None, texts)), tuple(map(str, answers)))
        meta = {"verifiers": place, "item": self.tasks[place].key}
        id = f"{self.environment}-{data.id or place}"
        return Task(id, pieces(text, self.chunk_size), (question,), self.name, meta)

    def longer(self, times: int) -> Self:
        """Refuse: the tasks are as long as they are."""
        if times != 1:
            raise UserError(f"the tasks of {self.name} have one length", "set --val.lengths 1")
        return self

    @cached_property
    def tasks(self) -> list[Any]:
        """The environment's own tasks, in its order."""
        vf = package()
        if not self.environment:
            raise UserError("no verifiers environment is named", "write --tasks verifiers:NAME")
        try:
            kind = vf.taskset_config_type(self.environment)
            return list(islice(vf.load_taskset(kind(id=self.environment)), self.most))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            raise UserError(
                f"verifiers cannot load the environment {self.environment} ({error})",
                "install its package, and name it as `vf-eval` does",
            ) from error

    @cached_property
    def _splits(self) -> dict[Split, list[int]]:
        return deal([task.key for task in self.tasks], TRAINED)

    async def score(self, place: int, reply: str) -> Any:
        """Score a reply with the environment's own rewards; return its trace."""
        vf = package()
        task = self.tasks[place]
        trace = vf.Trace(
            task=vf.TraceTask(
                type=type(task).__name__, data=task.data, key=task.key, hash=task.hash
            ),
            agent=vf.AgentInfo(config=vf.AgentConfig(), name="recollect"),
            nodes=[
                vf.MessageNode(message=vf.UserMessage(content=task.data.prompt_text)),
                vf.MessageNode(message=vf.AssistantMessage(content=reply), parent=0, sampled=True),
            ],
            is_completed=True,
            ok=True,
        )
        await task.score(trace)
        return trace


def pieces(text: str, most: int) -> tuple[str, ...]:
    """Cut a text into pieces of limited length, between paragraphs where it can."""
    found: list[str] = []
    for paragraph in filter(str.strip, _PARAGRAPH.split(text)):
        parts = [paragraph[i : i + most] for i in range(0, len(paragraph), most)]
        if found and parts and len(found[-1]) + len(parts[0]) + 2 <= most:
            found[-1] += f"\n\n{parts.pop(0)}"
        found += parts
    return tuple(found)


def as_taskset(family: TaskFamily, split: Split = "train", n: int | None = None) -> type[Any]:
    """Return a family as a class of verifiers: export it from a package with `__all__`.

    The chunks and the question are the prompt; the reward is the family's metric of the last reply.
    A family that is made without end gives an infinite taskset.
    """
    vf = package()
    score = find_score(family.metric)
    size = family.size(split) if n is None else n

    class RecollectData(vf.TaskData):  # type: ignore[name-defined]
        chunks: tuple[str, ...] = ()
        question: str = ""
        answers: tuple[str, ...] = ()
        category: str = ""
        every: bool = False

    class RecollectTask(vf.Task[RecollectData]):  # type: ignore[name-defined]
        @vf.reward  # type: ignore[untyped-decorator]
        async def answered(self, trace: Any) -> float:
            """Score the last reply."""
            data = self.data
            question = Question(data.question, data.answers, data.category, every=data.every)
            return float(score(trace.last_reply, question))

    class RecollectTaskset(vf.Taskset[RecollectTask]):  # type: ignore[name-defined]
        INFINITE = size is None

        def load(self) -> Iterator[Any]:
            """Yield one task for every question."""
            index = 0
            while size is None or index < size:
                yield from (RecollectTask(RecollectData(**row)) for row in _rows(index))
                index += 1

    def _rows(index: int) -> Iterator[dict[str, Any]]:
        task = family.task(index, 0, split)
        for number, question in enumerate(task.questions):
            chunks = list(task.chunks)
            row = {"chunks": chunks, "question": question.text, "answers": list(question.answers)}
            scored = {"category": question.category, "every": question.every}
            prompt = "\n\n".join([*chunks, question.text])
            yield {
                **row,
                **scored,
                "id": f"{task.id}-{number + 1}",
                "name": family.name,
                "prompt": prompt,
            }

    return RecollectTaskset


def package() -> Any:
    """Import verifiers."""
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise UserError(
            "environments of verifiers need the package verifiers, version 0.4",
            install("verifiers"),
        ) from error
    return vf

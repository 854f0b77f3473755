"""LoCoMo for question answering: whole conversations, and all five categories of questions.

Sessions with their dates are the chunks. Category 5 becomes a choice of two, as the official code
asks it: the wrong answer that the question invites, and that the conversation does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.conversations.locomo import ADVERSARIAL, CATEGORIES, UNANSWERABLE, Conversation
from recollect.tasks.files.table import TaskTable
from recollect.tasks.splits import deal, pick
from recollect.types import Question, Task

FILE = "conversations.parquet"
TEMPORAL = 2
VARIANTS = ("conversations", "questions")

_BY_DATE = "Use the dates of the conversation to answer."
_FIX = (
    "download data/locomo10.json of github.com/snap-research/locomo (CC BY-NC 4.0) and type"
    " `recollect data locomo --input FILE --output data/locomo`"
)


@dataclass(frozen=True)
class LocomoQA:
    """Questions about whole conversations, which `recollect data locomo` wrote."""

    name: ClassVar[str] = "locomo"
    metric: ClassVar[str] = "answer_overlap"
    scorers: ClassVar[tuple[str, ...]] = ("locomo_f1",)

    variant: str = "conversations"
    """conversations: a task has all questions about one; questions: a task has one question."""
    categories: tuple[int, ...] = tuple(CATEGORIES)
    """1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial."""
    folder: Path = Path("data/locomo")
    train_fraction: float = 0.0
    """Share of the conversations for training; by default all of them are for evaluation."""

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise UserError(
                f"locomo has no variant {self.variant!r}", f"choose from {', '.join(VARIANTS)}"
            )
        if not self.categories or not set(self.categories) <= set(CATEGORIES):
            known = ", ".join(f"{id} ({name})" for id, name in CATEGORIES.items())
            raise UserError(f"categories are {self.categories}", f"choose from {known}")

    def size(self, split: Split) -> int:
        """Count the conversations of a split, or their questions."""
        return len(self._items[split])

    def longer(self, times: int) -> LocomoQA:
        """Refuse: the conversations are as long as they are."""
        if times != 1:
            raise UserError("LoCoMo has one length", "leave the length out")
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return the index-th task; held-out ones come in one order and only once."""
        fix = "ask for fewer tasks, or set train_fraction"
        place, asked = pick(self._items[split], index, seed, split, self.name, fix)
        return self._asking(self._tasks[place], asked, seed)

    def _asking(self, task: Task, asked: Sequence[int], seed: int) -> Task:
        about = [task.meta["questions"][i] for i in asked]
        pairs = [_posed(task.questions[i], task.meta["questions"][i], seed) for i in asked]
        id = task.id if self.variant == "conversations" else about[0]["id"]
        meta = {**task.meta, "cluster": task.id, "questions": [said for _, said in pairs]}
        return replace(task, id=id, questions=tuple(question for question, _ in pairs), meta=meta)

    @cached_property
    def _tasks(self) -> list[Task]:
        table = TaskTable(self.folder / FILE, _FIX)
        return [table.task(i) for i in range(len(table.ids))]

    @cached_property
    def _items(self) -> dict[Split, list[tuple[int, list[int]]]]:
        """The place of every task's conversation, and of its questions in it."""
        wanted = {CATEGORIES[id] for id in self.categories}
        dealt = deal([task.id for task in self._tasks], self.train_fraction)
        items: dict[Split, list[tuple[int, list[int]]]] = {"train": [], "test": []}
        for split, places in dealt.items():
            for place in places:
                asked = self._tasks[place].questions
                chosen = [i for i, question in enumerate(asked) if question.category in wanted]
                whole = self.variant == "conversations"
                parts = [chosen] if whole and chosen else [[i] for i in chosen]
                items[split] += [(place, part) for part in parts]
        return items


def conversation_tasks(conversations: Sequence[Conversation]) -> Iterator[Task]:
    """Make a task of every conversation, with its questions as they are in the file."""
    for conversation in conversations:
        questions, about = [], []
        for asked in conversation.questions:
            category = CATEGORIES[asked.category]
            questions.append(Question(asked.text, asked.answers, category, asked.sessions))
            about.append(
                {
                    "id": f"{conversation.id}-qa{asked.index}",
                    "category_id": asked.category,
                    "evidence_turns": list(asked.evidence),
                    "adversarial_answer": asked.adversarial_answer,
                }
            )
        meta = {
            "speakers": list(conversation.speakers),
            "sessions": [session.name for session in conversation.sessions],
            "dates": [session.time for session in conversation.sessions],
            "questions": about,
        }
        chunks = tuple(session.text for session in conversation.sessions)
        yield Task(conversation.id, chunks, tuple(questions), LocomoQA.name, meta)


def _posed(question: Question, about: dict[str, Any], seed: int) -> tuple[Question, dict[str, Any]]:
    """Word a question as its category asks."""
    if about["category_id"] == TEMPORAL:
        return replace(question, text=f"{question.text} {_BY_DATE}"), about
    if about["category_id"] != ADVERSARIAL or not about["adversarial_answer"]:
        return question, about
    options = [UNANSWERABLE[0], about["adversarial_answer"]]
    Random(derive("locomo", "choice", seed, about["id"])).shuffle(options)
    right = "ab"[options.index(UNANSWERABLE[0])]
    text = f"{question.text} Choose the right answer: (a) {options[0]} (b) {options[1]}"
    # A bare letter is an answer too; the words of the wrong choice never are.
    posed = replace(question, text=text, answers=(*question.answers, f"({right})"))
    return posed, {**about, "options": options, "right": right}

"""Chronicle: the pages of a made-up town, in which what is true changes until the end.

Four kinds of question about one kind of text. *overwrite*: where somebody lives at the end, after
moves, refused offers, undone moves and trades. *count*: on how many days somebody received or sent
a letter. *two-hop*: where the keeper of a thing lives; the keeper's name is not in the question.
*blind*: four of the first kind, asked only after the reading. Knows nothing of agents or models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any, ClassVar, Literal

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.made.chronicle_plan import LEAST, Plan
from recollect.tasks.made.chronicle_text import Story, draw_story
from recollect.tasks.made.chronicle_words import QUESTIONS
from recollect.types import Question, Task

Kind = Literal["overwrite", "count", "two-hop", "blind"]
KINDS: tuple[Kind, ...] = ("overwrite", "count", "two-hop", "blind")
BLIND_QUESTIONS = 4


@dataclass(frozen=True)
class Chronicle:
    """A family of chronicles: one length, and one or several kinds of question."""

    name: ClassVar[str] = "chronicle"
    metric: ClassVar[str] = "answer_match"

    kinds: tuple[Kind, ...] = KINDS
    """A task is of one of these; all of them come equally often."""
    tokens: int = LEAST
    """Length of the text, estimated."""
    chunk_tokens: int = 256
    """Length of a page, which is a chunk."""
    shuffled: bool = False
    """Read the pages in another order: a control. Where the order counts, answers no longer follow
    from the text."""

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise UserError(
                f"there is no kind of chronicle {unknown[0]!r}"
                if unknown
                else "a chronicle needs at least one kind of question",
                f"choose from {', '.join(KINDS)}",
            )
        if self.tokens < LEAST or not 64 <= self.chunk_tokens <= self.tokens // 2:
            raise UserError(
                f"a chronicle of {self.tokens} tokens in pages of {self.chunk_tokens} is too short",
                f"set tokens to {LEAST} or more, chunk_tokens to 64 up to half of that",
            )

    def size(self, split: Split) -> int | None:
        """Say that there is no end."""
        return None

    def longer(self, times: int) -> Chronicle:
        """Return the same kinds at `times` the length."""
        return replace(self, tokens=self.tokens * times)

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; it depends on nothing but the settings and these three.

        The text is the same for every kind of question.
        """
        plan = Plan.of(self.tokens, self.chunk_tokens)
        story = _story(plan, split, seed, index)
        lap, place = divmod(index, len(self.kinds))
        kind = Random(derive("chronicle", "kinds", seed, split, lap)).sample(
            self.kinds, len(self.kinds)
        )[place]
        rng = Random(derive("chronicle", "question", kind, seed, split, index))
        questions = self._questions(kind, story, plan, rng)
        name = f"chronicle-{kind}-{split}-{seed}-{index}-of-{self.tokens}-tokens"
        meta: dict[str, Any] = {"towns": list(story.pages.names.towns), "most": plan.most}
        meta |= {"questions_known": False} if kind == "blind" else {}
        task = Task(name, story.pages, questions, self.name, meta)
        return _shuffled(task, seed, index) if self.shuffled else task

    def guesses(self, task: Task, question: Question | None = None) -> list[str]:
        """Return what a question of its kind can be answered with, or any question."""
        counts = [str(n) for n in range(task.meta["most"] + 1)]
        if question is None:
            kinds = {q.category for q in task.questions}
            return counts if kinds == {"count"} else list(task.meta["towns"])
        return counts if question.category == "count" else list(task.meta["towns"])

    def _questions(self, kind: Kind, story: Story, plan: Plan, rng: Random) -> tuple[Question, ...]:
        if kind == "count":
            return (self._counted(story, rng.randrange(plan.people), rng.random() < 0.5),)
        if kind == "two-hop":
            return (self._kept(story, rng.randrange(plan.things)),)
        asked = rng.sample(range(plan.people), 1 if kind == "overwrite" else BLIND_QUESTIONS)
        return tuple(self._placed(kind, story, person) for person in asked)

    def _placed(self, kind: Kind, story: Story, person: int) -> Question:
        names = story.pages.names
        text = QUESTIONS["place"].format(a=names.people[person])
        evidence = self._chunks(story, *story.towns_rest_on[person])
        return Question(text, (names.towns[story.towns[person]],), kind, evidence)

    def _kept(self, story: Story, thing: int) -> Question:
        names, keeper = story.pages.names, story.keepers[thing]
        text = QUESTIONS["kept"].format(t=names.things[thing])
        slots = (story.keepers_rest_on[thing], *story.towns_rest_on[keeper])
        answer = names.towns[story.towns[keeper]]
        return Question(text, (answer,), "two-hop", self._chunks(story, *slots))

    def _counted(self, story: Story, person: int, sent: bool) -> Question:
        days = story.letters(person, sent)
        name = story.pages.names.people[person]
        text = QUESTIONS["sent" if sent else "received"].format(a=name)
        slots = [slot for told in days.values() for slot in told]
        return Question(text, (str(len(days)),), "count", self._chunks(story, *slots))

    def _chunks(self, story: Story, *slots: int) -> tuple[int, ...]:
        return tuple(sorted({slot // story.pages.each for slot in slots}))


@lru_cache(maxsize=4)
def _story(plan: Plan, split: Split, seed: int, index: int) -> Story:
    """Draw a text once for the kinds that ask about it one after the other."""
    return draw_story(plan, split, seed, split, index)


def _shuffled(task: Task, seed: int, index: int) -> Task:
    """Put the chunks into another order; the evidence moves with them."""
    order = list(range(len(task.chunks)))
    Random(derive("chronicle", "shuffled", seed, index)).shuffle(order)
    at = {old: new for new, old in enumerate(order)}
    questions = tuple(
        replace(q, evidence=tuple(sorted(at[i] for i in q.evidence))) for q in task.questions
    )
    chunks = [task.chunks[i] for i in order]
    return replace(task, id=f"{task.id}-shuffled", chunks=chunks, questions=questions)

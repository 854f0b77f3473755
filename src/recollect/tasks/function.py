"""Tasks of your own: a class of the protocol `TaskFamily`, an instance, or a function of tasks."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, Self

from recollect.errors import UserError, called_by, place_of, place_of_function
from recollect.files import plain
from recollect.metrics import Metric
from recollect.tasks.base import Split, TaskFamily, at_most, said_copies, text_of
from recollect.tasks.lengths import bytes_per_token
from recollect.tasks.splits import deal, pick
from recollect.types import Task

HELD_OUT = 0.1
"""The share of tasks that is held out if the function takes no split."""
QUICK = 2.0
"""Seconds in which a function has to return its tasks to be called once more and compared."""
SPLITS: tuple[Split, Split] = ("train", "test")
MEMBERS = ("name", "metric", "size", "task", "longer")
HOW = (
    "write `def name(split)` that returns a list of Task for split 'train' or 'test', or a frozen"
    " dataclass with name, metric, size, task and longer"
)


@dataclass(frozen=True)
class FunctionTasks:
    """A function that returns tasks as a family of them.

    One that takes no split has a tenth of its tasks held out, chosen by their ids.
    """

    function: Callable[..., Iterable[Task]]
    metric: Metric | str = "answer_match"
    """How answers are scored first: the name of a metric, or a function."""

    def __repr__(self) -> str:
        own = called_by(self.function)
        return f"FunctionTasks({own.__module__}:{own.__qualname__})"

    @property
    def name(self) -> str:
        """The function's name."""
        return str(called_by(self.function).__name__)

    def size(self, split: Split) -> int:
        """Count the tasks of a split."""
        return len(self._tasks[split])

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return one task; training goes round, held-out ones come once."""
        found = self._tasks[split]
        fix = at_most(len(found)) if found else f"let {self.name} return some"
        return pick(found, index, seed, split, self.name, fix)

    def longer(self, times: int) -> Self:
        """Refuse: the tasks are as long as they are."""
        if times != 1:
            raise UserError(f"the tasks of {self.name} have one length", "leave the length out")
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """Whether held-out tasks are copies of others."""
        again = said_copies(map(text_of, self._tasks["test"]))
        return (f"{place_of_function(self.function)}: {again}",) if again else ()

    @cached_property
    def _tasks(self) -> dict[Split, list[Task]]:
        started = time.perf_counter()
        found = self._dealt()
        # Kept, the list is the same whenever asked: only another call shows that it is drawn.
        if time.perf_counter() - started < QUICK and not _are_same(found, self._dealt()):
            raise UserError(
                f"{place_of_function(self.function)}: {self.name} returns other tasks each time",
                "draw from a random.Random(0) made in the function; sort what you take out of a"
                " folder or a set",
            )
        return found

    def _dealt(self) -> dict[Split, list[Task]]:
        if (given := _by_split(self.function)) is not None:
            return {split: self._checked(given(split)) for split in SPLITS}
        every = self._checked(self.function())
        dealt = deal([task.id for task in every], 1 - HELD_OUT)
        return {split: [every[place] for place in dealt[split]] for split in SPLITS}

    def _checked(self, found: Any) -> list[Task]:
        tasks = list(found) if isinstance(found, Iterable) else [found]
        for task in tasks:
            if not isinstance(task, Task):
                place = place_of_function(self.function)
                raise UserError(
                    f"{place}: {self.name} returned {task!r:.80}, which is not a Task", HOW
                )
            check_task(task, self.function)
        if twice := [id for id, n in Counter(task.id for task in tasks).items() if n > 1]:
            what = f"{place_of_function(self.function)}: {self.name} returned tasks of one id"
            raise UserError(f"{what}: {twice[0]!r:.80}", "give every task an id of its own")
        return tasks


def _by_split(function: Callable[..., Any]) -> Callable[[Split], Any] | None:
    """Return what makes the tasks of a split, whether it is taken by place or only by its name."""
    taken = inspect.signature(function).parameters.values()
    if any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in taken):
        return function
    named = [p.name for p in taken if p.kind is p.KEYWORD_ONLY]
    required = [p.name for p in taken if p.name in named and p.default is p.empty]
    name = "split" if "split" in named else next(iter(required), "")
    return (lambda split: function(**{name: split})) if name else None


def as_family(item: Any) -> TaskFamily:
    """Make a family of a function, a class or an instance; refuse anything else."""
    name = str(getattr(item, "__qualname__", None) or f"{item!r:.80}")
    if inspect.isroutine(item) or isinstance(item, functools.partial):
        required = [p for p in inspect.signature(item).parameters.values() if p.default is p.empty]
        if len(required) > 1:
            raise UserError(f"{name} takes {len(required)} arguments, not one split", HOW)
        return FunctionTasks(item)
    found = _made(item) if inspect.isclass(item) else item
    if missing := [member for member in MEMBERS if not hasattr(found, member)]:
        raise UserError(f"{name} is not a task family: it has no {', '.join(missing)}", HOW)
    if not isinstance(found, TaskFamily):
        raise UserError(f"{name} is not a task family", HOW)
    return found


def _made(kind: type) -> Any:
    try:
        return kind()
    except TypeError as error:
        raise UserError(
            f"{kind.__name__} cannot be made without settings ({error})",
            "give every field of the tasks a default: on the command line its fields are flags",
        ) from None


def first_task(family: TaskFamily, seed: int, split: Split, index: int = 0) -> Task:
    """Make one of a family's first tasks; refuse one that a user's own code fails to make."""
    found = _made_task(family, seed, split, index)
    if _is_own(family) and not index:
        where = place_of_function(family.task)
        if not _is_same(found, _made_task(family, seed, split, index)):
            raise UserError(
                f"{where}: {type(family).__name__}.task(0, {seed}, {split!r}) is another task each"
                " time",
                "draw from random.Random(f'{seed} {split} {index}'), which is always the same",
            )
        second = found if family.size(split) == 1 else _made_task(family, seed, split, 1)
        if second.id == found.id and not _is_same(found, second):
            what = f"{where}: tasks 0 and 1 have one id: {found.id!r:.80}"
            raise UserError(what, "give every task an id of its own")
    return found


def _is_own(family: TaskFamily) -> bool:
    """Tell whether a family's class is a user's; what a function returns was checked as a list."""
    return type(family).__module__.partition(".")[0] != "recollect"


def _is_same(one: Task, other: Task) -> bool:
    """Tell whether two tasks are one; lazy texts are not compared."""
    same = (one.id, one.questions) == (other.id, other.questions)
    return same and text_of(one) == text_of(other)


def _are_same(one: Mapping[Split, list[Task]], other: Mapping[Split, list[Task]]) -> bool:
    """Tell whether a function's tasks are those of another call, in the same order."""
    return all(
        len(one[split]) == len(other[split]) and all(map(_is_same, one[split], other[split]))
        for split in SPLITS
    )


def _made_task(family: TaskFamily, seed: int, split: Split, index: int) -> Task:
    try:
        task: Any = family.task(index, seed, split)
    except UserError:
        raise
    except Exception as error:
        if not (place := place_of(error)):
            raise
        raise UserError(f"{place}: {type(error).__name__}: {error}", "correct that line") from error
    if not isinstance(task, Task):
        place = place_of_function(family.task)
        what = f"{place}: {type(family).__name__}.task returned {task!r:.80}, which is not a Task"
        raise UserError(what, "return a Task")
    found: Task = task
    check_task(found, family.task)
    return found


def in_both(family: TaskFamily, seed: int, few: int = 2) -> str:
    """Say that held-out tasks of a user's own are training tasks; a family is known by a few."""
    if isinstance(family, FunctionTasks):
        maker: Any = family.function
        found = family._tasks  # each call of `task` shuffles all of them
    elif _is_own(family):
        maker, sizes = family.task, [family.size(split) for split in SPLITS]
        least = min([few, *(size for size in sizes if size is not None)])
        found = {s: [_made_task(family, seed, s, i) for i in range(least)] for s in SPLITS}
    else:
        return ""
    train, test = ({text_of(task) for task in found[split]} - {None} for split in SPLITS)
    both = len(test & train)
    # A few may be alike by chance.
    if not both or (both < len(test) and not isinstance(family, FunctionTasks)):
        return ""
    return (
        f"{place_of_function(maker)}: {both} of {len(test)} different held-out tasks are training"
        " tasks, too: what is measured is no sign of what new ones get"
    )


def repeated(family: TaskFamily, seed: int, split: Split, most: int = 16) -> str:
    """Say that some of the first tasks of a user's own class are copies of others."""
    if not _is_own(family):
        return ""  # what a function or a file holds is in its notes
    size = family.size(split)
    count = most if size is None else min(most, size)
    texts = [text_of(_made_task(family, seed, split, i)) for i in range(count)]
    again = said_copies(texts, "first tasks")
    return f"{place_of_function(family.task)}: {again}" if again else ""


def check_task(task: Task, maker: Any) -> None:
    """Refuse a task that agents would read in different ways, or that could not be stored."""
    for what, fix in _oddities(task):
        raise UserError(f"{place_of_function(maker)}: task {task.id[:40]!r} has {what}", fix)
    bytes_per_token(task.meta, f"{place_of_function(maker)}: task {task.id[:40]!r}")


def _oddities(task: Task) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a task, each with how to correct it."""
    # Texts that are lazy may be far longer than memory.
    known = task.chunks if isinstance(task.chunks, list | tuple) else ()
    for chunk in known:
        if not isinstance(chunk, str):
            yield f"the chunk {chunk!r:.80}", "let every chunk be a text"
    count = len(task.chunks)
    for question in task.questions:
        evidence: Any = question.evidence
        if not isinstance(evidence, tuple | list):  # others cannot be stored
            fix = "write a tuple of numbers, such as (0, 2)"
            yield f"a question whose evidence is {evidence!r:.80}", fix
            continue
        for number in (*evidence, *([] if question.position is None else [question.position])):
            if not isinstance(number, Integral) or number not in range(count):
                what = f"a question whose evidence or position is {number!r:.80}"
                yield what, f"give numbers of its {count} chunks, counted from 0"
    try:
        json.dumps(task.meta, default=plain)
    except (TypeError, ValueError) as error:
        fix = "let it hold texts, numbers, lists and dicts whose keys are texts"
        yield f"a meta that cannot be stored: {error}", fix

"""Tasks of one's own: what would spoil a measurement is refused with its line."""

from __future__ import annotations

import datetime
from functools import partial
from random import Random

import pytest

from recollect.errors import UserError
from recollect.tasks.function import as_family, first_task, in_both
from recollect.types import Question, Task

WHO = Question("Who?", ("Ada",))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Question("Which sport?", ("chess")), r"answers is the text 'chess'"),
        (lambda: Question("How many?", (5,)), "the answer 5 is not a text"),
        (lambda: Task("a", "one text", (WHO,)), "chunks is the text 'one text'"),
        (lambda: Task(3, ["one"], (WHO,)), "the id 3 of a task"),
        (lambda: Task("a", ["one"], WHO), "questions is one Question"),
        (lambda: Task("a", ["one"], ({"text": "Who?"},)), "'text': .* is no Question"),
        (lambda: Task("a", ["one"], None), "questions is None: write a tuple of Question"),
        (lambda: Task("a", None, (WHO,)), "chunks is None: write a list of texts"),
        (lambda: Question("Who?", None), "answers is None: write a tuple of texts"),
        (lambda: Question("Who?", map(str, (5,))), "answers is <map .*: write a tuple of texts"),
    ],
)
def test_what_is_no_task_is_refused_with_its_line(make, says):
    with pytest.raises(TypeError, match=says):
        make()

    def tasks(split):
        return [make()]

    with pytest.raises(UserError, match=rf"test_own_tasks.py:\d+: TypeError: .*{says}"):
        first_task(as_family(tasks), 0, "train")


@pytest.mark.parametrize(
    ("chunks", "asked", "says"),
    [
        (["one", 2], {}, "the chunk 2"),
        (["one"], {"position": 1}, "evidence or position is 1"),
        (["one"], {"position": -1}, "evidence or position is -1"),
        (["one"], {"evidence": (0, 7)}, "evidence or position is 7"),
        (["one", "two"], {"evidence": 1.5}, "evidence or position is 1.5"),
        ([], {"position": 0}, "evidence or position is 0"),
    ],
)
def test_a_task_that_agents_read_in_different_ways_is_refused(chunks, asked, says):
    """Where a question is asked after no chunk there is, ours would not agree when that is."""

    def tasks(split):
        return [Task("{a}", chunks, (Question("Who?", ("Ada",), **asked),))]

    with pytest.raises(UserError, match=rf"test_own_tasks.py:\d+: task '{{a}}' has .*{says}"):
        first_task(as_family(tasks), 0, "train")


def test_tasks_of_one_id_are_refused():
    def tasks(split):
        return [Task(id, [id], (WHO,)) for id in ("a", "b", "b")]

    with pytest.raises(UserError, match=r"test_own_tasks.py:\d+: tasks returned .* one id: 'b'"):
        as_family(tasks).size("test")


@pytest.mark.parametrize("meta", [{"when": datetime.timedelta(1)}, {("a", "b"): 1}])
def test_a_meta_that_cannot_be_stored_is_refused(meta):
    def tasks(split):
        return [Task("a", ["one"], (WHO,), meta=meta)]

    with pytest.raises(UserError, match="the meta of task 'a' cannot be stored"):
        first_task(as_family(tasks), 0, "train")


def test_a_split_may_be_taken_by_place_or_by_its_name_alone():
    def named(*, split, n=3):
        return [Task(f"{split}-{i}", ["one"], (WHO,)) for i in range(n)]

    def placed(split, *, n=3):
        return named(split=split, n=n)

    def optional(*, n=3, split="train"):
        return named(split=split, n=n)

    def both(n, split):
        return named(split=split, n=n)

    for function in (named, placed, optional, partial(placed, n=3), partial(both, 3)):
        family = as_family(function)
        assert family.size("train") == 3 and family.task(0, 0, "test").id.startswith("test-")
    assert as_family(partial(both, n=3)).size("test") == 3
    whole = as_family(lambda *, n=9: named(split="all", n=n))
    assert whole.size("train") + whole.size("test") == 9


def test_a_family_that_makes_another_task_each_time_or_names_all_alike_is_refused():
    class Dice:
        name, metric = "dice", "exact_match"

        def size(self, split):
            return None

        def longer(self, times):
            return self

        def task(self, index, seed=0, split="train"):
            return Task(f"{split}-{index}", [f"{Random().random()}"], (WHO,))

    class Fair(Dice):
        def task(self, index, seed=0, split="train"):
            return Task(f"{split}-{index}", [f"{Random(seed).random()}"], (WHO,))

    class Alike(Fair):
        def task(self, index, seed=0, split="train"):
            return Task("a task", [f"{index}"], (WHO,))

    first_task(Fair(), 0, "train")
    with pytest.raises(UserError, match=r"test_own_tasks.py:\d+: tasks 0 and 1 have one id: 'a t"):
        first_task(Alike(), 0, "train")
    says = r"test_own_tasks.py:\d+: Dice.task\(0, 0, 'test'\) is another task each time"
    with pytest.raises(UserError, match=says):
        first_task(Dice(), 0, "test")


def test_a_family_that_forgets_its_longer_self_is_told():
    class Short:
        name, metric = "short", "exact_match"

        def size(self, split):
            return None

        def longer(self, times):
            Short()

        def task(self, index, seed=0, split="train"):
            return Task(f"{split}-{index}", ["one"], (WHO,))

    from recollect.tasks.multiples import stretched

    with pytest.raises(UserError, match=r"test_own_tasks.py:\d+: Short.longer returned None"):
        stretched(Short(), 2, "val.lengths")


class Numbered:
    """The texts of both splits are the same, or the first ones only."""

    name, metric = "numbered", "exact_match"

    def __init__(self, ignores_split, count=None):
        self.ignores_split, self.count = ignores_split, count

    def size(self, split):
        return self.count

    def longer(self, times):
        return self

    def task(self, index, seed=0, split="train"):
        text = f"{index % 2}" if self.ignores_split or not index else f"{split} {index}"
        return Task(f"{split}-{index}", [text], (WHO,))


def test_held_out_tasks_that_are_training_tasks_are_said():
    def every(split="train"):
        return [Task(f"{split}-{i}", [f"text {i % 4}"], (WHO,)) for i in range(8)]

    def some(split):
        return [Task(f"{i}", [f"text {i}"], (WHO,)) for i in range(3 if split == "train" else 5)]

    def fair(split):
        return [Task(f"{i}", [f"{split} {i}"], (WHO,)) for i in range(5)]

    said = "different held-out tasks are training tasks, too"
    assert f"4 of 4 {said}" in in_both(as_family(every), 0)
    assert f"3 of 5 {said}" in in_both(as_family(some), 0)
    assert f"2 of 2 {said}" in in_both(Numbered(True), 0)
    assert f"1 of 1 {said}" in in_both(Numbered(True, 1), 0)
    assert not in_both(as_family(fair), 0) and not in_both(Numbered(False), 0)
    assert not in_both(Numbered(True, 0), 0)

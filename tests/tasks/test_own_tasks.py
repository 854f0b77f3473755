"""Tasks of one's own: what would spoil a measurement is refused with its line."""

from __future__ import annotations

import datetime
from functools import partial
from random import Random

import numpy as np
import pytest

from recollect.errors import UserError
from recollect.evaluation.texts import measure
from recollect.metrics import find_score
from recollect.tasks.files.columns import Rows
from recollect.tasks.files.jsonl import Jsonl
from recollect.tasks.function import FunctionTasks, as_family, first_task, in_both
from recollect.tasks.verifiers import VerifiersTasks
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
        (["one", "two"], {"evidence": 1.5}, "a question whose evidence is 1.5"),
        (["one", "two"], {"evidence": (0.0,)}, "evidence or position is 0.0"),
        (["one", "two"], {"evidence": range(1)}, r"evidence is range\(0, 1\)\s+fix: write a tuple"),
        (["one", "two"], {"evidence": np.array([0, 1])}, r"evidence is array\(\[0, 1\]\)"),
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

    with pytest.raises(UserError, match="task 'a' has a meta that cannot be stored"):
        first_task(as_family(tasks), 0, "train")


@pytest.mark.parametrize("dense", [0, -2, "4", float("nan"), float("inf")])
def test_a_text_whose_tokens_have_no_bytes_is_refused(dense):
    def tasks(split):
        return [Task("a", ["one"], (WHO,), meta={"bytes_per_token": dense})]

    with pytest.raises(UserError, match=r"own_tasks.py:\d+: task 'a' has bytes_per_token"):
        first_task(as_family(tasks), 0, "train")
    with pytest.raises(UserError, match="task 'a' has bytes_per_token"):
        measure(tasks("test")[0])


def test_listing_candidates_does_not_win_what_leads_tasks_of_ones_own():
    families = [FunctionTasks(lambda: []), Jsonl(), Rows(), VerifiersTasks()]
    for family in families:
        score = find_score(family.metric)
        likes = Question("What does Ann like?", ("mango",))
        assert [score(said, likes) for said in ("mango", "mango kiwi")] == [1.0, 0.0]


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


class Endless:
    """A user's family; one of its own drawings, and how many tasks it made."""

    name, metric = "endless", "exact_match"

    def __init__(self, draw):
        self.draw, self.made = draw, 0

    def size(self, split):
        return None

    def longer(self, times):
        return self

    def task(self, index, seed=0, split="train"):
        self.made += 1
        return self.draw(index, split)


def test_a_function_that_returns_other_tasks_each_time_is_refused():
    draw = Random(1)

    def named(numbers):
        return [Task(f"t-{i}", [f"text {number}"], (WHO,)) for i, number in enumerate(numbers)]

    def drawn(split):
        return named(draw.sample(range(1000), 12))

    def shuffled():
        return draw.sample(named(range(12)), 12)

    def same(split):
        return named(Random(split).sample(range(1000), 12))

    for draws in (drawn, shuffled):
        says = rf"own_tasks.py:\d+: {draws.__name__} returns other tasks each time"
        with pytest.raises(UserError, match=says):
            first_task(as_family(draws), 0, "test")
    assert first_task(as_family(same), 0, "test")


def test_a_function_that_takes_long_is_called_once(monkeypatch):
    monkeypatch.setattr("recollect.tasks.function.QUICK", 0.0)
    asked = []

    def every():
        asked.append(0)
        return [Task(f"{i}", ["a text"], (WHO,)) for i in range(20)]

    assert first_task(as_family(every), 0, "test") and len(asked) == 1


def test_tasks_of_one_id_may_be_one_task():
    """A family draws with replacement, or repeats the one task that it has."""
    first_task(Endless(lambda index, split: Task("one", ["a text"], (WHO,))), 0, "train")
    asked = Question("Where?", ("Rome",))
    for differ in (
        lambda index, split: Task("one", [f"text {index}"], (WHO,)),
        lambda index, split: Task("one", ["a text"], (asked if index else WHO,)),
    ):
        with pytest.raises(UserError, match="tasks 0 and 1 have one id: 'one'"):
            first_task(Endless(differ), 0, "train")


class Unread:
    """A lazy text that nobody reads."""

    def __len__(self):
        return 10**9

    def __getitem__(self, index):
        raise AssertionError("a lazy text is read")


def test_lazy_texts_are_not_read_and_few_tasks_are_made():
    family = Endless(lambda index, split: Task(f"{split}-{index}", Unread(), (WHO,)))
    first_task(family, 0, "train")
    assert family.made == 3
    assert not in_both(family, 0) and family.made <= 7


def test_a_family_that_fails_further_on_is_refused_with_its_line():
    def fails(index, split):
        return Task(f"{split}-{index}", [{0: "a text"}[index]], (WHO,))

    def odd(index, split):
        return Task(f"{split}-{index}", [["a text"] if index else "a text"], (WHO,))

    with pytest.raises(UserError, match=r"test_own_tasks.py:\d+: KeyError: 1"):
        in_both(Endless(fails), 0)
    with pytest.raises(UserError, match=r"test_own_tasks.py:\d+: task 'train-1' has the chunk"):
        in_both(Endless(odd), 0)


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


def test_what_a_function_returned_is_not_asked_for_one_by_one():
    """Each call of `task` shuffles all of them: 4,000 took 5 s."""

    class Unasked(FunctionTasks):
        def task(self, index, seed=0, split="train"):
            raise AssertionError("asked for one by one")

    def every():
        return [Task(f"{i}", ["a text"], (WHO,)) for i in range(20)]

    assert "1 of 1 different held-out tasks are training tasks" in in_both(Unasked(every), 0)

"""Recall tasks: reproducible, answerable by reading, and with the answer anywhere."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from recollect.errors import UserError
from recollect.tasks.made.recall import ENGLISH, PLAIN, WORDINGS, Recall
from recollect.types import Question, Task

DEMO = Recall(
    chunks=3, keep="either", updates=0.7, mentions=2, distractors=2, filler=0, wording="plain"
)
CATEGORY_OF = {v: category for category, values in PLAIN.values.items() for v in values}


def mentions(task: Task, question: Question) -> list[tuple[int, str]]:
    """Read a plain story as a person would: every (chunk, value) of the question's subject."""
    asked = re.fullmatch(r"Which (\w+) did (\w+) choose (first|last)\?", question.text)
    assert asked
    category, person, _ = asked.groups()
    told = [
        (i, *sentence.rstrip(".").split(" chose "))
        for i, chunk in enumerate(task.chunks)
        for sentence in re.findall(r"\w+ chose \w+\.", chunk)
    ]
    return [
        (i, value) for i, who, value in told if who == person and CATEGORY_OF[value] == category
    ]


def facts_of(task: Task) -> list[tuple[str, str]]:
    """Read an English story as a person would: the person and the category of every fact."""
    frames = [f.replace("{value}", r"\w+").replace(".", r"\.") for f in ENGLISH.facts]
    found = []
    for frame in frames:
        named = frame.replace("{person}", r"(?P<p>[A-Z]\w+)").replace("{category}", r"(?P<c>\w+)")
        found += [(m["p"], m["c"]) for m in re.finditer(named, " ".join(task.chunks))]
    return found


@pytest.mark.parametrize("keep", ["first", "latest", "either"])
@pytest.mark.parametrize("chunks", [1, 3, 40])
def test_an_independent_reader_finds_every_answer(keep, chunks):
    family = replace(DEMO, keep=keep, chunks=chunks, questions=3)
    for task in family.tasks(50):
        assert len(task.chunks) == chunks
        for question in task.questions:
            first = question.text.endswith("first?")
            assert keep == "either" or (keep == "first") == first
            assert question.category == ("first" if first else "latest")
            found = mentions(task, question)
            i, value = found[0 if first else -1]
            assert question.answers == (value,)
            assert question.evidence == (i,)
            # All values are told equally often: the answer's number of mentions says nothing.
            counts = Counter(v for _, v in found)
            assert max(counts.values()) - min(counts.values()) <= 1


def test_facts_are_overwritten():
    family = replace(DEMO, keep="latest", chunks=6)
    counts = [len(mentions(task, task.questions[0])) for task in family.tasks(100)]
    assert min(counts) == 1 and max(counts) >= 5
    once = replace(family, updates=0.0, mentions=1)
    assert {len(mentions(task, task.questions[0])) for task in once.tasks(50)} == {1}


@pytest.mark.parametrize("keep", ["first", "latest"])
def test_evidence_is_spread_evenly_over_the_chunks(keep):
    tasks = replace(DEMO, keep=keep, chunks=5).tasks(2000)
    counts = Counter(task.questions[0].evidence[0] for task in tasks)
    assert all(320 < counts[i] < 480 for i in range(5)), counts


def test_distractors_share_the_person_or_the_category():
    same_person = same_category = 0
    for task in Recall(keep="latest").tasks(100):
        asked = re.search(r"favourite (\w+) that (\w+) named", task.questions[0].text)
        assert asked
        category, person = asked.groups()
        told = facts_of(task)
        same_person += any(p == person and c != category for p, c in told)
        same_category += any(p != person and c == category for p, c in told)
    assert same_person > 80 and same_category > 80


def test_a_task_depends_on_its_seed_split_and_index_only():
    assert DEMO.tasks(5, seed=3) == DEMO.tasks(5, seed=3)
    assert DEMO.tasks(5, seed=3, start=2)[:3] == DEMO.tasks(5, seed=3)[2:]
    assert DEMO.task(0, seed=3).chunks != DEMO.task(0, seed=4).chunks
    assert DEMO.task(0).chunks != DEMO.task(1).chunks


def test_splits_never_share_a_task_even_in_a_small_world():
    def texts(split, seed):
        small = Recall(chunks=1, distractors=0, filler=0, wording="plain")
        tasks = small.tasks(400, seed=seed, split=split)
        return {(*task.chunks, task.questions[0].text) for task in tasks}

    train, test = texts("train", 0), texts("test", 1)
    assert len(texts("train", 0) & texts("train", 1)) > 0  # small enough for repeats
    assert not train & test
    ids = {t.id for split in ("train", "test") for s in (0, 1) for t in DEMO.tasks(9, s, split)}
    assert len(ids) == 36


def test_english_tells_facts_filler_and_all_questions():
    task = Recall(chunks=4, questions=20, filler=3).task(0)
    assert len({question.text for question in task.questions}) == 20
    for question in task.questions:
        assert question.answers[0] in task.chunks[question.evidence[0]]
    assert all(any(f in chunk for f in ENGLISH.filler) for chunk in task.chunks)


@pytest.mark.parametrize("name", WORDINGS)
def test_a_value_belongs_to_one_category(name):
    words = WORDINGS[name]
    values = [v.lower() for values in words.values.values() for v in values]
    assert len(set(values)) == len(values)
    assert len(set(words.people)) == len(words.people)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"questions": 0}, "questions"),
        ({"chunks": 0}, "chunks"),
        ({"mentions": 0}, "mentions"),
        ({"updates": 1.5}, "updates"),
        ({"distractors": -1}, "distractors"),
        ({"questions": 192}, "at most 191"),
        ({"questions": 500, "distractors": 0}, "at most 192"),
        ({"mentions": 8}, "at most 7"),
        ({"wording": "plain"}, "filler"),
        ({"keep": "second"}, "latest, first, either"),
        ({"wording": "klingon"}, "english, plain"),
    ],
)
def test_impossible_settings_name_the_fix(settings, names):
    with pytest.raises(UserError) as caught:
        Recall(**settings)
    assert names in str(caught.value)

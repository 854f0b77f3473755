"""BABILong: facts in order and at their places, supporting facts as evidence, splits by story."""

from __future__ import annotations

import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.errors import UserError
from recollect.metrics.table import SCORES
from recollect.tasks.haystacks.babi import HINTS, STATED, TASKS, accepted, parse_babi, read_babi
from recollect.tasks.haystacks.babilong import BabiLong
from recollect.tasks.lengths import estimate_tokens
from recollect.tasks.named import open_family, parse_specs
from tests.support.made_up_tasks import write_babi, write_books
from tests.support.places import SHARED

needs_real = pytest.mark.skipif(not (SHARED / "babi").exists(), reason="needs the bAbI files")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "babilong"
    write_books(folder / "books")
    write_babi(folder / "babi")
    return folder


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "babilong"
    write_books(folder / "books")
    (folder / "babi").symlink_to(SHARED / "babi")
    return folder


def check(family: BabiLong, n: int) -> None:
    """Hold the tasks of a family to what an oracle, and one who knows nothing, can score."""
    score = SCORES[family.metric]
    for i in range(n):
        task = family.task(i, 0, "test")
        (question,) = task.questions
        text = " ".join(task.chunks)
        facts = task.meta["facts"]
        at, places = 0, []
        for fact in facts:  # in order, even where a fact is told twice
            at = text.index(fact, at) + 1
            places.append(at)
        assert places == sorted(places)
        evidence = " ".join(task.chunks[i] for i in question.evidence)
        told = [facts[fact] for fact in task.meta["supporting"]]
        assert told and all(fact in evidence for fact in told)
        assert 0.93 * family.tokens <= estimate_tokens(f"{text} {question.text}") <= family.tokens
        assert all(score(answer, question) == 1 for answer in question.answers)
        assert score(f"\\boxed{{{question.answers[0]}}}", question) == 1
        wrong = ["", "the", "I don't know", text, evidence, "yes no maybe one two nothing"]
        assert [score(answer, question) for answer in wrong] == [0] * len(wrong)
        if family.variant in STATED:
            assert any(question.answers[0].lower() in fact.lower() for fact in told)


def test_made_up_stories(folder):
    for variant in ("qa1", "qa2", "qa11"):
        check(BabiLong(variant, 2048, 128, folder=folder), 10)
    family = BabiLong("qa1", 2048, 128, folder=folder)
    assert SCORES[family.metric]("yes", family.task(0, 0, "test").questions[0]) == 0
    assert family.size("train") + family.size("test") == 80
    assert 20 <= family.size("test") <= 60


@needs_real
@pytest.mark.parametrize("variant", TASKS)
def test_all_twenty_tasks(variant, real):
    family = BabiLong(variant, 8192, folder=real)
    assert family.size("train") + family.size("test") == 1000
    check(family, 5)
    questions = [asked for split in ("train", "test") for asked in read(real, variant, split)]
    says_yes = sum("yes" in asked.answers for asked in questions) / 1000
    assert says_yes == 0 or (0.3 < says_yes < 0.6 and "yes" in HINTS[variant])


def read(folder: Path, variant: str, split: str):
    return read_babi(folder / "babi", variant, split)


@needs_real
@pytest.mark.parametrize("variant", ["qa1", "qa4", "qa16", "qa20"])
def test_no_question_is_in_both_splits(variant, real):
    def texts(split: str) -> set[tuple[str, ...]]:
        return {(*asked.facts, asked.text) for asked in read(real, variant, split)}

    assert len(texts("train")) > 200 and len(texts("test")) > 200
    assert not texts("train") & texts("test")


def test_tasks_are_the_same_every_time(folder):
    family = BabiLong("qa1", 1024, 128, folder=folder)
    task, again = family.task(2, 5, "test"), replace(family).task(2, 5, "test")
    assert (task.id, list(task.chunks), task.questions) == (
        again.id,
        list(again.chunks),
        again.questions,
    )
    other = family.task(2, 6, "test")
    assert other.questions[0].text == task.questions[0].text  # another text, the same question
    assert list(other.chunks) != list(task.chunks)
    longer = family.longer(4).task(2, 5, "test")
    assert longer.meta["facts"] == task.meta["facts"] and len(longer.chunks) > 3 * len(task.chunks)
    asked = [family.task(i, 0, "test").meta["item"] for i in range(family.size("test"))]
    assert len(set(asked)) == len(asked)
    with pytest.raises(UserError, match="test tasks"):
        family.task(family.size("test"), 0, "test")
    laps = [family.task(i, 0, "train").meta["item"] for i in range(2 * family.size("train"))]
    assert set(Counter(laps).values()) == {2}


def test_positions(folder):
    for position, low, high in (("first", 0, 0.15), ("middle", 0.4, 0.6), ("last", 0.85, 1)):
        task = BabiLong("qa1", 4096, 128, position=position, folder=folder).task(0, 0, "test")
        depths = [chunk / len(task.chunks) for chunk in task.meta["fact_chunks"]]
        assert low <= min(depths) and max(depths) <= high


def test_answers_in_other_words():
    assert accepted("kitchen", "qa1") == ("kitchen",)
    assert set(accepted("none", "qa7")) == {"none", "zero", "0"}
    assert set(accepted("two", "qa7")) == {"two", "2"}
    ways = accepted("milk,apple", "qa8")
    assert {"milk, apple", "apple and milk", "apple,milk"} <= set(ways)
    assert accepted("s,e", "qa19")[0] == "south, east"
    assert "e, s" not in accepted("s,e", "qa19")  # a way has an order
    assert "football, milk and apple" in accepted("apple,milk,football", "qa8")


def test_lists_are_right_in_any_order(folder):
    family = BabiLong("qa8", 1024, 128, folder=folder)
    tasks = [
        family.task(i, 0, split) for split in ("train", "test") for i in range(family.size(split))
    ]
    score = SCORES[family.metric]
    (question,) = [t.questions[0] for t in tasks if "milk" in t.questions[0].answers[0]]
    assert [score(text, question) for text in ("Apple, milk.", "milk and apple", "milk")] == [
        1,
        1,
        0,
    ]


def test_official_test_files_are_the_test_split(tmp_path):
    (tmp_path / "en").mkdir()
    (tmp_path / "en-10k").mkdir()
    story = "1 {0} sat down.\n2 Who sat down?\t{0}\t1\n"
    for name, who in (
        ("en/qa1_x_train", "Ann"),
        ("en/qa1_x_test", "Bob"),
        ("en-10k/qa1_x_test", "Cy"),
    ):
        (tmp_path / f"{name}.txt").write_text(story.format(who))
    assert [a.answers for a in read_babi(tmp_path, "qa1", "train")] == [("Ann",)]
    assert [a.answers for a in read_babi(tmp_path, "qa1", "test")] == [("Bob",)]


def test_test_files_alone_stay_a_test_split(tmp_path):
    story = "1 {0} sat down.\n2 Who sat down?\t{0}\t1\n"
    names = ("Ann", "Bob", "Cy", "Dee", "Eve", "Fay")
    (tmp_path / "qa1_x_test.txt").write_text("".join(story.format(name) for name in names))
    assert [a.answers[0] for a in read_babi(tmp_path, "qa1", "test")] == list(names)
    assert read_babi(tmp_path, "qa1", "train") == ()
    write_books(tmp_path / "data" / "books")
    (tmp_path / "data" / "babi").mkdir()
    (tmp_path / "qa1_x_test.txt").rename(tmp_path / "data" / "babi" / "qa1_x_test.txt")
    family = BabiLong("qa1", 1024, 128, folder=tmp_path / "data")
    assert (family.size("train"), family.size("test")) == (0, 6)
    with pytest.raises(UserError, match="there are 0 train tasks") as refused:
        family.task(0)
    assert "both splits" in refused.value.fix


def test_an_archive_is_read_where_it_lies(tmp_path):
    write_babi(tmp_path / "plain")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed/babi.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "plain", "tasks/en")
    packed = read_babi(tmp_path / "packed", "qa1", "test")
    assert packed == read_babi(tmp_path / "plain", "qa1", "test") and packed


def test_training_and_test_may_come_in_an_archive_each(tmp_path):
    """And files may be called as the folder en-valid calls them."""
    story = "1 {0} sat.\n2 Who sat? \t{0}\t1\n"
    for split, who in (("train", "Ann"), ("test", "Bob"), ("valid", "Cy")):
        name = f"qa1_{split}.txt"
        (tmp_path / name).write_text(story.format(who))
        with tarfile.open(tmp_path / f"babi_{split}.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / name, f"en-valid/{name}")
    plain = {split: read_babi(tmp_path, "qa1", split) for split in ("train", "test")}
    for name in tmp_path.glob("*.txt"):
        name.unlink()
    for split, who in (("train", "Ann"), ("test", "Bob")):
        assert read_babi(tmp_path, "qa1", split) == plain[split]
        assert [asked.answers for asked in plain[split]] == [(who,)]


def test_stories_that_are_too_long_are_left_out(folder):
    with pytest.raises(UserError, match="there are 0 test tasks"):
        BabiLong("qa1", 50, 50, folder=folder).task(0, 0, "test")


def test_mistakes(folder, tmp_path):
    with pytest.raises(UserError, match="qa20"):
        BabiLong("qa21")
    with pytest.raises(UserError, match=r"tasks_1-20_v1-2\.tar\.gz"):
        BabiLong("qa1", folder=tmp_path).task(0)
    with pytest.raises(UserError, match="folder of books"):
        write_babi(tmp_path / "babi")
        BabiLong("qa1", folder=tmp_path).task(0)
    with pytest.raises(UserError, match="supporting"):
        list(parse_babi("1 Ann sat.\n2 Who sat?\tAnn\n", "qa1"))
    with pytest.raises(UserError, match="has the line"):
        list(parse_babi("Ann sat.\n", "qa1"))


def test_names(folder):
    (spec,) = parse_specs("babilong:qa2@2k#last")
    family = open_family(spec, folder.parent)
    assert (family.variant, family.tokens, family.position) == ("qa2", 2048, "last")
    assert family.folder == folder

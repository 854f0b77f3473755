"""Questions among documents: what must be there is there, anywhere, and nothing is held whole."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.metrics import normalise
from recollect.tasks.audit.splits import overlaps
from recollect.tasks.documents.document_files import build_documents, sort_inputs
from recollect.tasks.documents.documents import PUBLISHED, DocumentTasks, documents_of
from recollect.tasks.documents.hotpotqa import HOTPOTQA, HotpotQA
from recollect.tasks.documents.musique import MUSIQUE, Musique
from recollect.tasks.documents.paragraphs import DocumentSource, DroppedRecord, Item
from recollect.tasks.documents.placement import check_placement, place
from recollect.tasks.documents.squad import SQUAD, Squad
from recollect.tasks.documents.twowiki import TWOWIKI, TwoWiki
from recollect.tasks.files.manifest import Manifest
from recollect.tasks.lengths import estimate_tokens, parse_length
from recollect.tasks.splits import split_of_file
from recollect.tasks.uniformity import chi_square_p, chi_square_tail, histogram
from recollect.types import Task
from tests.support.made_up_hotpot import REAL, build, item, write_source

LENGTHS = tuple(PUBLISHED.values())
Built = tuple[Path, Manifest]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("documents")
    build(write_source(root), root / "hotpotqa")
    return root / "hotpotqa"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (REAL / "hotpotqa").is_dir():
        pytest.skip("HotpotQA is not beside the repository")
    output = tmp_path_factory.mktemp("real") / "hotpotqa"
    others = [path for name in ("2wikimultihopqa", "musique") if (path := REAL / name).is_dir()]
    sources = sort_inputs(HOTPOTQA, [REAL / "hotpotqa"], others)
    build_documents(HOTPOTQA, sources, output, repeat=True)
    return output


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DocumentSource], Built]:
    """Return a set's folder and manifest, made once of the real files; nothing writes to it."""

    @cache
    def make(source: DocumentSource) -> Built:
        if not (REAL / source.name).is_dir():
            pytest.skip(f"{source.name} is not beside the repository")
        output = tmp_path_factory.mktemp("built") / source.name
        return output, build_documents(source, sort_inputs(source, [REAL / source.name]), output)

    return make


def titles(task: Task) -> list[str]:
    return [chunk.split("\n", 2)[1] for chunk in task.chunks]


def evidence(task: Task) -> list[str]:
    return [task.chunks[i] for i in task.questions[0].evidence]


def positions(family: DocumentTasks, n: int, seed: int = 0) -> Iterator[tuple[int, int]]:
    for i in range(n):
        task = family.task(i, seed, "test")
        yield from ((at, len(task.chunks)) for at in task.questions[0].evidence)


# What a text holds


@pytest.mark.parametrize("documents", LENGTHS)
def test_evidence_is_there_and_titles_come_once(folder, documents):
    task = HotpotQA(folder, documents).task(7, 0, "test")
    number = int(task.meta["item"].removeprefix("item-"))
    person, friend = evidence(task)
    assert f"\nPerson {number}\nPerson {number} lives by the sea. Person {number} is a fr" in person
    assert f"\nFriend {number}\n" in friend and task.questions[0].answers[0] in friend
    assert len(task.chunks) == documents and len(set(titles(task))) == documents
    assert {f"Village {number}-{i}" for i in range(3)} < set(titles(task))
    assert all(text.startswith(f"Document {i}:\n") for i, text in enumerate(task.chunks, start=1))


def test_distractors_come_from_the_split(folder):
    test = HotpotQA(folder, 20_000).task(0, 0, "test")
    train = HotpotQA(folder, 8_000).task(0, 0, "train")
    of_train = {f"Person {10_000 + i}" for i in range(30)}
    assert of_train.isdisjoint(titles(test))
    others = {t for t in titles(train) if t.startswith("Person")}
    assert others and others <= of_train
    # A paragraph without a question is on one side too, whatever file it came in.
    assert len(set(titles(test))) == 20_000 and set(titles(test)).isdisjoint(titles(train))


def test_what_a_test_question_shows_is_never_trained_on(tmp_path):
    shown, mine, other = item(0), item(1), item(2)
    mine["context"][1] = next(p for p in shown["context"] if p[0] == "Village 0-1")
    mine["supporting_facts"] = [[t, 0] for t, _ in mine["context"] if t[:6] in ("Person", "Friend")]
    other["context"].append(["person  0", ["As told elsewhere, in other words."]])
    other["supporting_facts"] = [["person  0", 0]]
    source = write_source(tmp_path, test=1, train=0, others=200)
    (source / "train.json").write_text(json.dumps([mine, other, item(3)]))
    extra = {"title": "Village 0-2", "text": "A village of 2 houses, as a corpus has it."}
    with (source / "corpus.jsonl").open("a") as file:
        file.write(json.dumps(extra) + "\n")
    manifest = build(source, tmp_path / "out")
    # One question loses a paragraph; one whose evidence a test question shows is left out.
    assert manifest.dropped == {"evidence shown to a test question": 1}
    assert manifest.counts["train"] == 2
    assert manifest.counts["paragraphs of the test split taken out of training questions"] == 1
    family = HotpotQA(tmp_path / "out", 30)
    read = {t for i in range(12) for t in titles(family.task(i, 0, "train"))}
    held = {t for t, _ in shown["context"]}
    assert read.isdisjoint(held) and "Village 1-0" in read | held
    assert "person  0" not in read and "person 0" not in read


@pytest.mark.parametrize(
    ("source", "kind"), [(HOTPOTQA, HotpotQA), (TWOWIKI, TwoWiki), (MUSIQUE, Musique)]
)
def test_no_real_paragraph_is_in_both_splits(built, source, kind):
    family = kind(built(source)[0], 40)
    train, test = (
        [family.task(i, 0, split) for i in range(min(150, family.size(split)))]
        for split in ("train", "test")
    )
    assert [o for o in overlaps(train, test) if o.shared or not o.of] == []
    pools = [set(family._pools[split].numbers.tolist()) for split in ("train", "test")]
    assert all(pools) and pools[0].isdisjoint(pools[1])


def test_a_file_is_for_training_only_if_its_name_says_so():
    names = ("train.json", "hotpot_train_v1.1.json", "2wiki_train500.jsonl.gz", "training_set.json")
    assert {split_of_file(name) for name in names} == {"train"}
    held_out = ("dev.json", "constrained_dev.json", "train_dev.json", "strain.json", "eval_50.json")
    assert {split_of_file(name) for name in held_out} == {"test"}


def test_a_text_shorter_than_its_paragraphs_keeps_the_evidence(folder):
    task = HotpotQA(folder, documents=3).task(0, 0, "test")
    assert len(task.chunks) == 3 and task.questions[0].answers[0] in evidence(task)[1]
    with pytest.raises(UserError, match="do not fit"):
        HotpotQA(folder, documents=1).task(0, 0, "test")


def test_too_few_distractors_are_named_or_come_again(folder, tmp_path):
    with pytest.raises(UserError, match="--distractors"):
        HotpotQA(folder, 30_000).task(0, 0, "test")
    build(write_source(tmp_path, test=3, train=0, others=40), tmp_path / "few", repeat=True)
    task = HotpotQA(tmp_path / "few", documents=200).task(0, 0, "test")
    number = task.meta["item"].removeprefix("item-")
    own = [f"Person {number}", f"Friend {number}", *(f"Village {number}-{i}" for i in range(3))]
    found = titles(task)
    assert [found.count(title) for title in own] == [1] * 5
    counts = [found.count(title) for title in set(found) - set(own)]
    assert max(counts) - min(counts) == 1  # none comes again before all others did


def test_questions_do_not_depend_on_length_or_seed(folder):
    asked = [
        [HotpotQA(folder, documents).task(i, seed, "test").questions[0].text for i in range(20)]
        for documents, seed in ((50, 0), (400, 0), (50, 1))
    ]
    assert asked[0] == asked[1] == asked[2]
    family = HotpotQA(folder, 50)
    assert family.task(0, 0, "test").chunks[:] != family.task(0, 1, "test").chunks[:]
    assert family.size("test") == 300 and family.size("train") == 30
    with pytest.raises(UserError, match="holds 300 test questions"):
        family.task(300, 0, "test")


def test_training_goes_round_in_new_orders_and_texts(folder):
    family = HotpotQA(folder, 50)
    laps = [[family.task(lap * 30 + i).meta["item"] for i in range(30)] for lap in range(2)]
    assert sorted(laps[0]) == sorted(laps[1]) and len(set(laps[0])) == 30 and laps[0] != laps[1]
    again = 30 + laps[1].index(laps[0][0])
    assert family.task(0).chunks != family.task(again).chunks


def test_a_text_is_a_sequence(folder):
    chunks = HotpotQA(folder, 50).task(0, 0, "test").chunks
    whole = list(chunks)
    assert chunks[-1] == whole[49] and chunks[3:7] == whole[3:7] and chunks == whole
    assert chunks != whole[:-1] and chunks != [*whole[:-1], "x"]
    with pytest.raises(IndexError):
        chunks[50]


def test_the_same_text_every_time_and_everywhere(folder):
    text = "\n\n".join(HotpotQA(folder, 200).task(3, 5, "test").chunks)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == DIGEST, "texts are no longer what they were: published figures would not hold"


DIGEST = "48353558817f6ba2ca10833c3aba1b0b35cf950d8a09ab34321e498464123d3b"


def test_a_folder_of_an_earlier_layout_is_refused_with_the_way_out(tmp_path):
    build(write_source(tmp_path, others=100), tmp_path / "old")
    manifest = tmp_path / "old" / "manifest.json"
    (tmp_path / "old" / "passages.arrow").rename(tmp_path / "old" / "passages.bin")
    manifest.write_text(manifest.read_text().replace("passages.arrow", "passages.bin"))
    with pytest.raises(UserError, match=r"another version: it has no passages.arrow\n  fix: make"):
        HotpotQA(tmp_path / "old").task(0)


def test_passages_that_were_cut_short_are_refused(tmp_path):
    build(write_source(tmp_path, others=100), tmp_path / "cut")
    path = tmp_path / "cut" / "passages.arrow"
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes(9))  # as long as the manifest says
    with pytest.raises(UserError, match=r"passages.arrow is not whole.*\n  fix: make it again"):
        HotpotQA(tmp_path / "cut", 50).task(0).chunks[0]


def test_the_same_command_writes_the_same_bytes(tmp_path):
    source = write_source(tmp_path, others=100)
    build(source, tmp_path / "one")
    build(source, tmp_path / "two")
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    )
    assert one == two and len(one) == 5


# Where the evidence is


@pytest.mark.parametrize("documents", [50, 200])
def test_evidence_is_equally_likely_anywhere(folder, documents):
    found = list(positions(HotpotQA(folder, documents), 300))
    assert len(found) == 600
    assert chi_square_p(*histogram(found)) > 0.001
    # The same test sees what one shuffle for all items does, and a shift of a few places.
    order = Random(4).sample(range(documents), documents)
    fixed = [(order[i], documents) for _ in range(300) for i in range(2)]
    assert chi_square_p(*histogram(fixed)) < 1e-9
    early = [(at * at // documents, documents) for at, _ in found]
    assert chi_square_p(*histogram(early)) < 1e-9


def test_own_paragraphs_are_shuffled_too(folder):
    family = HotpotQA(folder, 50)
    found = []
    for i in range(300):
        task = family.task(i, 0, "test")
        places = [at for at, title in enumerate(titles(task)) if title.startswith("Village")]
        own = task.meta["item"].removeprefix("item-")
        found += [(at, 50) for at in places if f"Village {own}-" in task.chunks[at]]
    assert len(found) == 900 and chi_square_p(*histogram(found)) > 0.001


def test_placements_put_evidence_where_they_say(folder):
    def at(placement: str) -> tuple[int, ...]:
        return HotpotQA(folder, 101, placement).task(0, 0, "test").questions[0].evidence

    assert sorted(at("first")) == [0, 1] and sorted(at("last")) == [99, 100]
    assert sorted(at("middle")) == [49, 50] and sorted(at("far")) == [0, 100]
    first, second = at("gap7")
    assert abs(first - second) == 8
    assert list(at("forward")) == sorted(at("forward"))
    assert list(at("backward")) == sorted(at("backward"), reverse=True)
    with pytest.raises(UserError, match="no placement"):
        HotpotQA(folder, 100, "upside down")


@given(
    st.sampled_from(["uniform", "first", "middle", "last", "forward", "backward", "far", "gap2"]),
    st.integers(1, 4),
    st.integers(12, 60),
    st.integers(),
)
def test_places_are_different_and_inside(placement, count, documents, seed):
    check_placement(placement)
    places = place(placement, count, documents, Random(seed))
    assert len(set(places)) == count and all(0 <= at < documents for at in places)


def test_the_tail_of_chi_square():
    # From published tables: the 5% and 0.1% points.
    for freedom, five, rare in ((1, 3.841, 10.828), (2, 5.991, 13.816), (9, 16.919, 27.877)):
        assert chi_square_tail(five, freedom) == pytest.approx(0.05, rel=1e-3)
        assert chi_square_tail(rare, freedom) == pytest.approx(0.001, rel=1e-3)
    assert chi_square_tail(0, 9) == pytest.approx(1) and chi_square_p([3], [3.0]) == 1


# Lengths and memory


def test_published_lengths_are_numbers_of_documents():
    names = ("7k", "14k", "28k", "56k", "112k", "224k", "448k", "896k", "1.75m", "3.5m")
    assert tuple(documents_of(parse_length(name)) for name in names) == LENGTHS
    assert tuple(50 * 2**i for i in range(10)) == LENGTHS
    assert documents_of(140_350) == 1000


def test_a_text_of_25600_documents_is_never_held(folder):
    family = HotpotQA(folder, 25_600)
    family.task(0, 0, "test")  # opens the files
    tracemalloc.start()
    task = family.task(1, 0, "test")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    size = sum(len(text) for text in task.chunks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 8 * 25_600, "a document should cost a few bytes"
    assert size > 900_000 and peak - held < size  # numbers, at most


# The real data


@pytest.mark.parametrize("documents", [50, 6400, 25_600])
def test_real_hotpotqa_holds_its_evidence(real, documents):
    family = HotpotQA(real, documents)
    task = family.task(11, 0, "test")
    question = task.questions[0]
    assert len(task.chunks) == documents and len(question.evidence) == 2
    known = normalise(" ".join(evidence(task)))
    assert question.answers[0] in ("yes", "no") or normalise(question.answers[0]) in known
    if documents < 25_600:  # the data here have fewer titles than that
        assert len(set(titles(task))) == documents


def test_real_evidence_is_uniform_and_lengths_are_as_published(built):
    family = HotpotQA(built(HOTPOTQA)[0], 50)
    assert family.size("test") == 1100
    assert chi_square_p(*histogram(positions(family, 1100))) > 0.001
    tokens = [estimate_tokens("\n\n".join(family.task(i, 0, "test").chunks)) for i in range(128)]
    assert sum(tokens) / len(tokens) == pytest.approx(6999.6, rel=0.05)


@pytest.mark.parametrize(
    ("source", "kind", "gold"), [(TWOWIKI, TwoWiki, 2), (MUSIQUE, Musique, 2), (SQUAD, Squad, 1)]
)
def test_the_other_sets_are_made_the_same_way(built, source, kind, gold):
    folder, manifest = built(source)
    assert manifest.counts["test"] >= 100
    family = kind(folder, 100)
    tasks = [family.task(i, 0, "test") for i in range(50)]
    answered = 0
    for task in tasks:
        question = task.questions[0]
        known = normalise(" ".join(evidence(task)))
        assert len(question.evidence) >= gold and len(set(task.chunks)) == 100
        answers = question.answers
        answered += answers[0] in ("yes", "no") or any(normalise(a) in known for a in answers)
    assert answered >= 48  # 2WikiMultihopQA infers a few from what the paragraphs only imply


def test_items_by_column_are_the_same_items(tmp_path):
    """Copies in Parquet, written out as JSON, have a list of titles and one of sentences."""
    plain, columns = item(7), item(7)
    columns["id"] = columns.pop("_id")
    titles, sentences = zip(*plain["context"], strict=True)
    columns["context"] = {"title": titles, "sentences": sentences}
    names, numbers = zip(*plain["supporting_facts"], strict=True)
    columns["supporting_facts"] = {"title": names, "sent_id": numbers}
    made = []
    for name, record in (("plain", plain), ("columns", columns)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dev.json").write_text(json.dumps([record]))
        build(tmp_path / name, tmp_path / name / "out")
        made.append(HotpotQA(tmp_path / name / "out", 5).task(0, 0, "test"))
    assert made[0] == made[1] and made[0].meta["item"] == "item-7"


def test_odd_records_do_not_spoil_a_file(tmp_path):
    items = [item(0) | {"answer": 1971}, item(1) | {"question": " "}, item(2)]
    (tmp_path / "dev.json").write_text(json.dumps(items))
    manifest = build(tmp_path, tmp_path / "out")
    assert manifest.counts["test"] == 2 and manifest.dropped == {"no question": 1}
    family = HotpotQA(tmp_path / "out", 5)
    assert ("1971",) in [family.task(i, 0, "test").questions[0].answers for i in range(2)]
    rows = [{"idx": i, "title": f"T{i}", "paragraph_text": "x"} for i in range(2)]
    bare = {"id": "2hop__1", "question": "Who?", "answer": "x", "paragraphs": rows}
    rows[1]["is_supporting"] = True
    bare |= {"answer_aliases": None, "question_decomposition": None}
    (tmp_path / "musique.jsonl").write_text(json.dumps(bare))
    (found,) = MUSIQUE.read([tmp_path / "musique.jsonl"])
    assert isinstance(found, Item) and found.gold == (1,) and found.answers == ("x",)
    asked = [{"id": "1", "question": "Who?", "answers": None}]
    article = {"title": "A_B", "paragraphs": [{"context": "x", "qas": asked}]}
    (tmp_path / "squad.json").write_text(json.dumps({"data": [article]}))
    assert [type(found) for found in SQUAD.read([tmp_path / "squad.json"])] == [DroppedRecord]


def test_a_mark_before_the_first_character_is_no_text(tmp_path):
    (tmp_path / "dev.json").write_text(json.dumps([item(1)]), encoding="utf-8-sig")
    assert build(tmp_path, tmp_path / "out").counts["test"] == 1


def test_mistakes_in_a_file_are_named(tmp_path):
    bad = item(0) | {"context": [["a title without sentences"]]}
    (tmp_path / "dev.json").write_text(f"[{{}}, {bad}]".replace("'", '"'))
    with pytest.raises(UserError, match=r"dev\.json item 1.*context"):
        build(tmp_path, tmp_path / "out")
    with pytest.raises(UserError, match=r"hotpotqa\.github\.io"):
        build(tmp_path / "nowhere.json", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_what_is_no_question_is_left_out_and_counted(tmp_path):
    items = [item(0), item(0), item(1) | {"supporting_facts": [["Nobody", 0]]}, item(2)]
    items[3]["answer"] = " "
    (tmp_path / "dev.jsonl").write_text("".join(f"{i}\n".replace("'", '"') for i in items))
    manifest = build(tmp_path, tmp_path / "out")
    assert manifest.counts["test"] == 1
    assert manifest.dropped == {"asked twice": 1, "evidence not found": 1, "no answer": 1}
    assert any("Nobody" in problem and "line 3" in problem for problem in manifest.problems)

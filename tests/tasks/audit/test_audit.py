"""The audit finds what was planted, and nothing in the families that are made here."""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import pytest
from rich.console import Console

from recollect.cli import main
from recollect.commands.data.audit import Audit, AuditOptions, audit_family, leaks, run_audit
from recollect.errors import UserError
from recollect.tasks.audit.audit import binomial_tail
from recollect.tasks.base import Split, TaskFamily
from recollect.tasks.documents.document_files import build_documents, sort_inputs
from recollect.tasks.documents.squad import SQUAD, Squad
from recollect.tasks.function import as_family
from recollect.tasks.made.chronicle import Chronicle
from recollect.tasks.made.ledger import Ledger
from recollect.tasks.made.recall import DIARY, Recall
from recollect.tasks.made.world import World
from recollect.types import Question, Task
from tests.support.places import ROOT

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven")
HELD = AuditOptions(names=())
PLANTED = 60
"""Tasks in which a rule that is always right cannot be overlooked."""


@dataclass(frozen=True)
class Planted:
    """Eight documents with a word each; one is asked for, and a rule may give it away."""

    leak: Callable[[list[str], int, Random], None] = lambda texts, at, rng: None
    first: bool = False
    name: str = "planted"
    metric: str = "exact_match"

    def size(self, split: Split) -> int | None:
        return None

    def longer(self, times: int) -> Planted:
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        rng = Random(f"{seed} {index} {split}")
        told = rng.sample(WORDS, 8)
        at = 0 if self.first else rng.randrange(8)
        keys = rng.sample(range(1000, 9999), 8)
        frames = ("Box {k} holds {w} and sand.", "There is {w} inside of box {k}, they say.")
        texts = [
            f"Box number {rng.choice(WORDS[:2])}\n" + rng.choice(frames).format(k=k, w=w)
            for k, w in zip(keys, told, strict=True)
        ]
        self.leak(texts, at, rng)
        question = Question(f"What is in box {keys[at]}?", (told[at],), "", (at,))
        return Task(f"planted-{split}-{index}", tuple(texts), (question,), self.name)


def add(text: str) -> Callable[[list[str], int, Random], None]:
    def leak(texts: list[str], at: int, rng: Random) -> None:
        texts[at] += text

    return leak


def put(old: str, new: str) -> Callable[[list[str], int, Random], None]:
    def leak(texts: list[str], at: int, rng: Random) -> None:
        texts[at] = texts[at].replace(old, new, 1)

    return leak


def titled(texts: list[str], at: int, rng: Random) -> None:
    texts[at] = texts[at].replace("\n", f" ({rng.randint(1, 99)})\n", 1)


def longest(texts: list[str], at: int, rng: Random) -> None:
    for i in range(len(texts)):
        texts[i] += " Nothing else." * (rng.randint(0, 3) + 2 * (i == at))


def repeated(texts: list[str], at: int, rng: Random) -> None:
    word = next(word for word in WORDS if word in texts[at].partition("\n")[2])
    texts[rng.randrange(8)] += f" So it is {word}."


def audited(family: TaskFamily, n: int = 150) -> Audit:
    return audit_family("planted", family, n)


def found(family: TaskFamily, n: int = PLANTED, **held: bool) -> str:
    return "\n".join(leaks(audited(family, n), replace(HELD, **held)))


def test_nothing_is_found_where_nothing_is_planted():
    assert found(Planted(), n=150) == ""


@pytest.mark.parametrize(
    ("leak", "rule", "n"),
    [
        (titled, "title that ends in a number", PLANTED),
        (longest, "longest document", PLANTED),
        (repeated, "most frequent value", 150),  # right less often than not
        (add("\nP.S."), "most: lines", PLANTED),
        (put(".", "!"), "least: sentences with its rarest mark", PLANTED),
        (put(" ", "\xa0"), "least: documents with its rarest mark", PLANTED),
        (put("o", "\u043e"), "least: documents with its rarest mark", PLANTED),  # Cyrillic
    ],
)
def test_what_is_planted_is_found(leak, rule, n):
    assert rule in found(Planted(leak), n)


@dataclass(frozen=True)
class Labelled(Planted):
    """Tasks whose answer, or another one, is in what is shown beside the text."""

    place: str = ""
    right: bool = True

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        task = super().task(index, seed, split)
        asked, rng = task.questions[0], Random(f"{index} {split}")
        word = asked.answers[0] if self.right else rng.choice(WORDS)
        other = rng.choice([w for w in WORDS if w != asked.answers[0]])
        either = " or ".join(rng.sample([asked.answers[0], other], 2))
        whole = ", ".join(WORDS)
        ask = {"question": f"({word} or not)", "one of": f"{whole}?", "which of": f"{either}?"}
        text = f"{asked.text} {ask.get(self.place, '')}"
        category = f"about {word}" if self.place == "category" else "box"
        meta = {"meta": {"hints": [{"is": word.upper()}]}, "hidden": {"facts": [word]}}
        return replace(
            task,
            id=f"{task.id}-{word}" if self.place == "id" else task.id,
            questions=(replace(asked, text=text, category=category),),
            meta=meta.get(self.place, {}),
        )


@pytest.mark.parametrize("place", ["id", "meta", "category", "question"])
def test_an_answer_in_what_is_shown_beside_the_text_is_found(place):
    said = found(Labelled(place=place))
    assert f"label: an answer in the {place} scores 1.000, a guess 0.1" in said
    assert "label: " not in found(Labelled(place=place, right=False), 150)


@pytest.mark.parametrize("place", ["one of", "which of", "hidden"])
def test_a_question_that_lists_what_can_be_chosen_leaks_nothing(place):
    assert found(Labelled(place=place), 150) == ""


def test_answers_that_are_all_the_same_are_said():
    @dataclass(frozen=True)
    class Same(Planted):
        others: int = 0

        def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
            task = super().task(index, seed, split)
            if index < self.others:
                return task
            return replace(task, questions=(replace(task.questions[0], answers=("Amber.",)),))

    assert "all answers are the same, 'Amber.': nothing needs to be read" in found(Same())
    assert "0.9" in found(Same(others=4)) and "of answers are the same" in found(Same(others=4))
    assert "are the same" not in found(Same(others=12)) + found(Planted()) + found(Same(), 9)


def test_evidence_at_a_fixed_place_is_found():
    said = found(Planted(first=True))
    assert "first document" in said and "first value" in said
    assert "not equally likely everywhere" in said


def test_rules_that_read_the_questions_words_are_held_to_the_limit_on_request():
    assert "BM25" in found(Planted(), words=True)


def test_a_leak_of_two_features_together_is_found_by_the_fit():
    def odd(texts: list[str], at: int, rng: Random) -> None:
        """Make documents long and in capitals, or neither; evidence is one of the two."""
        marks = [rng.choice(((0, 0), (1, 1))) for _ in texts]
        marks[at] = rng.choice(((0, 1), (1, 0)))
        for i, (long, loud) in enumerate(marks):
            texts[i] += " and so on" * 8 * long
            texts[i] += " OK OK OK" * loud if loud else " ok ok ok"

    rows = {row.rule: row for row in audited(Planted(odd)).rows if row.group == "document"}
    assert rows["all features, fitted"].sure


@dataclass(frozen=True)
class Repeating(Planted):
    """Test tasks that come again in training, written a little differently."""

    again: Callable[[str], str] = str

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        task = replace(super().task(index, seed, "test"), id=f"{split}-{index}")
        if split == "test":
            return task
        return replace(task, chunks=tuple(map(self.again, task.chunks)))


@pytest.mark.parametrize(
    "again",
    [
        str,
        str.upper,
        lambda text: text.replace(" ", "  "),
        lambda text: text.replace(".", " !").replace(",", ""),
        lambda text: text.replace("o", "o\u200b"),
    ],
)
def test_a_task_of_both_splits_is_found(again):
    said = found(Repeating(again=again))
    assert "60 of 60 whole tasks of the test split are in the training split" in said


MADE: dict[str, tuple[TaskFamily, int]] = {
    "recall of 4 chunks": (Recall(chunks=4), 300),
    "recall of 24 chunks": (Recall(chunks=24), 120),
    "recall, either, several mentions": (Recall(chunks=6, keep="either", mentions=3), 150),
    "recall, told once": (Recall(chunks=6, updates=0.0), 150),
    "the demo": (DIARY, 400),
    "the demo, 16 times": (DIARY.longer(16), 120),
    "world": (World(), 400),
    "world, 5 times": (World().longer(5), 200),
    "ledger": (Ledger(sessions=5), 60),
    "chronicle, overwrite": (Chronicle(("overwrite",)), 80),
    "chronicle, two-hop": (Chronicle(("two-hop",)), 60),
    "chronicle, blind": (Chronicle(("blind",)), 50),
    "chronicle, 4 times": (Chronicle(("overwrite",)).longer(4), 16),
}
"""Families, and as many tasks as take about two seconds; docs/data.md has the command for more."""


@cache
def audit_of_made(name: str) -> Audit:
    return audit_family(name, *MADE[name])


@pytest.mark.parametrize("name", MADE)
def test_the_made_families_leak_nothing(name):
    family, n = MADE[name]
    audit = audit_of_made(name)
    found = leaks(audit, HELD)
    if family == DIARY.longer(16):
        # One person has eight kinds of things: where a new one begins can be seen in a long diary.
        found = [leak for leak in found if not leak.startswith("document: ")]
    assert found == []
    named = ("rarest value", "most frequent value", "first value", "most recent value")
    rows = [r for r in audit.rows if r.rule in (*named, "longest document", "last document")]
    assert {row.rule for row in rows} >= {*named, "longest document"}
    for row in rows:  # the limit, and three standard errors of so few tasks
        assert row.excess < 0.02 + 3 * math.sqrt(row.chance * (1 - row.chance) / n), row


def test_the_words_of_a_question_find_no_answer_in_a_chronicle():
    """One sentence, or one page, that a search finds says no more than a guess; nor does copying
    everything, or the most common count."""
    rows = {}
    audits = {kind: audit_of_made(f"chronicle, {kind}") for kind in ("overwrite", "two-hop")}
    audits["count"] = audit_family("count", Chronicle(("count",)), 60)
    for kind, audit in audits.items():
        for row in audit.rows:
            if row.group in ("words", "reply") and "finds the document" not in row.rule:
                rows[kind, row.rule] = row
    assert ("overwrite", "BM25 top-1, a value in the sentence") in rows
    assert ("count", "most common answer") in rows
    for row in rows.values():
        error = math.sqrt(max(row.chance, 0.01) * (1 - row.chance) / row.n)
        assert row.excess < 0.02 + 3 * error, row


def test_the_command_says_what_it_found_and_fails_where_there_is_a_leak(tmp_path, capsys):
    lines = []
    for i in range(PLANTED):
        task = Planted(titled).task(i)
        asked = task.questions[0]
        question = {"question": asked.text, "answer": asked.answers[0], "evidence": asked.evidence}
        lines.append({"id": str(i), "chunks": task.chunks, "questions": [question]})
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["data", "audit", str(tmp_path / "mine.jsonl"), "--json"]) == 1
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert any("title that ends in a number" in leak for leak in record["leaks"])
    row = next(r for r in record["rows"] if r["rule"] == "title that ends in a number")
    assert row["score"] == 1.0 and row["n"] == PLANTED and row["low"] > 0.9
    assert abs(row["chance"] - 0.125) < 1e-9
    console = Console(width=120, record=True)
    options = AuditOptions((str(tmp_path / "mine.jsonl"),))
    assert run_audit(options, console) == 1
    shown = console.export_text()
    assert "LEAK document: title that ends in a number" in shown and "guess" in shown


def test_a_users_own_family_is_audited_by_its_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "audited_mine.py").write_text(
        "from recollect import Question, Task\n"
        "class Chess:\n"
        "    name, metric = 'chess', 'answer_match'\n"
        "    def size(self, split): return None\n"
        "    def longer(self, times): return self\n"
        "    def task(self, index, seed=0, split='train'):\n"
        "        from random import Random\n"
        "        r = Random(f'{index}{seed}{split}')\n"
        "        at = [f'{r.choice(list(\"abcdefgh\"))}{r.randint(1, 8)}' for _ in range(6)]\n"
        "        told = [f'Piece {i} is at {square}.' for i, square in enumerate(at)]\n"
        "        at = r.randrange(6)\n"
        "        marked = [t + ' Check!' * (i == at) for i, t in enumerate(told)]\n"
        "        asked = Question(f'Where is piece {at}?', (told[at][-3:-1],), '', (at,))\n"
        "        return Task(f'{split}{seed}{index}', tuple(marked), (asked,), 'chess')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["data", "audit", "audited_mine:Chess", "--n", "150", "--json"]
    assert main(command) == 1
    (record,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert any("longest document" in leak for leak in record["leaks"])


def test_the_documents_around_a_squad_paragraph_look_like_it(tmp_path, monkeypatch):
    """What scripts/split_squad.py writes; with numbered titles one rule was right 0.98 of times."""
    rng = Random(0)
    words = ["mill", "river", "stone", "boat", "field", "winter", "song", "bread"]
    articles = []
    for name in ("Warsaw", "Steam", "Norse", "Comet", "Chalk", "Amber", "Tide", "Loom"):
        rows = []
        for p in range(16):
            text = " ".join(rng.choices(words, k=rng.randint(20, 60))) + f" {name}{p}."
            asked = [
                {"id": f"{name}{p}-{i}", "question": f"What of {name}{p}, number {i}?",
                 "answers": [{"text": text.split()[i], "answer_start": 0}]}
                for i in range(len(text) // 40 + 3)
            ]  # fmt: skip
            rows.append({"context": text, "qas": asked})
        articles.append({"title": name, "paragraphs": rows})
    (tmp_path / "dev.json").write_text(json.dumps({"data": articles}))
    script = [str(ROOT / "scripts" / "split_squad.py"), str(tmp_path / "dev.json")]
    monkeypatch.setattr("sys.argv", [*script, "--out", str(tmp_path / "split")])
    runpy.run_path(script[0], run_name="__main__")
    build_documents(SQUAD, sort_inputs(SQUAD, [tmp_path / "split"]), tmp_path / "squad")
    family = Squad(tmp_path / "squad", 4)
    assert {family.task(i, 0, "test").cluster for i in range(100)} == {"Steam", "Amber"}
    audit = audit_family("squad", family, 160)
    assert [o for o in audit.overlaps if o.shared] == []
    assert leaks(audit, HELD) == []
    (row,) = [r for r in audit.rows if r.rule == "title that ends in a number"]
    assert row.score == row.chance == 0.25


def test_the_tail_of_a_guess_is_exact():
    assert binomial_tail(0, 10, 0.5) == 1.0
    assert binomial_tail(10, 10, 0.5) == pytest.approx(2**-10)
    assert binomial_tail(9, 10, 0.5) == pytest.approx(11 * 2**-10)
    assert binomial_tail(1, 3, 0.2) == pytest.approx(1 - 0.8**3)


def test_tasks_without_questions_are_not_called_sound():
    def silent(split: Split) -> list[Task]:
        return [Task(f"{split} {i}", (f"{split} {i}",), ()) for i in range(3)]

    with pytest.raises(UserError, match="silent asks no questions: nothing can leak"):
        audit_family("silent", as_family(silent), 3)

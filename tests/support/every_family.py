"""Every task family there is, from the public data sets where they are, else from made-up files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recollect.tasks.base import TaskFamily
from recollect.tasks.conversations.beam import read_beam
from recollect.tasks.conversations.locomo_files import LocomoOptions, build_locomo
from recollect.tasks.conversations.longmemeval import read_longmemeval
from recollect.tasks.documents.document_files import build_documents, sort_inputs
from recollect.tasks.documents.hotpotqa import HOTPOTQA
from recollect.tasks.documents.memagent import build_memagent, write_eval
from recollect.tasks.documents.musique import MUSIQUE
from recollect.tasks.documents.paragraphs import DocumentSource
from recollect.tasks.documents.squad import SQUAD
from recollect.tasks.documents.twowiki import TWOWIKI
from recollect.tasks.files.builders import build_babilong, build_ruler, build_tasks
from recollect.tasks.files.findings import Findings
from recollect.tasks.haystacks.ruler import VARIANTS
from recollect.tasks.made.ledger_files import LedgerOptions, build_ledger
from recollect.tasks.named import open_family, parse_specs
from recollect.types import Task
from tests.support import world
from tests.support.made_up_hotpot import item
from tests.support.made_up_tasks import write_babi, write_books
from tests.support.places import SHARED

SPECS = (
    *("recall@1k", "recall@4k", "ledger@4k", "ledger_file:ss2", "world"),
    *("chronicle:overwrite@4k", "chronicle:count@4k", "chronicle:two-hop@4k", "chronicle:blind@4k"),
    *("hotpotqa@20docs", "2wikimultihopqa@20docs", "musique@20docs", "squad@20docs", "memagent"),
    *(f"ruler:{variant}@4k" for variant in VARIANTS),
    *("babilong:qa1@2k", "babilong:qa8@2k"),
    *("locomo", "locomo:questions", "longmemeval:oracle", "beam", "jsonl", "parquet"),
)
REAL_SPECS = tuple(f"babilong:qa{n}@4k" for n in (5, 6, 7, 10, 15, 19, 20))
"""Stories that nobody made up."""

Y_N = ("yes", "no")


def build_all(folder: Path) -> None:
    """Write the data of every family into a folder."""
    raw = folder / "raw"
    raw.mkdir()
    for source in (HOTPOTQA, TWOWIKI, MUSIQUE, SQUAD):
        _documents(source, raw, folder)
    _haystacks(raw, folder)
    _talks(raw, folder)
    build_ledger(LedgerOptions(folder / "ledger_file", sessions=(2,)))
    hotpot = open_family(parse_specs("hotpotqa@20docs")[0], folder)
    tasks = [hotpot.task(i, 0, "test") for i in range(40)]
    write_eval(raw / "eval_20.json", tasks)
    build_memagent({"test": [raw / "eval_20.json"]}, folder / "memagent")
    _own(folder / "jsonl")
    _table(folder / "jsonl" / "tasks.jsonl", folder / "rows.parquet")


def open_all(folder: Path, specs: tuple[str, ...]) -> Iterator[tuple[str, TaskFamily]]:
    """Open the families of a folder."""
    for spec in specs:
        named = f"parquet:{folder / 'rows.parquet'}" if spec == "parquet" else spec
        yield spec, open_family(parse_specs(named)[0], folder)


def _documents(source: DocumentSource, raw: Path, folder: Path) -> None:
    real = SHARED / source.name
    inputs = sorted(real.glob("*.gz"))
    if not inputs:
        raw_file = raw / f"{source.name}_dev.json"
        raw_file.write_text(json.dumps(_made_up(source.name)))
        rivers = [{"title": f"River {i}", "text": f"River {i} is long."} for i in range(80)]
        (raw / f"{source.name}_corpus.json").write_text(json.dumps(rivers))
        inputs = [raw_file, raw / f"{source.name}_corpus.json"]
    build_documents(source, sort_inputs(source, inputs), folder / source.name)


def _made_up(name: str) -> Any:
    items = [_question(i) for i in range(60)]
    if name == "musique":
        return [
            {
                "id": f"2hop__{i}",
                "question": one["question"],
                "answer": one["answer"],
                "paragraphs": [
                    {"title": t, "paragraph_text": "".join(s), "is_supporting": t[0] in "PF"}
                    for t, s in one["context"]
                ],
            }
            for i, one in enumerate(items)
        ]
    if name == "squad":
        return {"data": [_article(n, items[10 * n : 10 * n + 10]) for n in range(6)]}
    return items


def _question(number: int) -> dict[str, Any]:
    """Ask for a colour, and of every third friend whether the house is old."""
    made = item(number)
    if number % 3:
        return made
    asked = f"Is the house of the friend of Person {number} old, or is it new?"
    return {**made, "question": asked, "answer": Y_N[number % 2], "type": "comparison"}


def _article(number: int, items: list[dict[str, Any]]) -> dict[str, Any]:
    paragraphs = [
        {
            "context": f"In part {i} " + " ".join("".join(s) for _, s in one["context"]),
            "qas": [
                {
                    "id": one["_id"],
                    "question": one["question"],
                    "answers": [{"text": one["answer"], "answer_start": 0}],
                }
            ],
        }
        for i, one in enumerate(items)
    ]
    return {"title": f"Article {number}", "paragraphs": paragraphs}


def _haystacks(raw: Path, folder: Path) -> None:
    books, stories = SHARED / "books_pd", SHARED / "babi" / "babi_en_train.tar.gz"
    if not SHARED.exists():
        books, stories = raw / "books", raw / "babi"
        write_books(books)
        write_babi(stories)
    build_ruler(books, folder / "ruler")
    build_babilong(stories, books, folder / "babilong")


def _talks(raw: Path, folder: Path) -> None:
    locomo = world.REAL
    asked = SHARED / "longmemeval" / "longmemeval_s_evidence_only_dev.json.gz"
    beam = SHARED / "beam_100k" / "beam_100k_dev10.jsonl.gz"
    if not SHARED.exists():
        locomo, asked, beam = raw / "locomo.json", raw / "asked.json", raw / "beam.json"
        made = [world._conversation(i, Random(i)) for i in range(2)]
        for conversation in made:
            conversation["qa"] += [_unanswerable(i) for i in range(5)]
        locomo.write_text(json.dumps(made))
        asked.write_text(json.dumps([_remembered(i) for i in range(30)]))
        beam.write_text(json.dumps([_chat(i) for i in range(3)]))
    build_locomo(LocomoOptions(locomo, folder / "locomo", adversarial=True))
    for name, variant, path, read in (
        ("longmemeval", "oracle", asked, read_longmemeval),
        ("beam", "100k", beam, read_beam),
    ):
        findings = Findings()
        tasks: Iterator[Task] = read(path, findings)
        build_tasks(name, variant, [path], tasks, findings, folder / name)


def _unanswerable(number: int) -> dict[str, Any]:
    return {
        "question": f"Which boat did they buy in year {number}?",
        "adversarial_answer": "a sloop",
        "evidence": ["D1:1"],
        "category": 5,
    }


def _remembered(number: int) -> dict[str, Any]:
    untold = number % 6 == 0
    answer = "You did not mention this." if untold else f"{number % 7 + 2} cats"
    said = [{"role": "user", "content": f"I have {answer}."}]
    return {
        "question_id": f"q{number}_abs" if untold else f"q{number}",
        "question_type": "multi-session",
        "question": "How many pets do I have?",
        "answer": answer,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": ["2023/05/20 (Sat) 10:00"],
        "haystack_session_ids": [f"s{number}"],
        "haystack_sessions": [said],
        "answer_session_ids": [f"s{number}"],
    }


def _chat(number: int) -> dict[str, Any]:
    said = {"id": 0, "role": "user", "content": f"I run {number + 5} km."}
    told = {"question": "How far?", "answer": f"{number + 5} km", "rubric": [f"{number + 5} km"]}
    untold = {"question": "Where?", "ideal_response": "Not told.", "rubric": ["not told"]}
    return {
        "conversation_id": number,
        "chat": [{"batch_number": 1, "turns": [[said]]}],
        "probing_questions": {
            "information_extraction": [{**told, "source_chat_ids": [0]}],
            "abstention": [untold],
        },
    }


def _table(lines: Path, output: Path) -> None:
    """Write the same tasks as a table with the columns that a user may have."""
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    named = [
        {"context": row["text"], "question": row["question"], "answer": row["answer"]}
        for row in rows
    ]
    split = ["test"] * len(rows)
    pq.write_table(pa.Table.from_pylist(named).append_column("split", [split]), output)


def _own(folder: Path) -> None:
    """Write a user's own tasks: names, numbers, yes and no, a choice, and lists."""
    folder.mkdir()
    rng = Random(0)
    cities = ["Oslo", "Lima", "Cork", "Quito", "Perth", "Turin", "Ghent", "Hanoi"]
    lines = []
    for i in range(80):
        one, other = rng.sample(cities, 2)
        kinds = [
            (f"Where does number {i} live?", one),
            (f"How many boats has number {i}?", str(rng.randint(1, 40))),
            (f"Does number {i} live in {one}?", rng.choice(Y_N)),
            (f"Which is larger, {one} or {other}?", one),
            (f"Which cities has number {i} seen?", f"{one}, {other}"),
        ]
        question, answer = kinds[i % len(kinds)]
        text = f"Number {i} knows {', '.join(cities)}. It says {answer}. It is late."
        lines.append(json.dumps({"text": text, "question": question, "answer": answer}))
    (folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")

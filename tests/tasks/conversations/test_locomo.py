"""LoCoMo: exact counts, flaws mended and reported, the same bytes every time."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from recollect.errors import UserError
from recollect.memory.store import Store
from recollect.metrics import abstains
from recollect.tasks.conversations.locomo import IDS, read_locomo, split
from recollect.tasks.conversations.locomo_files import (
    LocomoOptions,
    build_locomo,
    load_corpora,
    load_memories,
    load_tasks,
)
from tests.support.places import SHARED

REAL = SHARED / "locomo/locomo10_dev5.json.gz"
needs_real = pytest.mark.skipif(not REAL.exists(), reason="needs the LoCoMo file")


def conversation(id: str, qa: list[dict[str, Any]]) -> dict[str, Any]:
    """Two sessions of Ann and Bob, with more dates than sessions."""

    def said(dia: str, who: str, text: str, **more: Any) -> dict[str, Any]:
        return {"speaker": who, "dia_id": dia, "text": text, **more}

    return {
        "sample_id": id,
        "qa": qa,
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_10_date_time": "1 pm on 9 May, 2023",
            "session_2": [said("D2:1", "Bob", "I got a cat "), said("D2:2", "Ann", "Nice!")],
            "session_1_date_time": "1 pm on 8 May, 2023",
            "session_1": [
                said("D1:1", "Ann", f"I live in {id}", blip_caption="a small house"),
                said("D1:2", "Bob", ""),
            ],
        },
        "observation": {
            "session_2_observation": {"Bob": [["Bob has a cat", ["D2:1", "D2:2"]]], "Ann": []},
            "session_1_observation": {"Ann": [[f"Ann lives in {id}", "D1:1"]]},
        },
        "event_summary": {
            "events_session_1": {"Ann": ["Ann moves", ""], "Bob": [], "date": "8 May, 2023"},
            "events_session_2": {"Ann": [], "Bob": ["Bob adopts a cat"], "date": "9 May, 2023"},
        },
    }


QA = [
    {"question": "Where?", "answer": "here", "evidence": ["D1:1"], "category": 4},
    {"question": "When?", "answer": 2022, "evidence": ["D1:1; D2:01"], "category": 2},
    {"question": "Why?", "answer": "so", "evidence": ["D", "D:2:2", "D9:9"], "category": 3},
    {"question": "A dog?", "evidence": [], "category": 5, "adversarial_answer": "Rex"},
    {"question": "Is it Ann's?", "answer": "No", "evidence": [], "category": 5},
    {"question": "Lost?", "evidence": ["D1:1"], "category": 1},
]


@pytest.fixture
def small(tmp_path: Path) -> LocomoOptions:
    ids = [*IDS, "conv-1"]
    path = tmp_path / "small.json"
    path.write_text(json.dumps([conversation(id, QA) for id in ids]))
    return LocomoOptions(path, tmp_path / "out")


def test_a_small_file(small):
    report = build_locomo(small)
    assert sum(report.tasks.values()) == 3 * 11 and report.adversarial_dropped == 2 * 11
    assert set(report.memories.values()) == {7}
    assert report.categories == {"open-domain": 11, "single-hop": 11, "temporal": 11}
    own = [problem.split(": ", 1) for problem in report.problems if "conv-26" in problem]
    assert own == [
        ["conv-26 conversation D1:2", "a memory without text; left out"],
        ["conv-26 event_summary events_session_1", "a memory without text; left out"],
        ["conv-26 qa1", "the answer 2022 is not a text; read as '2022'"],
        ["conv-26 qa1", "evidence 'D1:1; D2:01' is read as D1:1, D2:1"],
        ["conv-26 qa2", "evidence 'D' names no turn of the conversation"],
        ["conv-26 qa2", "evidence 'D:2:2' is read as D2:2"],
        ["conv-26 qa2", "evidence 'D9:9' names no turn of the conversation"],
        ["conv-26 qa3", "names no evidence"],
        ["conv-26 qa4", "names no evidence"],
        ["conv-26 qa5", "has no answer; left out"],
    ]


def test_memories_have_levels_speakers_evidence_sessions_and_times(small):
    build_locomo(small)
    drafts = load_memories(small.output)["conv-26"]
    assert [(d.content, d.metadata["source"], d.metadata["session"]) for d in drafts] == [
        ("Ann lives in conv-26", "observation", "session_1"),
        ("Bob has a cat", "observation", "session_2"),
        ("I live in conv-26", "conversation", "session_1"),
        ("I got a cat ", "conversation", "session_2"),
        ("Nice!", "conversation", "session_2"),
        ("Ann moves", "event_summary", "session_1"),
        ("Bob adopts a cat", "event_summary", "session_2"),
    ]
    assert drafts[1].metadata["evidence"] == ("D2:1", "D2:2")
    assert [d.metadata["timestamp"] for d in drafts] == [
        *("1 pm on 8 May, 2023", "unknown time", "1 pm on 8 May, 2023", "unknown time"),
        *("unknown time", "1 pm on 8 May, 2023", "9 May, 2023"),
    ]
    fewer = replace(small, observation=False, event_summary=False)
    assert build_locomo(fewer).memories["conv-26"] == 3


def test_tasks_load_back(small):
    build_locomo(small)
    tasks = load_tasks(small.output / "train.parquet") + load_tasks(small.output / "test.parquet")
    task = next(task for task in tasks if task.meta["namespace"].startswith("conv-26-qa2-"))
    assert task.id == task.meta["namespace"] and task.source == "locomo"
    assert task.chunks == (
        "[session_1, 1 pm on 8 May, 2023]\nAnn: I live in conv-26 [shares a photo: a small house]",
        "[session_2, unknown time]\nBob: I got a cat\nAnn: Nice!",
    )
    (question,) = task.questions
    assert (question.text, question.answers, question.category) == ("Why?", ("so",), "open-domain")
    assert question.evidence == (1,) and task.meta["dia_ids"] == ["D2:2"]
    assert "prompt" not in task.meta  # what an agent is shown is its own
    (small.output / "sessions.parquet").unlink()
    with pytest.raises(UserError, match=r"sessions\.parquet"):
        load_tasks(small.output / "train.parquet")


def test_adversarial_questions_are_kept_on_request(small):
    build_locomo(replace(small, adversarial=True, test=("conv-26",)))
    tasks = load_tasks(small.output / "test.parquet")
    asked = {task.meta["qa_index"]: task.questions[0] for task in tasks}
    assert asked[3].answers == ("Not mentioned in the conversation", "No information available")
    assert asked[4].answers[0] == "No" and asked[4].category == "adversarial"
    assert tasks[3].meta["adversarial_answer"] == "Rex"
    assert abstains("It is Not mentioned.") and not abstains("Rex")


def test_rows_have_the_columns_verl_reads(small):
    build_locomo(small)
    rows = pq.read_table(small.output / "test.parquet").to_pylist()
    # No prompt: it would be one that no agent here is ever given.
    assert list(rows[0]) == ["data_source", "agent_name", "reward_model", "extra_info"]
    info = rows[0]["extra_info"]
    assert re.fullmatch(r"conv-\d+-qa\d+-[0-9a-f]{8}", info["namespace"])
    place = {"sample_id": info["sample_id"], "namespace": info["namespace"]}
    assert info["tools_kwargs"]["search_memory"]["create_kwargs"] == place
    assert rows[0]["data_source"] == f"locomo-{info['sample_id']}"
    assert rows[0]["agent_name"] == "tool_agent" and info["index"] == 0
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": info["target_answer"]}


def test_running_twice_gives_the_same_bytes(small):
    again = replace(small, output=small.output.with_name("again"))
    assert build_locomo(small) == build_locomo(again)
    names = sorted(path.name for path in small.output.iterdir())
    assert names == sorted(path.name for path in again.output.iterdir()) and len(names) == 7
    for name in names:
        assert (small.output / name).read_bytes() == (again.output / name).read_bytes()


def test_the_published_split():
    train = [f"conv-{n}" for n in (48, 42, 41, 49, 44, 47, 50)]
    assert split(IDS) == {"train": train, "test": ["conv-43", "conv-26", "conv-30"]}
    part = split(["conv-26", "conv-30", "conv-41", "conv-42", "conv-43"])
    assert part == {"train": ["conv-42", "conv-41"], "test": ["conv-43", "conv-26", "conv-30"]}


def test_other_splits_are_disjoint_and_complete():
    for ids in (IDS, IDS[:4], ["a", "b", "c"], ["a"]):
        for seed in range(5):
            parts = split(ids, seed, 0.5)
            assert sorted(parts["train"] + parts["test"]) == sorted(ids)
    named = split(IDS, test=["conv-50"])
    assert named["test"] == ["conv-50"] and len(named["train"]) == 9
    with pytest.raises(UserError, match="conv-99"):
        split(IDS, test=["conv-99"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "JSON"),
        ("{}", "list of conversations"),
        ("[3]", "not an object"),
        ('[{"sample_id": "conv-1"}]', "conversation of conv-1"),
        (json.dumps([conversation("conv-1", []), conversation("conv-1", [])]), "more than once"),
        (json.dumps([{**conversation("conv-1", []), "observation": [1]}]), "shape of a LoCoMo"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, content, says):
    path = tmp_path / "wrong.json"
    path.write_text(content)
    with pytest.raises(UserError, match=says):
        build_locomo(LocomoOptions(path, tmp_path / "out"))
    with pytest.raises(UserError, match="no file"):
        read_locomo(tmp_path / "missing.json")


@needs_real
def test_the_published_counts(tmp_path):
    report = build_locomo(LocomoOptions(REAL, tmp_path))
    expected = {"conv-26": 628, "conv-30": 567, "conv-41": 1081, "conv-42": 973, "conv-43": 1023}
    assert report.memories == expected
    assert report.tasks["test"] == 411 and report.adversarial_dropped == 237
    assert report.categories == {
        "multi-hop": 142,
        "open-domain": 46,
        "single-hop": 418,
        "temporal": 156,
    }
    assert len(report.problems) == 13
    tasks = load_tasks(tmp_path / "test.parquet")
    assert len({task.id for task in tasks}) == 411
    # Evidence points at chunks that really hold the turns.
    sessions = {c.id: c.sessions for c in read_locomo(REAL)}
    for task in tasks:
        own = sessions[task.meta["sample_id"]]
        held = {dia for at in task.questions[0].evidence for dia in own[at].dia_ids}
        assert held.issuperset(task.meta["dia_ids"])
    bases = load_corpora(tmp_path)
    assert {id: len(base) for id, base in bases.items()} == expected
    assert Store(bases["conv-26"]).get("memory_185").content.startswith("Hey Mel!")


@needs_real
def test_the_real_file_may_be_unpacked(tmp_path):
    path = tmp_path / "locomo10.json"
    path.write_bytes(gzip.decompress(REAL.read_bytes()))
    assert read_locomo(path) == read_locomo(REAL)

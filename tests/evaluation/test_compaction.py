"""The comparison of ways to compact: one window for all, one reading, and what is lost counts."""

from argparse import Namespace
from collections import defaultdict

import pytest

import recollect
from benchmarks.compaction import BYTES, OURS, covered, report, scored, shown, ways
from benchmarks.compaction_ways import evidence_in
from benchmarks.copying import Extract, units
from recollect.policies.scripted import ScriptedPolicy
from recollect.types import Question, Task

FILLER = [f"Ben: We saw the film {i} and then went home again, as always." for i in range(120)]
KNOWN = "endpoint, question known"


class Talk:
    """One conversation, three questions; only the last answer is near the end."""

    name = "talk"
    metric = "answer_overlap"

    def size(self, split):
        return 3

    def longer(self, times):
        return self

    def task(self, index, seed=0, split="test"):
        early, late = "Ann: My boat is called Zephyr.", "Ann: The dog is called Biscuit."
        middle = "Ann: someone at sea taught her to knit"
        lines = [early, *FILLER[:60], middle, *FILLER[60:], late]
        parts = [lines[i : i + 13] for i in range(0, len(lines), 13)]
        chunks = tuple("\n".join([f"[day {i}]", *part]) for i, part in enumerate(parts))
        asked = (
            Question("What is Ann's boat called?", ("Zephyr",), evidence=(0,)),
            Question("Who taught Ann to knit?", ("someone at sea",), evidence=(4,)),
            Question("What is Ann's dog called?", ("Biscuit",), evidence=(9,)),
        )
        turns = (["D1:1"], ["D5:10"], ["D10:6"])
        meta = {"cluster": "talk", "questions": [{"evidence_turns": turns[index]}]}
        return Task(f"talk {index}", chunks, asked[index : index + 1], meta=meta)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("compaction")
    options = Namespace(model="scripted", memory=60, answer=40, window=900, out=out)
    model = ScriptedPolicy.model(Extract(60 * BYTES, 40 * BYTES))
    result = recollect.evaluate(
        tasks=[Talk()], agents=ways(options), model=model, n=3, out=out / "evaluation",
        temperature=0.0, closed_book=False, quiet=True,
    )  # fmt: skip
    return result, scored(result)["talk"]


def test_every_way_answers_within_the_same_window(measured):
    result, _ = measured
    most: dict[str, int] = defaultdict(int)
    for record in result.episodes:
        for context in record["contexts"]:
            start, length, *_ = context["turns"][0]
            most[record["agent"]] = max(most[record["agent"]], start + length)
        assert record["failure"] is None
    compacted = {agent: size for agent, size in most.items() if "full" not in agent}
    assert len(compacted) == 6 and max(compacted.values()) <= 900 * BYTES
    assert most["before: full text"] > 6000


def test_what_was_right_before_and_wrong_after_is_counted(measured):
    result, answers = measured
    right = {agent: [a.scores[0] for a in own] for agent, own in answers.items()}
    assert right["before: full text"] == right["before: evidence"] == [1, 1, 1]
    assert right["truncation"] == [0, 0, 1]
    for agent in (OURS, KNOWN, "summary", "retrieval"):
        assert right[agent] == [1, 1, 1], agent
    rows = {row.split(" | ")[0]: row for row in report(result)}
    assert "| 67% |" in rows["| truncation"] and "| 0% |" in rows[f"| {OURS}"]
    assert "+0.667" in rows["| truncation"] and "+0.000" in rows["| retrieval"]
    evidence = shown(result)
    assert evidence["talk", "before: evidence"] == evidence["talk", KNOWN] == 1
    assert evidence["talk", "truncation"] < 0.6


def test_a_conversation_is_read_once_for_all_questions(measured):
    result, _ = measured
    calls = defaultdict(list)
    for record in result.episodes:
        reading = [c for c in record["contexts"] if c["role"] == "memory"]
        calls[record["agent"]].append(len(reading))
    assert sorted(calls[OURS])[:2] == sorted(calls["summary"])[:2] == [0, 0]
    assert max(calls[OURS]) > 2 and min(calls[KNOWN]) > 2 and not max(calls["truncation"])


def test_evidence_is_counted_by_its_rare_words():
    task = Talk().task(0)
    assert evidence_in(task, "My boat, Ann, is called ZEPHYR") == 1.0
    assert evidence_in(task, "the Zephyr") == 0.25 and evidence_in(task, "film 7, my home") == 0.0


def test_a_long_reply_is_not_right():
    assert covered("It was the lighthouse keeper.", ("a lighthouse keeper",))
    assert not covered("keeper or " * 40 + "lighthouse", ("a lighthouse keeper",))
    assert not covered("a baker", ("a lighthouse keeper",))


def test_the_scripted_model_copies_within_its_budget():
    long = "Eve: " + "This is one sentence of many. " * 10
    [unit] = set(units(f"[1 May]\n{long}"))
    assert (unit.date, unit.said) == ("[1 May]", "Eve: This is one sentence of many.")
    assert unit.brief == "Eve: one sentence"
    kept = Extract(60, 40).keep("", "", "[1 May]\nEve: hi\nEve: I met Ada in Oslo\nEve: hi hi hi")
    assert "Ada" in kept and "Oslo" in kept and len(kept) <= 60
    # Without a question it keeps names; with one, what is asked about.
    text = "Al: Bo, Cy, Di, Ed and Flo\nAl: it rained on the picnic"
    assert "Flo" in Extract(30, 40).keep("", "", text)
    assert "rained" in Extract(30, 40).keep("What of the picnic?", "", text)

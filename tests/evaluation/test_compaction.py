"""The comparison of ways to compact: equal tokens, one reading, and what is lost is counted."""

from argparse import Namespace
from collections import defaultdict

import pytest

import recollect
from benchmarks.compaction import BYTES, covered, scored, table, ways
from benchmarks.copying import Extract, units
from recollect.policies.scripted import ScriptedPolicy
from recollect.types import Question, Task

FILLER = [f"Ben: We saw the film {i} and then went home again, as always." for i in range(120)]


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
        middle = "Ann: a lighthouse keeper taught her to knit"
        lines = [early, *FILLER[:60], middle, *FILLER[60:], late]
        chunks = tuple("\n".join(lines[i : i + 41]) for i in range(0, len(lines), 41))
        asked = (
            Question("What is Ann's boat called?", ("Zephyr",), evidence=(0,)),
            Question("Who taught Ann to knit?", ("a lighthouse keeper",), evidence=(1,)),
            Question("What is Ann's dog called?", ("Biscuit",), evidence=(2,)),
        )
        return Task(f"talk {index}", chunks, asked[index : index + 1], meta={"cluster": "talk"})


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("compaction")
    options = Namespace(model="scripted", memory=60, answer=40, window=700, out=out)
    model = ScriptedPolicy.model(Extract(60 * BYTES, 40 * BYTES))
    result = recollect.evaluate(
        tasks=[Talk()], agents=ways(options), model=model, n=3, out=out / "evaluation",
        temperature=0.0, closed_book=False, quiet=True,
    )  # fmt: skip
    return result, scored(result)["talk"]


def test_every_way_answers_from_the_same_number_of_tokens(measured):
    result, _ = measured
    most: dict[str, int] = defaultdict(int)
    for record in result.episodes:
        [last] = [c for c in record["contexts"] if c["role"] == "answer"]
        most[record["agent"]] = max(most[record["agent"]], last["turns"][0][0])
        assert record["failure"] is None
    compacted = {agent: size for agent, size in most.items() if not agent.startswith("before")}
    assert len(compacted) == 6 and max(compacted.values()) < 60 * BYTES + 400
    assert min(compacted.values()) > max(compacted.values()) - 250
    assert most["before: full text"] > 6000


def test_what_was_right_before_and_wrong_after_is_counted(measured):
    result, answers = measured
    right = {agent: [a.scores[0] for a in own] for agent, own in answers.items()}
    assert right["before: full text"] == right["before: evidence"] == [1, 1, 1]
    assert right["truncation"] == [0, 0, 1]
    # A copying model that does not know the question keeps names; one that knows it, what is asked.
    assert right["kept fold"] == right["summary, rolling"] == [1, 0, 1]
    assert right["kept fold, question known"] == right["retrieval"] == [1, 1, 1]
    assert right["summary, once"] == [0, 0, 1]
    cells = {cell.agent: cell for cell in result.results.cells}
    rows = {row.split(" | ")[0]: row for row in table("talk", answers, cells)}
    assert "| 67% |" in rows["| truncation"] and "| 33% |" in rows["| kept fold"]
    assert "+0.333" in rows["| truncation"]


def test_a_conversation_is_read_once_for_all_questions(measured):
    result, _ = measured
    calls = defaultdict(list)
    for record in result.episodes:
        reading = [c for c in record["contexts"] if c["role"] == "memory"]
        calls[record["agent"]].append(len(reading))
    assert sorted(calls["kept fold"])[:2] == [0, 0] and max(calls["kept fold"]) > 3
    assert min(calls["kept fold, question known"]) > 3


def test_a_long_reply_is_not_right():
    assert covered("It was the lighthouse keeper.", ("a lighthouse keeper",))
    assert not covered("keeper or " * 40 + "lighthouse", ("a lighthouse keeper",))
    assert not covered("a baker", ("a lighthouse keeper",))
    long = "Eve: " + "This is one sentence of many. " * 10
    assert units(f"[1 May]\n{long}")[1] == "[1 May] Eve: This is one sentence of many."

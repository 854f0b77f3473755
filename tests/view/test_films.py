"""Films: memories after every turn, what changed in them, and stores with their searches."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.agents.recursive import RecursiveAgent
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.programs import ProgramReward
from recollect.rollout import Rollout
from recollect.runs.episodes import episode_record
from recollect.types import Question, Task
from recollect.view.differences import changes, marked, marked_changes
from recollect.view.films import film
from recollect.view.memories import Memory
from recollect.view.stored import LONGEST, Op, clean, of_run
from tests.support.hostile import ACTS_ON_A_SCREEN, texts
from tests.support.viewing import LOST, context, decode, episode

WORDS = st.text("ab \n.", max_size=40)


@given(WORDS, WORDS)
def test_changes_lead_from_one_text_to_the_other(before, after):
    found = changes(before, after)
    assert "".join(text for kind, text in found if kind != "+") == before
    assert "".join(text for kind, text in found if kind != "-") == after


@given(WORDS, WORDS, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4))
def test_marks_change_no_text(before, after, spans):
    spans = [(a, b) for a, b in spans if a < b <= len(after)]
    assert "".join(text for text, _ in marked(after, spans)) == after
    pieces = marked_changes(changes(before, after), spans)
    assert "".join(text for kind, text, _ in pieces if kind != "-") == after
    plain = {i for a, b in spans for i in range(a, b)}
    at = 0
    for kind, text, hit in pieces:
        if kind != "-":
            assert all((i in plain) == hit for i in range(at, at + len(text)))
            at += len(text)


def test_a_film_shows_where_an_answer_dies():
    found = film(of_run(json.loads(json.dumps(episode_record(LOST, decode)))))
    assert found["questions"][0]["cause"] == "overwritten" and found["questions"][0]["died"] == 2
    first, _, last, _ = found["frames"]
    assert ["mango", True] in [list(piece) for piece in first["read"]]
    assert [kind for kind, _, _ in last["memory"]][:2] == ["-", "+"]
    assert [frame["holds"][0] for frame in found["frames"]] == [True, True, False, False]


def test_a_store_shows_operations_searches_and_who_wrote_what_was_found():
    line = "1. {} | {} | speaker: Dev | evidence: D3:3 | session: s3 | time: x | source: y"
    own = episode("curated", [], "", right=False)
    said = context("memory", "Which fruit?", "search", label="curate")
    for prompt, reply in (
        ("1 memory found for 'x':\n" + line.format("memory_4", "I love mango"), "create"),
        ("Created memory_9.", "search"),
        ("1 memory found for 'y':\n" + line.format("memory_9", "Maria picks mango"), "DONE"),
    ):
        more = context("memory", prompt, reply)
        start = len(said.ids) + more.turns[0].start
        said.turns.append(type(more.turns[0])(start, *list(vars(more.turns[0]).values())[1:]))
        said.ids += more.ids
    own.contexts = [said]
    own.ops = [Op("add", {"content": "Maria picks mango", "metadata": {}}, "turn 2")]
    found = film(of_run(json.loads(json.dumps(episode_record(own, decode), default=vars))))
    frames = found["frames"]
    assert frames[1]["results"][0]["origin"] == "there before the episode"
    assert frames[1]["edits"][0]["made"] == ["memory_9"]
    assert frames[3]["results"][0]["origin"] == "add in turn 2"
    assert found["questions"][0]["entered"] == 1


@pytest.mark.parametrize("fresh", [False, True])
def test_programs_show_their_results_and_a_tree_of_calls(fresh):
    task = Task("t", ("Ann has a fig. " * 9, "Bob has a plum."), (Question("Bob?", ("plum",)),))
    programs = {
        "answer(ask(chunks, 'Which?'))": "<result>\n",  # after a first result
        "print(len(text))": "<problem>\nBob?\n</problem>",
        "answer(ask(text[:9], 'Who?'))": "in the variable text",
    }

    def speak(prompt: str) -> str:
        chosen = (program for program, shown in programs.items() if shown in prompt)
        return f"```\n{next(chosen, '')}\n```" if "<text>" not in prompt else "a plum"

    agent = RecursiveAgent(max_turn_tokens=99, max_part_tokens=64, max_depth=2, fresh_turns=fresh)
    model = ScriptedPolicy.model(speak)
    tokens = model.renderer.tokenizer
    rollout = Rollout(agent, {"memory": model, "answer": model}, ProgramReward(), concurrency=1)
    own = asyncio.run(rollout.episode(task, 0, (0,)))
    assert own.ok and own.answers == ["\\boxed{a plum, a plum}"]
    frames = film(
        of_run(json.loads(json.dumps(episode_record(own, lambda _role, ids: tokens.decode(ids)))))
    )["frames"]
    assert [(f["label"], f["depth"]) for f in frames] == [
        *((f"question 1 turn {i}" if fresh else "question 1", 0) for i in (1, 2)),
        ("question 1 call 2", 1),
        ("question 1 call 1" + " turn 1" * fresh, 1),
        ("question 1 call 1 call 1", 2),
    ]
    assert [f["program"] for f in frames[:2]] == [
        "print(len(text))",
        "answer(ask(chunks, 'Which?'))",
    ]
    assert frames[0]["result"] == str(len("\n\n".join(task.chunks))) and frames[1]["result"] is None
    assert frames[0]["calls"] == frames[1]["calls"] == [2, 3] and frames[3]["calls"] == [4]
    assert frames[2]["program"] is None and frames[2]["calls"] == []


def test_every_kind_of_memory_is_replayed():
    bank = Memory()
    bank.apply(Op("core", {"text": "core"}))
    bank.apply(Op("add", {"title": "fruit", "content": "kiwi"}))
    bank.apply(Op("update", {"title": "fruit", "content": "mango", "new_title": "Maria"}))
    assert bank.state == {"": "core", "Maria": "mango"}
    bank.apply(Op("delete", {"title": "Maria"}))
    assert bank.text == "core"
    store = Memory()
    store.apply(Op("add", {"content": "a"}), ("memory_1",))
    store.apply(Op("add", {"content": "b"}), ("memory_2",))
    store.apply(Op("merge", {"ids": ["memory_1", "memory_2"], "content": "ab"}), ("memory_3",))
    assert store.state == {"memory_3": "ab"}
    store.apply(Op("split", {"id": "memory_3", "parts": [{"content": "c"}, {"content": "d"}]}),
                ("memory_4", "memory_5"))  # fmt: skip
    store.apply(Op("update", {"id": "memory_4", "content": "e"}))
    assert store.state == {"memory_4": "e", "memory_5": "d"}
    own = Memory()
    own.apply(Op("noted", {"what": "mango", "n": 3}, "chunk 1"))
    assert own.text == "[chunk 1] mango"


@given(texts)
def test_nothing_that_acts_on_a_screen_is_left_in_a_film(text):
    own = episode(text, [text, text], text, question=LOST.task.questions[0])
    found = film(of_run(json.loads(json.dumps(episode_record(own, decode)))))
    for piece in _texts(found):
        assert not ACTS_ON_A_SCREEN.search(piece), piece


def _texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def test_ten_megabytes_are_cut():
    assert len(clean("x" * 10_000_000)) < LONGEST + 100
    record = json.loads(json.dumps(episode_record(LOST, decode)))
    for said in record["contexts"]:  # prompts, replies and memories, in words and in one piece
        said["turns"][0] |= {"prompt": "y " * 5_000_000, "text": "z" * 10_000_000}
    record["ops"][0]["data"]["text"] = record["task"]["id"] = "w " * 5_000_000
    started = time.process_time()
    assert film(of_run(record))["frames"]
    assert time.process_time() - started < 20

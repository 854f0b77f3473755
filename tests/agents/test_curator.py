"""The curator: what it is told, what it does to a trial, and what it earns by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from recollect.advantages import grpo
from recollect.agents.curator import CuratorAgent, CuratorPrompts, card
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.chat.tools import Limits
from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.leases import MemoryStoreManager
from recollect.memory.store import replay
from recollect.memory.tools import MemoryTools
from recollect.policies.scripted import ScriptedPolicy, replies
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rollout import Rollout
from recollect.samples import make_samples
from recollect.types import Episode, Question, Task
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.world import World

TOKENIZER = ByteTokenizer()
WIDE = Limits(max_parallel_calls=32, max_turn_tokens=1 << 20)


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def run(
    task: Task,
    stores: MemoryStoreManager,
    said: Sequence[str] | Callable[[str], str],
    agent: CuratorAgent = CuratorAgent(limits=WIDE),
    **models: Model,
) -> Episode:
    script = said if callable(said) else replies(said)
    model = Model(ScriptedPolicy(TOKENIZER, script), Renderer(TOKENIZER))
    own = CuratorAgent(**{**vars(agent), "stores": stores})
    rollout = Rollout(own, {"memory": model, **models}, MemoryDelta())
    return asyncio.run(rollout.episode(task, 0, (0,)))


def one_fact(task: Task) -> list[str]:
    question, evidence = task.questions[0], ", ".join(task.meta["dia_ids"])
    fact = f"{question.text} {question.answers[0]}"
    return [
        call("search_memory", query=question.text),
        call("manage_memory", operation="create", content=fact, evidence=evidence),
        "DONE",
    ]


def no_evidence(task: Task, corpus: Corpus) -> list[str]:
    wanted = set(task.meta["dia_ids"])
    ids = [entry.id for entry in corpus if wanted & set(entry.metadata["evidence"])]
    calls = [call("manage_memory", operation="delete", memory_id=id) for id in ids]
    return ["".join(calls[at : at + 32]) for at in range(0, len(calls), 32)] + ["DONE"]


def whole_conversation(corpus: Corpus) -> list[str]:
    """Copy every turn, session by session."""
    said: dict[str, list[str]] = {}
    for entry in corpus:
        if entry.metadata["source"] == "conversation":
            said.setdefault(str(entry.metadata["session"]), []).append(entry.content)
    calls = [
        call("manage_memory", operation="create", content=" ".join(texts), session=session)
        for session, texts in said.items()
    ]
    return ["".join(calls[at : at + 32]) for at in range(0, len(calls), 32)] + ["DONE"]


# Acceptance: what a scripted policy earns


def test_what_pays_and_what_does_not(world: World):
    stores = MemoryStoreManager(world.corpora)
    tasks = [task for task in world.tasks if task.meta["dia_ids"]]
    improved = harmed = 0
    for task in tasks[:: max(1, len(tasks) // 20)]:
        corpus = world.corpus(task)
        nothing = run(task, stores, ["DONE"])
        fact = run(task, stores, one_fact(task))
        deleted = run(task, stores, no_evidence(task, corpus))
        copied = run(task, stores, whole_conversation(corpus))
        for episode in (nothing, fact, deleted, copied):
            assert episode.ok and episode.scores["tools/malformed"] == 0
        before = nothing.scores["before"]
        assert nothing.reward == 0.0 and nothing.ops == []
        assert fact.reward == 1.0 - before and fact.scores["growth/created"] == 1
        assert deleted.reward == -before and deleted.scores["growth/deleted"] > 0
        assert copied.reward is not None and copied.reward < fact.reward
        improved += fact.reward > 0
        harmed += deleted.reward < 0
    assert improved > 10 and harmed > 5
    assert stores.statistics().live == 0


# What it does


def small() -> tuple[Task, MemoryStoreManager]:
    metadata = {"source": "observation", "speaker": "Ada", "session": "session_1"}
    drafts = [
        Draft("Ada paints boats", {**metadata, "evidence": ("D1:1",), "timestamp": "8 May"}),
        Draft("Ben runs a shop", {**metadata, "speaker": "Ben", "source": "conversation"}),
    ]
    question = Question("What does Ada paint?", ("boats",), "single-hop")
    meta = {"namespace": "conv-1-qa0-00000000", "dia_ids": ["D1:1"]}
    task = Task("conv-1-qa0-00000000", (), (question,), "locomo", meta)
    return task, MemoryStoreManager({"conv-1": Corpus.build("conv-1", drafts)})


def test_the_agent_is_told_the_card_the_rules_and_the_question_but_not_the_answer():
    task, stores = small()
    seen: list[str] = []

    def script(prompt: str) -> str:
        seen.append(prompt)
        return "DONE"

    episode = run(task, stores, script, CuratorAgent(MemoryTools(("create", "merge"))))
    assert "2 memories (1 of source conversation, 1 of source observation)" in seen[0]
    assert "1 sessions about Ada and Ben" in seen[0] and "What does Ada paint?" in seen[0]
    assert "search, create, merge" in seen[0] and "search_memory" in seen[0]
    assert "boats" not in seen[0]
    assert episode.answers == [""] and episode.reward == 0.0


def test_operations_are_recorded_with_the_turn_that_made_them():
    task, stores = small()
    said = [
        call("search_memory", query="boats"),
        "<tool_call>{oops</tool_call>",
        call(
            "manage_memory", operation="create", content="Ada paints red boats", session="Session_1"
        ),
        call("manage_memory", operation="delete", memory_id="memory_2") + " DONE",
    ]
    episode = run(task, stores, said)
    assert [(op.kind, op.label) for op in episode.ops] == [("add", "turn 3"), ("delete", "turn 4")]
    corpus = stores.bases["conv-1"]
    assert replay(corpus, episode.ops).get("memory_3").metadata["timestamp"] == "8 May"
    scores = episode.scores
    assert (scores["tools/calls"], scores["tools/malformed"], scores["tools/ok"]) == (4, 1, 3)
    assert scores["tools/calls/search_memory"] == 1 and scores["tools/calls/manage_memory"] == 2
    assert scores["turns"] == 4 and scores["growth/deleted"] == 1


def test_one_context_is_one_sample_that_trains_only_what_was_said():
    task, stores = small()
    said = [call("search_memory", query="boats"), "DONE"]
    episode = run(task, stores, said)
    (context,) = episode.contexts
    assert context.role == "memory" and context.trainable
    (sample,) = make_samples([[episode]], grpo)
    trained = TOKENIZER.decode(sample.token_ids[sample.trained].tolist())
    assert trained == "".join(said)


def test_trials_do_not_see_one_another_and_close_however_they_end():
    task, stores = small()

    def fails(_prompt: str) -> str:
        raise OSError("the model is gone")

    assert run(task, stores, fails).failure is not None
    run(task, stores, one_fact(task))
    assert stores.statistics().live == 0 and stores.statistics().opened == 2
    again = run(task, stores, [call("search_memory", list_all=True), "DONE"])
    assert "agent_output" not in TOKENIZER.decode(again.contexts[0].ids)


def test_it_can_answer_in_a_role_of_its_own():
    task, stores = small()
    answerer = Model(
        ScriptedPolicy(TOKENIZER, lambda prompt: "boats" if "red boats" in prompt else "?"),
        Renderer(TOKENIZER),
        trainable=False,
    )
    said = [call("manage_memory", operation="create", content="Ada does paint red boats"), "DONE"]
    episode = run(task, stores, said, CuratorAgent(answer=True), answer=answerer)
    assert episode.answers == ["boats"]
    memory, answer = episode.contexts
    assert (answer.role, answer.trainable, answer.question) == ("answer", False, 0)
    assert answer.reward == 1.0 and memory.reward is None


def test_limits_end_the_chat():
    task, stores = small()
    endless = [call("search_memory", query="boats")] * 50
    agent = CuratorAgent(limits=Limits(max_assistant_turns=3))
    assert len(run(task, stores, endless, agent).contexts[0].turns) == 3
    tight = CuratorAgent(limits=Limits(max_context_tokens=6000))
    context = run(task, stores, endless, tight).contexts[0]
    assert context.turns[-1].end == len(context.ids) <= 6000


def test_a_card_names_what_a_base_holds(world: World):
    corpus = next(iter(world.corpora.values()))
    text = card(corpus)
    assert f"holds {len(corpus)} memories" in text and "of source event_summary" in text
    speakers = {str(entry.metadata["speaker"]) for entry in corpus}
    assert any(f"about {a} and {b}" in text for a in speakers for b in speakers)
    assert card(Corpus.build("empty")).startswith("The database holds 0 memories. Each has")


def test_mistakes_are_named():
    task, stores = small()
    with pytest.raises(UserError, match="has no memories"):
        CuratorAgent().new_memory(task)
    with pytest.raises(UserError, match="names no memories"):
        CuratorAgent(stores=stores).new_memory(Task("t", (), task.questions))
    with pytest.raises(UserError, match="no base memories for"):
        CuratorAgent(stores=stores).new_memory(Task("t", (), (), meta={"namespace": "conv-7-qa1"}))
    with pytest.raises(UserError, match="does not show"):
        CuratorPrompts(user="Do something.")
    CuratorAgent().check_window(4096)
    for limits in (Limits(max_context_tokens=9000), Limits(max_turn_tokens=4096)):
        with pytest.raises(UserError, match=r"do not fit|leave no room"):
            CuratorAgent(limits=limits).check_window(4096)

"""The bank agent: what each chat is shown and may do, token for token, and what it leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.advantages import group_advantages, grpo
from recollect.agents.bank import NO_MEMORY, BankAgent, without_thinking
from recollect.agents.bank_prompts import LEDGER_PROMPTS, BankPrompts
from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.chat.tools import Limits
from recollect.errors import UserError
from recollect.memory.bank import BankMemory, replay
from recollect.memory.bank_tools import BankTools
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerAndTools
from recollect.rollout import Rollout
from recollect.samples import make_samples
from recollect.types import Completion, Context, Episode, Question, Sampling, Task
from tests.support import hashing
from tests.support.bytes_tokenizer import END, ByteTokenizer

TOKENIZER = ByteTokenizer()
PROMPTS = BankPrompts(
    memory="Read: {chunk}\nCore: {memory}",
    memory_end="Core now.",
    answer="Core: {memory}\nAsked: {question}",
    answer_end="Answer now.",
)
LIMITS = Limits(max_assistant_turns=4, max_parallel_calls=2, max_tool_response_length=200)
AGENT = BankAgent(chunk_size=None, prompts=PROMPTS, limits=LIMITS)


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def task(*chunks: str, positions: Sequence[int | None] = (None,)) -> Task:
    questions = tuple(
        Question(f"Q{i + 1}?", (f"{i + 1}.50",), position=position)
        for i, position in enumerate(positions)
    )
    return Task("t", chunks, questions)


def model(script: Callable[[str], str], tokenizer: ByteTokenizer = TOKENIZER) -> Model:
    return Model(ScriptedPolicy(tokenizer, script), Renderer(tokenizer))


def play(
    agent: BankAgent | FoldAgent, about: Task, script: Callable[[str], str], **models: Model
) -> Episode:
    """Run one episode; the script sees the whole context as text."""
    speaking = model(script)
    roles = {"memory": speaking, "answer": speaking, **models}
    episode = asyncio.run(Rollout(agent, roles, AnswerAndTools()).episode(about, 0, (0,)))
    assert episode.ok, episode.failure
    return episode


def turns(prompt: str) -> int:
    return prompt.count("assistant\n") - 1


def scripted(**chats: list[str]) -> Callable[[str], str]:
    """Answer the chat that shows a name's text with its next reply; `_` stands for a space."""

    def script(prompt: str) -> str:
        opening = prompt.partition("assistant\n")[0]
        name = next(n for n in chats if n.replace("_", " ") in opening)
        return chats[name][turns(prompt)]

    return script


def shown(context: Context) -> str:
    return TOKENIZER.show(context.ids)


def rendered(context: Context) -> str:
    """Return a context without the tools' schemas at its start."""
    return shown(context).partition("<|end|>\n")[2]


# A whole episode, token for token


def test_every_tool_every_limit_and_a_position():
    about = task("Ada paid 1.50", "Ben paid 2.50", positions=(0, None))
    script = scripted(
        Ada_paid=[
            "<think>" + call("memory_delete", title="x") + "</think>"
            + call("memory_add", title="Ada", content="1.00")
            + call("memory_add", title="Cleo", content="9")
            + call("memory_add", title="third", content="too many"),
            call("memory_key_retrieve", title="Ada")
            + call("memory_update", title="Ada", content="1.50"),
            call("memory_delete", title="Cleo") + "<tool_call>{oops</tool_call>",
            "<think>so</think> Payments of Ada.",
        ],
        Ben_paid=[
            call("memory_list") + call("memory_add", title="Ben", content="2.50"), "Ada, Ben.",
        ],
        Q1=[
            call("memory_bm25_retrieve", query="Ben"),
            call("memory_bm25_retrieve", query="Ada"),
            call("memory_add", title="no", content="no") + call("memory_key_retrieve", title="Ada"),
            "It is \\boxed{1.50}",
        ],
        Q2=[
            call("memory_embedding_retrieve", query="Ben paid", top_k=1),
            call("memory_key_retrieve", title="Ben") + call("memory_list", filter="zzz"),
            "\\boxed{2.50}",
        ],
    )  # fmt: skip
    tools = BankTools(embedding=True)
    episode = play(replace(AGENT, tools=tools, embed=hashing.embed), about, script)

    assert episode.answers == ["It is \\boxed{1.50}", "\\boxed{2.50}"]
    contexts = {context.label: context for context in episode.contexts}
    assert list(contexts) == ["chunk 1", "question 1", "chunk 2", "question 2"]
    assert [(c.role, c.stratum, c.question) for c in episode.contexts] == [
        ("memory", "memory", None),
        ("answer", "question 1", 0),
        ("memory", "memory", None),
        ("answer", "question 2", 1),
    ]
    first, second = rendered(contexts["chunk 1"]), rendered(contexts["question 1"])
    says, tool = "<|start|>assistant\n", "<|start|>tool\n"
    replies = script.__closure__[0].cell_contents  # what was said, by chat
    assert first == (
        f"<|start|>user\nRead: Ada paid 1.50\nCore: {NO_MEMORY}<|end|>\n"
        f"{says}{replies['Ada_paid'][0]}<|end|>\n"
        f"{tool}Added 'Ada'.<|end|>\n{tool}Added 'Cleo'.<|end|>\n"
        f"{tool}Error: not carried out: at most 2 calls per turn<|end|>\n"
        f"{says}{replies['Ada_paid'][1]}<|end|>\n"
        f"{tool}1.00<|end|>\n{tool}Updated 'Ada'.<|end|>\n"
        f"{says}{replies['Ada_paid'][2]}<|end|>\n"
        f"{tool}Deleted 'Cleo'.<|end|>\n"
        f"{tool}Error: Failed to parse tool call: the JSON is broken near '{{oops</tool_call>':"
        " Expecting property name enclosed in double quotes\n\nCore now.<|end|>\n"
        f"{says}<think>so</think> Payments of Ada.<|end|>"
    )
    # Asked after the first chunk: Ben is not known yet, and what is not read is not found.
    assert second.startswith(
        "<|start|>user\nCore: Payments of Ada.\nAsked: Q1?<|end|>\n"
        f"{says}{replies['Q1'][0]}<|end|>\n{tool}No passage found for 'Ben'.<|end|>\n"
        f"{says}{replies['Q1'][1]}<|end|>\n{tool}"
    )
    found = json.loads(second.split(tool)[2].partition("<|end|>")[0])["results"]
    assert [(r["rank"], r["text"]) for r in found] == [(1, "Ada paid 1.50")]
    assert "there is no tool 'memory_add', only memory_key_retrieve, memory_list" in second
    assert f"{tool}1.50\n\nAnswer now.<|end|>" in second  # the last turn's answer is 1.50

    last = rendered(contexts["question 2"])
    assert "Core: Ada, Ben.\nAsked: Q2?" in last and f"{tool}2.50<|end|>" in last
    assert "None of 2 titles contains 'zzz'." in last and "Answer now." not in last

    # Each context is what was shown and what was sampled, nothing else.
    for context in episode.contexts:
        for turn in context.turns:
            assert tuple(context.ids[turn.start : turn.end]) == turn.token_ids
            assert turn.token_ids[-1] == END and len(turn.logprobs) == len(turn.token_ids)
        assert len(context.ids) == context.turns[-1].end
    assert [len(c.turns) for c in episode.contexts] == [4, 4, 2, 3]

    # What was counted, and what it earned: 5 of 7 calls, 2 of 4, 2 of 2, 2 of 3.
    assert [(c.counts["calls"], c.counts["ok"]) for c in episode.contexts] == [
        *((7, 5), (4, 2), (2, 2), (3, 2))
    ]
    assert contexts["chunk 1"].counts["refused"] == contexts["chunk 1"].counts["malformed"] == 1
    assert [c.reward for c in episode.contexts] == pytest.approx(
        [1.5 + 0.5 * 5 / 7, 1.5 + 0.25, 1.5 + 0.5, 1.5 + 0.5 * 2 / 3]
    )
    assert episode.scores["answer"] == 1.0 and episode.answer_scores == [1.0, 1.0]

    # The operations lead to the memory, and name who made them.
    assert [(op.kind, op.label) for op in episode.ops] == [
        *(("add", "chunk 1, turn 1"), ("add", "chunk 1, turn 1")),
        *(("update", "chunk 1, turn 2"), ("delete", "chunk 1, turn 3"), ("core", "chunk 1")),
        *(("add", "chunk 2, turn 1"), ("core", "chunk 2")),
    ]
    assert replay(episode.ops).snapshot() == {
        "core": "Ada, Ben.",
        "notes": {"Ada": "1.50", "Ben": "2.50"},
    }


def test_each_role_is_shown_its_tools_and_no_others():
    episode = play(AGENT, task("a"), lambda prompt: "core")
    memory, answer = (shown(c).partition("<|end|>")[0] for c in episode.contexts)
    for name in ("memory_add", "memory_update", "memory_delete"):
        assert f"'{name}'" in memory and f"'{name}'" not in answer
    assert "'memory_bm25_retrieve'" in answer and "retrieve'" in memory
    assert "'memory_bm25_retrieve'" not in memory and "memory_embedding_retrieve" not in answer


def test_the_questions_are_unknown_while_reading():
    episode = play(AGENT, task("a", "b", positions=(0, None)), lambda prompt: "core")
    for context in episode.contexts:
        assert ("Q1?" in shown(context)) is (context.label == "question 1")
        assert ("Q2?" in shown(context)) is (context.label == "question 2")


# Positions and windows


def test_a_question_sees_only_what_was_read_before_it():
    about = task("one", "two", "three", positions=(1, None, 0, 5, 1))

    def script(prompt: str) -> str:
        if "Read:" in prompt:
            return "read " + prompt.rpartition("Read: ")[2].partition("\n")[0]
        return f"core was {prompt.partition('Core: ')[2].partition(chr(10))[0]}"

    episode = play(AGENT, about, script)
    assert [c.label for c in episode.contexts] == [
        *("chunk 1", "question 3", "chunk 2", "question 1", "question 5", "chunk 3"),
        *("question 2", "question 4"),
    ]
    assert episode.answers == [
        *("core was read two", "core was read three", "core was read one"),
        *("core was read three", "core was read two"),
    ]


def test_windows_of_tokens_are_cut_at_positions_and_searched_as_they_were_read():
    about = task("abcdef", "ghij", positions=(0, None))
    read: list[str] = []
    script = scripted(
        Q1=[call("memory_bm25_retrieve", query="abcd ef ghij"), "done"],
        Q2=[call("memory_bm25_retrieve", query="gh ij abcd"), "done"],
        Read=["core"],
    )
    agent = replace(AGENT, chunk_size=4)
    episode = play(agent, about, script)
    read = [rendered(c).partition("Read: ")[2].partition("\nCore")[0] for c in episode.contexts]
    assert [text for text in read if text] == ["abcd", "ef", "\n\ngh", "ij"]
    by_label = {c.label: rendered(c) for c in episode.contexts}
    assert '"text": "abcd"' in by_label["question 1"] and "gh" not in by_label[
        "question 1"
    ].partition("tool\n")[2].replace("ghij", "")
    assert '"text": "ij"' in by_label["question 2"]


def test_a_task_without_chunks_still_answers():
    episode = play(AGENT, task(), lambda prompt: "\\boxed{1.5}")
    assert [c.label for c in episode.contexts] == ["question 1"] and episode.scores["answer"] == 1


def test_a_long_response_keeps_its_head():
    script = scripted(
        Read=[call("memory_add", title="x", content="0123456789" * 50), "core"],
        Q1=[call("memory_key_retrieve", title="x"), "x"],
    )
    agent = replace(AGENT, limits=replace(LIMITS, truncation="head", max_tool_response_length=100))
    told = rendered(play(agent, task("a"), script).contexts[1]).partition("tool\n")[2]
    response = told.partition("<|end|>")[0]
    assert len(response) == 100 and response.startswith("0123456789")
    assert response.endswith("[400 characters left out]\n")


# The core memory


@pytest.mark.parametrize(
    ("said", "core"),
    [
        ("plain", "plain"),
        ("<think>x</think>\n\nafter", "after"),
        ("before <think>x</think> after", "after"),
        ("x</think> after", "after"),
        ("kept <think>never ended", "kept"),
        ("<think>never ended", ""),
        ("", ""),
    ],
)
def test_thinking_is_no_memory(said, core):
    assert without_thinking(said) == core


def test_a_chat_cut_off_in_its_calls_keeps_the_old_core():
    script = scripted(
        first=["old core"],
        second=[call("memory_list")] * 4,
        third=["<think>and never ends"],
        Q1=["x"],
    )
    episode = play(AGENT, task("first", "second", "third"), script)
    assert [op.data["text"] for op in episode.ops] == ["old core"]
    assert "Core: old core" in rendered(episode.contexts[-1])
    assert len(episode.contexts[1].turns) == 4 and "Core now." in rendered(episode.contexts[1])


@dataclass(frozen=True)
class Spelling:
    """Say one thing, with "th" in two tokens, though it encodes to one."""

    text: str

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        ids = (*self.text.encode(), END)
        return Completion(ids, (-1.0,) * len(ids), "stop")


@pytest.mark.parametrize(
    ("said", "core", "ids"),
    [
        ("the th9", "e th9", tuple(b"e th9")),  # as sampled
        ("<think>x</think>the th9", "he th9"[1:], None),  # found in a longer reply: encoded
    ],
)
def test_of_a_long_core_the_last_tokens_are_kept(said, core, ids):
    agent = replace(AGENT, max_core_tokens=5)
    speaking = Model(Spelling(said), Renderer(TOKENIZER))
    episode = play(agent, task("a"), lambda prompt: "x", memory=speaking)
    kept = episode.ops[0].data
    if ids is None:
        ids = tuple(TOKENIZER.encode("the th9")[-5:])
        core = TOKENIZER.decode(ids)
        assert len(core) == 7  # two of the five tokens are "th"
    assert (kept["text"], kept["token_ids"]) == (core, ids)
    asked = episode.contexts[1].ids
    at = shown(episode.contexts[1]).index(core)
    assert at > 0 and tuple(ids) in {tuple(asked[i : i + 5]) for i in range(len(asked))}


def test_another_model_is_given_the_core_as_text():
    other = ByteTokenizer(vocab_size=300)
    answering = model(lambda prompt: "\\boxed{1.5}", other)
    episode = play(AGENT, task("a"), lambda prompt: "the core", answer=answering)
    assert "Core: the core\n" in other.show(episode.contexts[1].ids)


# Whatever a model writes

said = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", "DONE", "\\boxed{1}"]),
    st.builds(
        call,
        st.sampled_from(
            ["memory_list", "memory_key_retrieve", "memory_embedding_retrieve", "nothing"]
        ),
        **{name: st.text("ab", max_size=2) for name in ("title", "query", "filter")},
    ),
    st.builds(lambda a: call("memory_list", filter=a), st.text("ab", max_size=1)),
    st.builds(lambda a: call("memory_embedding_retrieve", query=a), st.text("ab", max_size=2)),
    st.builds(lambda a: call("memory_bm25_retrieve", query=a), st.text("ab ", max_size=3)),
    st.builds(
        lambda name, a, b: call(name, title=a, content=b),
        st.sampled_from(["memory_add", "memory_update"]),
        *(st.text("ab\ud800", max_size=2), st.text("ab", max_size=2)),
    ),
    st.builds(lambda a: call("memory_delete", title=a), st.text("ab", max_size=1)),
)


@settings(max_examples=30, deadline=None)
@given(st.data(), st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=3))
def test_any_reply_leads_to_an_episode_that_adds_up(data, positions):
    def script(prompt: str) -> str:
        text = "".join(data.draw(st.lists(said, max_size=4)))
        return text.encode(errors="replace").decode()

    kept: list[BankMemory] = []

    @dataclass(frozen=True)
    class Kept(BankAgent):
        def new_memory(self, task: Task) -> BankMemory:
            kept.append(super().new_memory(task))
            return kept[-1]

    tools = BankTools(embedding=True)
    agent = Kept(None, 8, tools=tools, limits=LIMITS, prompts=PROMPTS, embed=hashing.embed)
    episode = play(agent, task("a a", "b", "ab ba", positions=positions), script)
    assert replay(episode.ops).snapshot() == kept[0].snapshot()
    assert len(kept[0].core_ids) <= 8
    assert [c.role for c in episode.contexts].count("memory") == 3
    assert sorted(c.question for c in episode.contexts if c.question is not None) == list(
        range(len(positions))
    )
    for context in episode.contexts:
        assert 1 <= len(context.turns) <= 4 and context.turns[-1].end == len(context.ids)
        assert context.counts["calls"] == sum(
            context.counts[name] for name in ("ok", "failed", "malformed", "refused")
        )
        assert 0 <= context.reward <= 2
    assert 0 <= episode.scores["answer"] <= 1


# Credit


def test_strata_masks_and_advantages_of_a_group():
    about = task("a", "b", positions=(None, None))

    def lazy(prompt: str) -> str:
        return "core" if "Read" in prompt else "no idea"

    def good(prompt: str) -> str:
        if "Read" in prompt:
            title = "x" if "Core: Nothing" in prompt else "y"
            return "core" if turns(prompt) else call("memory_add", title=title, content="1")
        return "\\boxed{1.5}"

    group = [play(AGENT, about, lazy), play(AGENT, about, good)]
    # lazy: nothing. good: question 1 right (1.5), question 2 wrong but boxed (0.5); memory 1 + 0.5.
    assert [c.reward for c in group[0].contexts] == [0.0] * 4
    assert [c.reward for c in group[1].contexts] == [1.5, 1.5, 1.5, 0.5]
    assert group_advantages(group, grpo) == [
        [-0.75, -0.75, -0.75, -0.25],
        [0.75, 0.75, 0.75, 0.25],
    ]
    assert group[1].scores["answer"] == 0.5 and group[1].reward == 1.0 + 0.5 * 0.5
    samples = make_samples([group], grpo)
    assert len(samples) == 8 and {s.episode for s in samples} == {1, 2}
    for sample, context in zip(samples, [c for e in group for c in e.contexts], strict=True):
        said = [i for turn in context.turns for i in range(turn.start, turn.end)]
        assert np.flatnonzero(sample.trained).tolist() == said
        assert not sample.advantages[~sample.trained].any()


def test_a_fixed_role_is_in_no_sample_and_no_statistic():
    fixed = replace(model(lambda prompt: "\\boxed{1.5}"), trainable=False)
    script = scripted(Read=[call("memory_add", title="x", content="y"), "core"])
    group = [play(AGENT, task("a"), script, answer=fixed) for _ in range(2)]
    samples = make_samples([group], partial(grpo, by_std=True))
    assert len(samples) == 2 and all(not s.advantages.any() for s in samples)


# FoldAgent without the question serves the same tasks


def test_the_fold_without_the_question_does_the_same_tasks():
    about = task("one", "two", positions=(0, None))
    seen: list[str] = []

    def script(prompt: str) -> str:
        seen.append(prompt)
        return "\\boxed{2.5}" if "Q" in prompt.split("assistant")[0] else "memory"

    episode = play(FoldAgent(chunk_size=None, query_aware=False), about, script)
    assert [c.label for c in episode.contexts] == ["chunk 1", "question 1", "chunk 2", "question 2"]
    assert not any("Q1?" in prompt or "Q2?" in prompt for prompt in (seen[0], seen[2]))
    assert [c.reward for c in episode.contexts] == [1.0, 0.5, 1.0, 1.5]
    assert episode.answer_scores == [0.0, 1.0]


# Settings


def test_impossible_settings_name_the_fix():
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: BankAgent(chunk_size=0), "--agent.chunk-size to 1 or more"),
        (lambda: BankAgent(max_core_tokens=0), "--agent.max-core-tokens to 1 or more"),
        (lambda: BankPrompts(memory="{chunk}"), "needs {chunk} and {memory}"),
        (lambda: BankPrompts(answer="{memory} {chunk}"), "needs {memory} and {question}"),
        (lambda: BankAgent().check_window(4096), "--agent.chunk-size to at most 1816"),
        (lambda: BankAgent().check_window(1024), "choose a model with a larger window"),
        (
            lambda: BankAgent(limits=Limits(max_context_tokens=9000)).check_window(8192),
            "--agent.limits.max-context-tokens to at most 8192",
        ),
    ]
    for make, message in cases:
        with pytest.raises(UserError) as error:
            make()
        assert message in str(error.value)
    BankAgent().check_window(8192)
    with pytest.raises(UserError, match="needs an embedder"):
        play(replace(AGENT, tools=BankTools(embedding=True)), task("a"), lambda prompt: "x")
    assert BankAgent().new_memory(task()) == BankMemory()
    assert "{chunk}" in LEDGER_PROMPTS.memory


def test_a_chat_that_cannot_begin_fails_its_episode_only():
    limits = replace(LIMITS, max_context_tokens=50)
    roles = dict.fromkeys(("memory", "answer"), model(lambda prompt: "x"))
    rollout = Rollout(replace(AGENT, limits=limits), roles, AnswerAndTools())
    episode = asyncio.run(rollout.episode(task("a"), 0, (0,)))
    assert episode.failure and episode.failure.kind == "ContextFull"

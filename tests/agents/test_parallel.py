"""Parallel reading, by hand: rounds, selection, merges, and no dependence on who is done first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from recollect.advantages import group_advantages, grpo
from recollect.agents.fold import NO_MEMORY
from recollect.agents.parallel import ParallelAgent
from recollect.agents.parallel_prompts import ParallelPrompts
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer
from recollect.errors import UserError
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward, WithMemoryRecall
from recollect.rewards.reading import RoundReward
from recollect.types import Completion, Episode, Question, Sampling, Task
from tests.support.play import TOKENIZER, Played, play

OWN = ParallelAgent(chunk_size=None)
NO = "<check>no</check>"


def story(*chunks: str, position: int | None = None) -> Task:
    questions = (Question("Who?", ("x",)), Question("Where?", ("x",), position=position))
    return Task("t", chunks, questions[: 1 if position is None else 2])


def inside(prompt: str, tag: str) -> str:
    return prompt.partition(f"<{tag}>\n")[2].partition(f"\n</{tag}>")[0]


def reader(prompt: str) -> str:
    """Note every section that is in capitals and not in the memory; merge to a list."""
    if "<notes>" in prompt:
        notes = [line.partition("] ")[2] for line in inside(prompt, "notes").splitlines()]
        known = inside(prompt, "memory")
        return "+".join([*([] if known == NO_MEMORY else [known]), *notes])
    section, known = inside(prompt, "section"), inside(prompt, "memory")
    # A section "C if B" only makes sense once B is known.
    fact, _, needed = section.partition(" if ")
    if not fact.isupper() or fact in known or needed not in known:
        return NO
    return f"<check>yes</check><note>{fact}</note>"


def told(agent: ParallelAgent, task: Task, write=reader, answer: str = "\\boxed{x}") -> Played:
    return play(agent, task, write=write, answer=lambda _: answer)


def labels(played: Played) -> list[str]:
    return [c.label for c in played.contexts]


# --- the loop -------------------------------------------------------------------------------------


def test_rounds_until_nothing_new_is_found():
    played = told(OWN, story("A", "b", "C if A"))
    assert labels(played) == [
        *("round 1 chunk 1", "round 1 chunk 2", "round 1 chunk 3", "round 1 merge"),
        *("round 2 chunk 1", "round 2 chunk 2", "round 2 chunk 3", "round 2 merge"),
        *("round 3 chunk 1", "round 3 chunk 2", "round 3 chunk 3"),
        "question 1",
    ]
    assert [op.data["text"] for op in played.memory.ops] == ["A", "A+C"]
    assert [op.label for op in played.memory.ops] == ["round 1 merge", "round 2 merge"]
    kept = [c.counts["kept"] for c in played.contexts if c.chunks is not None]
    assert kept == [1, 0, 0, 0, 0, 1, 0, 0, 0]
    assert [c.chunks for c in played.contexts[:4]] == [(0, 0), (1, 1), (2, 2), None]
    assert "<memory>\nA+C\n</memory>" in played.prompts["answer"][0]
    read = played.prompts["memory"][0]
    assert read.index("<section>") < read.index("<memory>")  # siblings share what comes before


def test_as_many_rounds_as_allowed():
    played = told(replace(OWN, max_rounds=2), story("A", "C if A", "D if C"))
    assert labels(played)[-2:] == ["round 2 merge", "question 1"]
    assert played.memory.text == "A+C"


def test_a_text_without_anything_is_read_once_and_not_merged():
    played = told(OWN, story("a", "b"))
    assert labels(played) == ["round 1 chunk 1", "round 1 chunk 2", "question 1"]
    assert NO_MEMORY in played.prompts["answer"][0] and not played.memory.ops


@pytest.mark.parametrize("chunks", [(), ("A",)])
def test_nothing_or_little_to_read(chunks):
    played = told(OWN, story(*chunks))
    assert len(played.contexts) == (4 if chunks else 1)
    assert played.memory.text == "".join(chunks)


def test_many_notes_are_merged_in_groups_and_in_order():
    names = [f"N{i}" for i in range(11)]
    played = told(replace(OWN, fan_in=3, max_rounds=1), story(*names))
    merges = [label for label in labels(played) if "merge" in label]
    assert merges == [
        *(f"round 1 merge 1.{i}" for i in (1, 2, 3, 4)),
        *(f"round 1 merge 2.{i}" for i in (1, 2)),
        "round 1 merge",
    ]
    assert played.memory.text == "+".join(names)
    sizes = [inside(p, "notes").count("\n") + 1 for p in played.prompts["memory"] if "<notes>" in p]
    assert sizes == [3, 3, 3, 2, 3, 1, 2]


def test_a_malformed_note_is_not_kept():
    replies = {"a": "A good one", "b": "<check>yes</check>", "c": "<check>yes</check><note>B"}
    played = told(
        replace(OWN, max_rounds=1),
        story("a", "b", "c"),
        write=lambda p: reader(p) if "<notes>" in p else replies[inside(p, "section")],
    )
    assert [c.counts["malformed"] for c in played.contexts[:3]] == [1, 1, 1]
    assert played.memory.text == "B"  # cut off, and kept as far as it goes


def test_questions_midway_see_only_what_came_before():
    played = told(OWN, story("A", "b", "C", position=1))
    assert labels(played) == [
        *("round 1 chunk 1", "round 1 chunk 2", "round 1 merge"),
        *("round 2 chunk 1", "round 2 chunk 2", "question 2"),
        *("round 3 chunk 1", "round 3 merge", "round 4 chunk 1", "question 1"),
    ]
    midway, last = played.prompts["answer"]
    assert inside(midway, "memory") == "A" and inside(last, "memory") == "A+C"
    assert [c.chunks for c in played.contexts][6] == (2, 2)


def test_text_after_the_last_question_is_not_read():
    only = Task("t", ("A", "never"), (Question("Who?", ("x",), position=0),))
    played = told(OWN, only)
    assert not any("never" in prompt for own in played.prompts.values() for prompt in own)


def test_the_merged_memory_is_carried_token_for_token():
    played = told(replace(OWN, max_rounds=1), story("THE"), write=lambda p: reader(p).lower())
    assert played.memory.text == "the" and played.memory.token_ids == tuple(TOKENIZER.encode("the"))


def test_settings_and_prompts_are_checked():
    agent = ParallelAgent(100, 10, 20, fan_in=2)
    agent.check_window(386)
    with pytest.raises(UserError, match=r"386 tokens and merging 332.* window of 385"):
        agent.check_window(385)
    with pytest.raises(UserError, match="merging 368"):
        replace(agent, chunk_size=None, fan_in=4).check_window(367)
    with pytest.raises(UserError, match="fan_in is 1"):
        ParallelAgent(fan_in=1)
    with pytest.raises(UserError, match="max_rounds is 0"):
        ParallelAgent(max_rounds=0)
    with pytest.raises(UserError, match="the prompt merge shows"):
        ParallelPrompts(merge="{notes}")


# --- concurrency ----------------------------------------------------------------------------------


@dataclass
class Shuffled:
    """Reply by the seed alone, after waiting a number of turns that differs from run to run."""

    waits: Random
    inside: int = 0
    most: int = 0
    order: list[int] = field(default_factory=list)

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        self.inside += 1
        self.most = max(self.most, self.inside)
        for _ in range(self.waits.randrange(20)):
            await asyncio.sleep(0)
        self.inside -= 1
        self.order.append(sampling.seed)
        drawn = Random(sampling.seed)
        prompt = TOKENIZER.decode(prompt_ids)
        reply = f"<check>yes</check><note>{drawn.random()}</note>"
        if "<notes>" in prompt or "<section>" not in prompt:
            reply = f"{drawn.random()}"
        elif drawn.random() < 0.4:
            reply = NO
        policy = ScriptedPolicy(TOKENIZER, lambda _prompt: reply)
        return await policy.sample(prompt_ids, sampling)


def test_who_is_done_first_changes_nothing():
    agent = replace(OWN, fan_in=2)
    task = story(*(f"chunk {i}" for i in range(9)), position=4)
    runs, orders = [], []
    for seed in range(4):
        policy = Shuffled(Random(seed))
        model = Model(policy, Renderer(TOKENIZER))
        chats = Chats({"memory": model, "answer": model}, (7,))
        memory = agent.new_memory(task)
        answers = asyncio.run(agent.run(task, chats, memory))
        runs.append((answers, memory.ops, [(c.label, c.ids, c.counts) for c in chats.contexts]))
        orders.append(policy.order)
        assert policy.most == 5  # the longest stretch, all at once
    assert len({tuple(order) for order in orders}) > 1
    assert all(run == runs[0] for run in runs)


def test_a_failing_reader_ends_the_episode_and_leaves_nobody_behind():
    left = 0

    async def write(prompt: str) -> str:
        nonlocal left
        if inside(prompt, "section") == "b":
            raise ValueError("no reply")
        left += 1
        try:
            await asyncio.Event().wait()
        finally:
            left -= 1
        return NO

    with pytest.raises(Exception, match="no reply"):
        told(OWN, story("a", "b", "c"), write=write)
    assert left == 0


# --- rewards --------------------------------------------------------------------------------------


def scored(played: Played, task: Task, rounds: int = 3, reward=RoundReward) -> Episode:
    episode = Episode(task, 0, played.contexts, played.memory.ops, played.answers)
    score = asyncio.run(reward(max_rounds=rounds)(episode, played.memory))
    for context, own in zip(played.contexts, score.contexts, strict=True):
        context.reward = own
    episode.reward, episode.scores = score.reward, score.parts
    return episode


@pytest.mark.parametrize(
    ("chunks", "position", "rounds", "reward"),
    [
        (("a", "b"), None, 1.0, 1.2),  # one round, nothing found
        (("A", "b"), None, 2.0, 1.1),
        (("A", "C if A"), None, 3.0, 1.0),
        (("A", "b"), 0, 1.5, 1.15),  # two stretches: two rounds and one
        ((), None, 0.0, 1.0),
    ],
)
def test_few_rounds_earn_a_bonus(chunks, position, rounds, reward):
    task = story(*chunks, position=position)
    episode = scored(told(OWN, task), task)
    assert episode.scores["rounds"] == rounds
    assert episode.reward == pytest.approx(reward)
    # Who answers earns the answer; everybody else the episode's reward.
    for context in episode.contexts:
        assert context.reward == (None if context.question is None else 1.0)


def test_with_one_round_allowed_there_is_nothing_to_save():
    task = story("A", "b")
    episode = scored(told(replace(OWN, max_rounds=1), task), task, rounds=1)
    assert episode.reward == 1.0


def test_an_episode_counts_once_however_many_readers_it_had():
    task = story("A", "C if A")
    long = scored(told(OWN, task), task)
    short = scored(told(OWN, task, write=lambda _: NO, answer="\\boxed{no}"), task)
    assert (len(long.contexts), len(short.contexts)) == (9, 3)
    found = group_advantages([long, short], grpo)
    assert found[0] == pytest.approx([*[0.4] * 8, 0.5]) and found[1] == pytest.approx(
        [-0.4, -0.4, -0.5]
    )


def test_memories_of_rounds_can_be_rewarded_by_step():
    task = Task("t", ("X", "b"), (Question("Who?", ("x",)),))
    played = told(OWN, task)
    episode = Episode(task, 0, played.contexts, played.memory.ops, played.answers)
    score = asyncio.run(WithMemoryRecall(AnswerReward())(episode, played.memory))
    assert [step for step in score.steps if step] == [{"memory_recall": 1.0}]
    assert score.steps[labels(played).index("round 1 merge")]

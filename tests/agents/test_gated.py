"""Gated reading, by hand: what is kept, where it stops, what that costs and who earns what."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from recollect.advantages import group_advantages, grpo, mixed, step_advantages
from recollect.agents.fold import NO_MEMORY, FoldAgent
from recollect.agents.gated import GatedAgent, GatedPrompts, with_lines
from recollect.errors import UserError
from recollect.rewards.reading import GateReward
from recollect.types import Episode, Question, Task
from tests.support.play import TOKENIZER, Played, play

OWN = GatedAgent(chunk_size=None)
SKIP = "<check>no</check><update></update><next>continue</next>"


def keep(text: str, following: str = "continue") -> str:
    return f"<check>yes</check><update>{text}</update><next>{following}</next>"


def story(*chunks: str, evidence: tuple[int, ...] = (0,), position: int | None = None) -> Task:
    questions = (Question("Who?", ("x",), evidence=evidence),)
    if position is not None:
        questions += (Question("Where?", ("y",), evidence=(position,), position=position),)
    return Task("t", chunks, questions)


def told(agent: GatedAgent, task: Task, *replies: str, answer: str = "\\boxed{x}") -> Played:
    left = iter(replies)
    return play(agent, task, write=lambda _: next(left), answer=lambda _: answer)


def scored(played: Played, task: Task, reward: GateReward = GateReward()) -> Episode:
    """Enter an episode's score into it as a rollout does."""
    episode = Episode(task, 0, played.contexts, played.memory.ops, played.answers)
    score = asyncio.run(reward(episode, played.memory))
    for context, own, step in zip(played.contexts, score.contexts, score.steps, strict=True):
        context.reward, context.steps = own, step
    episode.reward, episode.scores = score.reward, score.parts
    return episode


# --- the loop -------------------------------------------------------------------------------------


def test_a_skipped_chunk_leaves_the_memory_as_it_is():
    task = story("one", "two", "three")
    played = told(OWN, task, keep("m1"), SKIP, keep("m3"))
    first, second, third = played.prompts["memory"]
    assert f"<memory>\n{NO_MEMORY}\n</memory>" in first and "Who?" in first
    assert "<memory>\nm1\n</memory>" in second and "<memory>\nm1\n</memory>" in third
    assert "<memory>\nm3\n</memory>" in played.prompts["answer"][0]
    assert [(op.label, op.data["text"]) for op in played.memory.ops] == [
        ("chunk 1", "m1"),
        ("chunk 3", "m3"),
    ]
    assert [c.counts["updated"] for c in played.contexts[:3]] == [1, 0, 1]
    assert [c.chunks for c in played.contexts] == [(0, 0), (1, 1), (2, 2), None]
    assert first.index("<section>") < first.index("<memory>")  # siblings share what comes before


def test_the_end_leaves_the_rest_unread_and_unpaid():
    task = story("one", "two", "never" * 100, "never" * 100)
    played = told(OWN, task, SKIP, keep("m", "end"))
    assert [c.label for c in played.contexts] == ["chunk 1", "chunk 2", "question 1"]
    assert not any("never" in prompt for own in played.prompts.values() for prompt in own)
    spent = Episode(task, 0, played.contexts).prompt_tokens
    short = told(OWN, story("one", "two"), SKIP, keep("m"))
    assert spent == Episode(task, 0, short.contexts).prompt_tokens
    assert spent < Episode(task, 0, told(OWN, task, *[SKIP] * 4).contexts).prompt_tokens - 900


def test_without_an_exit_gate_all_is_read():
    played = told(replace(OWN, exit_gate=False), story("a", "b"), keep("m", "end"), keep("n"))
    assert [c.counts.get("ended") for c in played.contexts] == [0, 0, None]
    assert played.memory.text == "n"


def test_without_an_exit_gate_no_third_part_is_asked_for():
    replies = ("<check>no</check>", "<check>yes</check><update>m</update>", "<check>yes</check>")
    played = told(replace(OWN, exit_gate=False), story("a", "b", "c"), *replies)
    assert [c.counts["malformed"] for c in played.contexts[:3]] == [0, 0, 1]
    assert played.memory.text == "m"
    assert not any("<next>" in prompt for prompt in played.prompts["memory"])
    assert "<next>" in told(OWN, story("a"), SKIP).prompts["memory"][0]
    own = GatedPrompts(read="{chunk} {memory} <next>")  # a text of one's own stays as it is
    alone = replace(OWN, exit_gate=False, prompts=own)
    assert "<next>" in told(alone, story("a"), SKIP).prompts["memory"][0]


def test_an_update_may_be_the_lines_that_change():
    replies = [keep("Ada: hall\nBen: attic"), keep("Ada: cellar\n\n Cora: hall "), keep("Dan")]
    played = told(replace(OWN, lines=True), story("a", "b", "c"), *replies)
    assert "<memory>\nBen: attic\nAda: cellar\nCora: hall\n</memory>" in played.prompts["memory"][2]
    assert played.memory.text == "Ben: attic\nAda: cellar\nCora: hall\nDan"
    assert "line of the memory" in played.prompts["memory"][0]
    assert with_lines("a: 1\nb: 2", "c: 3", TOKENIZER, 9) == "b: 2\nc: 3"  # its tokens are bytes
    assert with_lines("a: 1", "c: a very long line", TOKENIZER, 9) == "c: a very long line"
    assert with_lines("a: 1\nb: 2", "a: 3", TOKENIZER, 4) == "a: 3"  # the one just written stays
    times = "09:10 Bob left\n09:30 Ann came"
    assert with_lines(times, "09:45 Cy came", TOKENIZER, 99) == f"{times}\n09:45 Cy came"
    torn = told(
        replace(OWN, lines=True),
        story("a", "b"),
        keep("Ada: hall"),
        "<check>yes</check><update>Ada: ce",
    )
    assert torn.memory.text == "Ada: hall"


@pytest.mark.parametrize("chunks", [(), ("only",)])
def test_nothing_or_little_to_read(chunks):
    played = told(OWN, story(*chunks), *[SKIP] * len(chunks))
    assert len(played.contexts) == len(chunks) + 1
    assert NO_MEMORY in played.prompts["answer"][0] and not played.memory.ops
    assert played.answers == ["\\boxed{x}"]


def test_a_malformed_reply_changes_nothing_and_reads_on():
    played = told(OWN, story("a", "b", "c"), keep("m1"), "what?", "<check>yes</check><update>m3")
    assert [c.counts["malformed"] for c in played.contexts[:3]] == [0, 1, 1]
    assert "<memory>\nm1\n</memory>" in played.prompts["memory"][2]
    assert played.memory.text == "m3"  # cut off, and kept as far as it goes


def test_questions_are_asked_at_their_position_or_when_reading_ends():
    task = story("a", "b", "c", "d", position=1)
    played = told(OWN, task, keep("m1"), keep("m2"), keep("m3", "end"))
    labels = ["chunk 1", "chunk 2", "question 2", "chunk 3", "question 1"]
    assert [c.label for c in played.contexts] == labels
    assert "m2" in played.prompts["answer"][0] and "m3" in played.prompts["answer"][1]
    early = told(OWN, task, keep("m1", "end"))
    assert [c.label for c in early.contexts] == ["chunk 1", "question 1", "question 2"]
    assert all("m1" in prompt for prompt in early.prompts["answer"])


def test_windows_say_which_chunks_they_show():
    agent = GatedAgent(chunk_size=10)
    played = told(agent, story("x" * 25, "y" * 3, "z" * 12), *[SKIP] * 5)
    # Chunks are parted by two line ends: 25, 5 and 14 tokens.
    assert [c.chunks for c in played.contexts[:-1]] == [(0, 0), (0, 0), (0, 1), (2, 2), (2, 2)]


def test_settings_and_prompts_are_checked():
    GatedAgent(100, 10).check_window(376)
    with pytest.raises(UserError, match="window of 375"):
        GatedAgent(100, 10).check_window(375)
    with pytest.raises(UserError, match="max_memory_tokens is 0"):
        GatedAgent(max_memory_tokens=0)
    with pytest.raises(UserError, match="the prompt read shows"):
        GatedPrompts(read="{chunk}")


# --- rewards --------------------------------------------------------------------------------------

FOUR = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("replies", "evidence", "exit_", "gates"),
    [
        # Evidence in b: rewritten there and ended there.
        ((SKIP, keep("m", "end")), (1,), 0.0, [1, 1]),
        # Ended before it, and written for nothing.
        ((keep("m", "end"),), (1,), -0.75, [-1]),
        # The last evidence counts.
        ((keep("m"), keep("m", "end")), (0, 2), -0.75, [1, -1]),
        # Read on, and stopped one later; or never.
        ((SKIP, keep("m"), SKIP[:-15] + "<next>end</next>"), (1,), -0.5, [1, 1, 1]),
        ((SKIP, keep("m"), SKIP, keep("n")), (1,), -0.5, [1, 1, 1, -1]),
        # The text ends where the evidence does: there was nothing to stop.
        ((SKIP, SKIP, SKIP, SKIP), (3,), 0.0, [1, 1, 1, -1]),
        # A malformed reply has decided nothing, also where it did no harm.
        (("?", keep("m", "end")), (1,), 0.0, [-1, 1]),
    ],
)
def test_gates_are_compared_with_the_evidence(replies, evidence, exit_, gates):
    task = story(*FOUR, evidence=evidence)
    episode = scored(told(OWN, task, *replies), task)
    assert [c.steps.get("update_gate") for c in episode.contexts] == [*gates, None]
    share = sum(reply == "?" for reply in replies) / len(replies)
    assert episode.scores["exit"] == exit_
    assert episode.reward == pytest.approx(1 + exit_ - 0.5 * share)
    assert episode.scores["sections"] == len(replies) and episode.scores["malformed"] == share
    # Who answers has no part in the reading; who reads earns the episode's reward.
    assert [c.reward for c in episode.contexts] == [*[None] * len(replies), 1.0]


def test_an_evidence_spread_over_windows_may_be_left_in_any_of_them():
    task = story("x" * 25, "y" * 25, evidence=(0,))
    for read, exit_ in ((1, 0.0), (2, 0.0), (3, 0.0), (4, -0.5)):
        replies = [*[keep("m")] * (read - 1), keep("m", "end")]
        played = told(GatedAgent(chunk_size=10), task, *replies)
        assert scored(played, task).scores["exit"] == exit_


def test_a_text_that_was_cut_is_no_early_end():
    task = story(*FOUR, evidence=(2,))
    for agent, replies, exit_ in (
        (replace(OWN, max_chunks=1), [SKIP], 0.0),  # only a is read: c never came
        (replace(OWN, max_chunks=2), [SKIP, SKIP], 0.0),  # a and d: d is the first after c
        (replace(OWN, max_chunks=2), [keep("m", "end")], -0.75),
    ):
        assert scored(told(agent, task, *replies), task).scores["exit"] == exit_


def test_tasks_without_evidence_are_refused():
    task = story("a", evidence=())
    with pytest.raises(UserError, match="does not say where its evidence is"):
        scored(told(OWN, task, SKIP), task)


def test_an_empty_text_has_nothing_to_gate():
    task = story(evidence=(0,))
    assert scored(told(OWN, task), task).reward == 1.0


def test_steps_are_compared_among_those_still_reading():
    """A = 0.9 A_episode + 0.1 A_step by hand, for three siblings of which two read on."""
    task = story(*FOUR[:2], evidence=(1,))
    stopped = told(OWN, task, keep("m", "end"), answer="\\boxed{no}")  # reward 0 - 0.75
    right = told(OWN, task, SKIP, keep("m"))  # reward 1
    idle = told(OWN, task, SKIP, SKIP, answer="\\boxed{no}")  # reward 0
    group = [scored(played, task) for played in (stopped, right, idle)]
    assert [episode.reward for episode in group] == [-0.75, 1.0, 0.0]
    outcome, steps = group_advantages(group, grpo), step_advantages(group)
    mean = 0.25 / 3
    assert [own[0] for own in outcome] == pytest.approx([-0.75 - mean, 1 - mean, -mean])
    # First step -1, +1, +1; second step only +1 and -1.
    assert steps[0] == pytest.approx([-4 / 3, 0.0])
    assert steps[1] == pytest.approx([2 / 3, 1.0, 0.0])
    assert steps[2] == pytest.approx([2 / 3, -1.0, 0.0])
    found = mixed(outcome, steps, 0.9)
    assert found[1] == pytest.approx(
        [0.9 * (1 - mean) + 0.1 * 2 / 3, 0.9 * (1 - mean) + 0.1, 0.9 * 2 / 3]
    )


def test_gates_read_what_a_fold_reads():
    """With gates that always write and never end, the prompts' chunks are those of a fold."""
    task = story("x" * 25, "y" * 25, position=0)
    gated = told(GatedAgent(chunk_size=10), task, *[keep("m")] * 6)
    fold = play(FoldAgent(chunk_size=10), task, write=lambda _: "m")
    sections = [
        [prompt.partition("<section>\n")[2].partition("\n</section>")[0] for prompt in own]
        for own in (gated.prompts["memory"], fold.prompts["memory"])
    ]
    assert sections[0] == sections[1]
    assert gated.prompts["answer"] == fold.prompts["answer"]

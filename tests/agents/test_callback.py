"""Reading with callbacks, by hand: what is brought back where, and which step earns for it."""

from __future__ import annotations

import asyncio

import pytest

from recollect.advantages import step_advantages
from recollect.agents.callback import NOTHING_RECALLED, CallbackAgent, CallbackPrompts
from recollect.agents.fold import NO_MEMORY
from recollect.errors import UserError
from recollect.rewards.reading import CallbackReward
from recollect.types import Episode, Question, Task
from tests.support.play import Played, play

OWN = CallbackAgent(chunk_size=None)


def write(memory: str, query: str = "") -> str:
    return f"<update>{memory}</update>" + (f"<recall>{query}</recall>" if query else "")


def story(*chunks: str, answer: str = "x", position: int | None = None) -> Task:
    questions = (Question("Who?", (answer,)), Question("Where?", (answer,), position=position))
    return Task("t", chunks, questions[: 1 if position is None else 2])


def told(agent: CallbackAgent, task: Task, *replies: str) -> Played:
    left = iter(replies)
    return play(agent, task, write=lambda _: next(left), answer=lambda _: "\\boxed{x}")


def recalled(prompt: str) -> str:
    return prompt.partition("<recalled>\n")[2].partition("\n</recalled>")[0]


def remembered(prompt: str) -> str:
    return prompt.partition("<memory>\n")[2].partition("\n</memory>")[0]


# --- the loop -------------------------------------------------------------------------------------


def test_an_earlier_memory_stands_beside_the_present_one():
    replies = (
        write("Ada is a pilot", "Ada"),  # nothing before it to be found
        write("Bea is a cook", "what was Ada?"),
        write("Cid is a baker", "gold"),  # fits nothing
        write("Dan is a monk", "the cook"),
    )
    played = told(OWN, story("a", "b", "c", "d"), *replies)
    prompts = [*played.prompts["memory"], *played.prompts["answer"]]
    jobs = ["Ada is a pilot", "Bea is a cook", "Cid is a baker", "Dan is a monk"]
    assert [remembered(p) for p in prompts] == [NO_MEMORY, *jobs]
    nothing = NOTHING_RECALLED
    assert [recalled(p) for p in prompts] == [nothing, nothing, jobs[0], nothing, jobs[1]]
    assert [c.counts for c in played.contexts[:-1]] == [
        {"queries": 1, "recalled": found, "malformed": 0} for found in (0, 1, 0, 1)
    ]
    kinds = ["replace", "recall"] * 4
    assert [op.kind for op in played.memory.ops] == kinds
    assert [op.label for op in played.memory.ops] == [f"chunk {i // 2 + 1}" for i in range(8)]
    first = prompts[0]
    assert first.index("<section>") < first.index("<memory>") < first.index("<recalled>")


def test_what_was_brought_back_is_there_for_one_step():
    replies = (write("one x"), write("two", "x"), write("three"), write("four"))
    played = told(OWN, story("a", "b", "c", "d"), *replies)
    shown = [recalled(p) for p in [*played.prompts["memory"], *played.prompts["answer"]]]
    nothing = NOTHING_RECALLED
    assert shown == [nothing, nothing, "one x", nothing, nothing]


def test_questions_midway_see_what_was_brought_back_and_so_does_the_next_chunk():
    replies = (write("one x"), write("two", "x"), write("three"))
    played = told(OWN, story("a", "b", "c", position=1), *replies)
    labels = ["chunk 1", "chunk 2", "question 2", "chunk 3", "question 1"]
    assert [c.label for c in played.contexts] == labels
    midway, last = played.prompts["answer"]
    assert (remembered(midway), recalled(midway)) == ("two", "one x")
    assert recalled(played.prompts["memory"][2]) == "one x"
    assert (remembered(last), recalled(last)) == ("three", NOTHING_RECALLED)


def test_a_malformed_reply_is_all_memory():
    played = told(OWN, story("a", "b"), "no tags at all", "<update>cut o")
    assert remembered(played.prompts["memory"][1]) == "no tags at all"
    assert played.memory.text == "cut o"
    assert [c.counts["malformed"] for c in played.contexts[:2]] == [1, 1]


def test_an_empty_reply_leaves_the_memory_as_it_is():
    task = story("a", "b", "c", answer="fox")
    played = told(OWN, task, write("a fox"), "", "<think>without end")
    assert played.memory.text == "a fox" and played.memory.earlier == []
    gains = [c.steps.get("memory_recall") for c in scored(played, task).contexts]
    assert gains == [1.0, 0.0, 0.0, None]


@pytest.mark.parametrize("chunks", [(), ("only",)])
def test_nothing_or_little_to_read(chunks):
    played = told(OWN, story(*chunks), *[write("m", "x")] * len(chunks))
    assert len(played.contexts) == len(chunks) + 1
    assert recalled(played.prompts["answer"][0]) == NOTHING_RECALLED
    assert remembered(played.prompts["answer"][0]) == ("m" if chunks else NO_MEMORY)


def test_settings_and_prompts_are_checked():
    CallbackAgent(100, 10).check_window(386)
    with pytest.raises(UserError, match="window of 385"):
        CallbackAgent(100, 10).check_window(385)
    with pytest.raises(UserError, match="chunk_size is 0"):
        CallbackAgent(chunk_size=0)
    with pytest.raises(UserError, match=r"needs \{chunk\} and \{memory\} and \{recalled\}"):
        CallbackPrompts(read="{chunk} {memory}")


# --- rewards --------------------------------------------------------------------------------------


def scored(played: Played, task: Task, **weights: float) -> Episode:
    episode = Episode(task, 0, played.contexts, played.memory.ops, played.answers)
    score = asyncio.run(CallbackReward(**weights)(episode, played.memory))
    for context, own, step in zip(played.contexts, score.contexts, score.steps, strict=True):
        context.reward, context.steps = own, step
    episode.reward, episode.scores = score.reward, score.parts
    return episode


def test_steps_earn_for_what_they_wrote_and_brought_back():
    """The answer has two words; every figure is a share of them."""
    task = story("a", "b", "c", "d", answer="red fox")
    replies = (
        write("red"),
        write("nothing", "red"),  # lost, and asked for again
        write("red fox"),
        "untagged",
    )
    episode = scored(told(OWN, task, *replies), task)
    assert [c.steps for c in episode.contexts] == [
        {"memory_recall": 0.5, "callback": 0.0, "format": 1.0},
        {"memory_recall": -0.5, "callback": 0.5, "format": 1.0},
        {"memory_recall": 1.0, "callback": 0.0, "format": 1.0},
        {"memory_recall": -1.0, "callback": 0.0, "format": 0.0},
        {},
    ]
    assert episode.scores["callback"] == 0.5 and episode.scores["memory_recall"] == 0.0
    assert episode.scores["queries"] == 0.25 and episode.scores["malformed"] == 0.25
    assert episode.reward == 0.0 and episode.contexts[-1].reward == 0.0
    free = scored(told(OWN, task, *replies), task, callback=0.0, well_formed=0.5)
    assert free.contexts[1].steps == {"memory_recall": -0.5, "callback": 0.0, "format": 0.5}


@pytest.mark.parametrize(
    ("chunks", "question", "gain"),
    [
        (("a", "b", "c"), "Who?", 1.0),
        (("a", "b", "a fox"), "Who?", 0.0),  # the next chunk says it anyway
        (("a fox", "b", "c"), "Who?", 1.0),  # a chunk that is gone does not
        (("a", "b", "c"), "Fox or hen?", 0.0),  # the question does
    ],
)
def test_what_is_in_view_anyway_earns_nothing(chunks, question, gain):
    task = Task("t", chunks, (Question(question, ("fox",)),))
    played = told(OWN, task, write("the fox"), write("lost", "the"), write("end"))
    assert scored(played, task).contexts[1].steps["callback"] == gain


def test_the_last_callback_serves_the_answer():
    task = story("a", "b", answer="fox")
    played = told(OWN, task, write("the fox"), write("lost", "the"))
    assert scored(played, task).contexts[1].steps["callback"] == 1.0


def test_steps_are_compared_with_siblings_at_the_same_step():
    task = story("a", "b", answer="fox")
    asked = scored(told(OWN, task, write("the fox"), write("lost", "the")), task)
    silent = scored(told(OWN, task, write("the fox"), write("lost")), task)
    assert step_advantages([asked, silent]) == [[0.0, 0.5, 0.0], [0.0, -0.5, 0.0]]

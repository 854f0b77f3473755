"""Where a task says that its questions come after the reading, no agent sees them earlier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recollect.agents.named import agents
from recollect.types import Question, Task
from tests.support.play import play

ASKED = "Where is the key?"
TASK = Task("t", ("The key is in the box.", "The box is red."), (Question(ASKED, ("box",)),))
READERS = ("fold", "gated", "rolling", "callback", "parallel", "bank")


@pytest.mark.parametrize("name", READERS)
def test_questions_that_come_after_the_reading_are_not_seen_before(name):
    agent = agents(chunk_size=200, max_memory_tokens=100, max_answer_tokens=100)[name]
    known = play(agent, TASK).prompts
    later = play(agent, replace(TASK, meta={"questions_known": False})).prompts
    assert name == "bank" or any(ASKED in prompt for prompt in known["memory"])
    assert later["memory"] and not any(ASKED in prompt for prompt in later["memory"])
    assert all(ASKED in prompt for prompt in later["answer"])

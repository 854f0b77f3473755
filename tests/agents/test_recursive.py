"""The recursive agent, by hand: programs, calls, notes, limits, and who earns what."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from recollect.advantages import group_advantages, grpo, step_advantages
from recollect.agents.recursive import NO_PROGRAM, RecursiveAgent
from recollect.agents.recursive_prompts import program_of
from recollect.agents.recursive_teacher import fenced, program_for
from recollect.errors import UserError
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.programs import ProgramReward
from recollect.rollout import Rollout
from recollect.samples import make_samples
from recollect.tasks.haystacks.ruler import Ruler
from recollect.tasks.made.chronicle import KINDS, Chronicle
from recollect.tasks.made.ledger import Ledger
from recollect.tasks.made.recall import Recall
from recollect.types import Question, Task
from tests.support.play import Played, play

OWN = RecursiveAgent(max_turn_tokens=2000, max_turns=3)
TASK = Task("t", ("Ann has a fig.", "Bob has a plum."), (Question("What has Bob?", ("plum",)),))


def played(*programs: str, agent: RecursiveAgent = OWN, task: Task = TASK) -> Played:
    left = iter(programs)
    return play(agent, task, answer=lambda _: next(left), write=lambda _: "a plum")


def test_the_text_is_a_value_that_no_prompt_shows():
    found = played(
        "I look.\n```python\nprint(len(text), chunks[1][:3])\n```", "```\nanswer('plum')\n```"
    )
    assert found.answers == ["\\boxed{plum}"]
    assert len(found.contexts) == 1 and len(found.contexts[0].turns) == 2
    first, second = found.prompts["answer"]
    assert "What has Bob?" in first and "31 characters in 2 chunks" in first
    assert "Bob has a plum" not in second and "<result>\n31 Bob\n</result>" in second


def test_ask_reads_parts_side_by_side_in_chats_of_their_own():
    found = played("```\nanswer(ask(chunks, question)[1])\n```")
    assert found.answers == ["\\boxed{a plum}"]
    assert [(c.role, c.label, c.question) for c in found.contexts] == [
        ("answer", "question 1", 0),
        ("memory", "question 1 call 1", 0),
        ("memory", "question 1 call 2", 0),
    ]
    assert "Ann has a fig." in found.prompts["memory"][0]
    assert found.contexts[0].counts["asks"] == 2
    assert [c.counts["useful"] for c in found.contexts[1:]] == [1, 1]


def test_what_is_wrong_is_a_result_and_the_last_turn_is_announced():
    found = played("no program", "```\nx = \n```", "```\nx = 1\n```")
    assert found.answers == [""]  # no answer, and no box without one
    prompts = found.prompts["answer"]
    assert NO_PROGRAM in prompts[1] and "error: line 1: the syntax is wrong" in prompts[2]
    assert "last program" in prompts[2] and "last program" not in prompts[1]
    counts = found.contexts[0].counts
    assert (counts["programs"], counts["malformed"], counts["unanswered"]) == (3, 2, 1)


def test_long_results_are_cut_and_long_parts_need_depth():
    agent = replace(OWN, max_result_chars=10, max_part_tokens=8)
    found = played(
        "```\n'x' * 99\n```", "```\nask(text, 'q')\n```", "```\nanswer(1)\n```", agent=agent
    )
    assert "xxxxxxxxxx... (89 more characters)" in found.prompts["answer"][1]
    assert "<result>\nerror: lin... " in found.prompts["answer"][2]
    deeper = replace(agent, max_depth=2, max_result_chars=99)
    replies = iter(["```\nanswer(text[-5:])\n```"])
    left = iter(["```\nanswer(ask(text, 'Who?'))\n```"])
    deep = play(deeper, TASK, answer=lambda _: next(left), write=lambda _: next(replies))
    assert deep.answers == ["\\boxed{plum.}"] and deep.contexts[1].label == "question 1 call 1"


def test_notes_stay_for_later_questions_and_later_text_is_out_of_reach():
    questions = (Question("Late?", ("x",)), Question("Early?", ("y",), position=0))
    task = Task("t", ("one", "two"), questions)
    found = played(
        "```\nnote(text)\nanswer('e')\n```", "```\nanswer(recall() + [text])\n```", task=task
    )
    assert found.answers == ["\\boxed{one, one\n\ntwo}", "\\boxed{e}"]
    assert [(op.kind, op.label) for op in found.memory.ops] == [("replace", "question 2")]


def test_calls_are_limited_over_all_programs_of_a_question():
    agent = replace(OWN, max_asks=3)
    found = played(
        "```\nask(chunks, 'q')\n```",
        "```\nask(chunks, 'q')\n```",
        "```\nanswer(1)\n```",
        agent=agent,
    )
    assert len(found.contexts) == 3
    assert "at most 1 calls are left for ask" in found.prompts["answer"][2]


def test_fresh_turns_are_contexts_with_steps_of_their_own():
    agent = replace(OWN, fresh_turns=True)
    found = played("```\nx +\n```", "```\nanswer('plum')\n```", agent=agent)
    assert [c.label for c in found.contexts] == ["question 1 turn 1", "question 1 turn 2"]
    assert "```\nx +\n```" in found.prompts["answer"][1]
    scripts = iter(
        ["```\nx +\n```", "```\nanswer('plum')\n```", "```\n1\n```", "```\nanswer('fig')\n```"]
    )
    model = ScriptedPolicy.model(lambda _prompt: next(scripts))
    rollout = Rollout(agent, {"memory": model, "answer": model}, ProgramReward(), concurrency=1)
    [group] = asyncio.run(rollout.groups([TASK], 2, (0,)))
    assert step_advantages(group) == [[-0.5, 0.0], [0.5, 0.0]]


def test_parent_and_children_share_the_outcome_less_its_cost():
    reward = ProgramReward(tokens=0.01, calls=0.1, malformed=0.5, part=0.25)
    said = iter(
        ["```\nanswer(ask(chunks[1], question))\n```", "```\nx\n```", "```\nanswer('fig')\n```"]
    )
    answer = ScriptedPolicy.model(lambda _prompt: next(said))
    read = ScriptedPolicy.model(lambda _prompt: "plum")
    rollout = Rollout(OWN, {"memory": read, "answer": answer}, reward, concurrency=1)
    [[right, wrong]] = asyncio.run(rollout.groups([TASK], 2, (0,)))
    used = (right.prompt_tokens + right.sampled_tokens) / 1000
    assert right.reward == pytest.approx(1 - 0.01 * used - 0.1)
    assert [c.reward for c in right.contexts] == pytest.approx([right.reward, right.reward + 0.25])
    assert wrong.scores["broken"] == 0.5 and wrong.reward < -0.25
    advantages = group_advantages([right, wrong], grpo)
    assert advantages[0][0] > 0 > advantages[1][0]
    assert len(make_samples([[right, wrong]], grpo)) == 3


@pytest.mark.parametrize(
    ("family", "metric"),
    [
        (Recall(chunks=30, keep="either"), "boxed_match"),
        (Ledger(sessions=12), "value_match"),
        *[(Chronicle((kind,), 8192), "boxed_match") for kind in KINDS],
        *[(Ruler(variant=v, tokens=16384), "ruler_recall") for v in ("cwe", "fwe", "vt")],
    ],
)
def test_the_teacher_solves_by_program(family, metric):
    def script(prompt: str) -> str:
        problem = re.findall(r"<problem>\n(.*?)\n</problem>", prompt, re.DOTALL)[-1]
        return fenced(program_for(problem) or "")

    model = ScriptedPolicy.model(script)
    rollout = Rollout(OWN, {"memory": model, "answer": model}, ProgramReward(metric))
    groups = asyncio.run(rollout.groups([family.task(i) for i in range(3)], 1, (0,)))
    assert [episode.reward for [episode] in groups] == [1.0] * 3
    assert program_for("Why?") is None
    assert program_for("Why x?", [(r"Why (?P<it>\w)", "answer('{it}')")]) == "answer('x')"


def test_a_program_is_what_is_fenced():
    assert program_of("<think>```a```</think>```\nb\n```") == "b"
    assert program_of("```python\nb") == "b"
    assert program_of("``` ```") is None and program_of("b") is None


def test_settings_that_fit_no_window_are_refused():
    with pytest.raises(UserError, match="max-part-tokens"):
        RecursiveAgent().check_window(1024)
    with pytest.raises(UserError):
        RecursiveAgent(max_turns=0)

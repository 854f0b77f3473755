"""Everything that docs/runs.md says is stored can be read, as it says."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

from recollect.chat.rendering import user
from recollect.chat.tool_loop import converse
from recollect.chat.tools import Limits, ToolBox
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.leases import MemoryStoreManager
from recollect.memory.store import replay
from recollect.memory.tools import MemoryTools
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.base import Score
from recollect.rollout import Rollout
from recollect.runs.episodes import read_episodes, write_episodes
from recollect.types import Question, Task
from tests.support.places import ROOT

TASK = Task("t", ("A", "B"), (Question("Who?", ("Ann",)),), meta={"namespace": "ann"})


async def reward(episode, memory):
    return Score(1.0, {"answer": 1.0})


def stored(agent, says, folder: Path, trainable: bool = True) -> Path:
    """Run one episode and store it with its texts, as training does."""
    model = ScriptedPolicy.model(says)
    models = {"memory": model, "answer": replace(model, trainable=trainable)}
    [[episode]] = asyncio.run(Rollout(agent, models, reward).groups([TASK], 1, (0,)))
    assert episode.ok, episode.failure
    tokenizer = model.renderer.tokenizer
    path = folder / "runs/demo/episodes/train-000001.jsonl.gz"
    path.parent.mkdir(parents=True)
    write_episodes(path, [episode], lambda _role, ids: tokenizer.decode(ids))
    return path


class Reader:
    async def run(self, task, chats, memory):
        for chunk in task.chunks:
            memory.text += (await chats.open("memory").say(chunk, max_tokens=8)).text
        return [(await chats.open("answer").say(memory.text, max_tokens=8)).text]


def test_the_snippet_shows_memories_flags_and_answers(tmp_path, monkeypatch, capsys):
    stored(Reader(), lambda prompt: "x" if "A" in prompt else "y", tmp_path, trainable=False)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/runs.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    exec(code, {})
    assert capsys.readouterr().out.splitlines() == [
        "memory after memory 1: x",
        "memory after memory 2: xy",
        "memory 1 is_trainable True, is_final 0",
        "memory 2 is_trainable True, is_final 0",
        "question 1 is_trainable False, is_final 1",
        "reward 1.0, answers ['y'], trial none",
    ]


class Curator:
    def __init__(self):
        drafts = [Draft("Ann lives in Rome.")]
        self.base = Corpus.build("ann", drafts)
        self.manager = MemoryStoreManager({"ann": self.base})

    def new_memory(self, task):
        return self.manager.open(task.meta["namespace"])

    async def run(self, task, chats, memory):
        tools = MemoryTools().bind(memory, lambda: f"turn {len(chat.context.turns)}")
        box = ToolBox(tools, Limits(max_assistant_turns=3, max_turn_tokens=256))
        chat = chats.open("memory", tools=box.schemas)
        await converse(chat, [user(task.questions[0].text)], box)
        return ["Ann"]


def test_what_retrieval_returned_and_the_trial_are_stored(tmp_path):
    search = '<tool_call>{"name": "search_memory", "arguments": {"query": "Rome"}}</tool_call>'
    create = {"operation": "create", "content": "Ann likes Rome."}
    write = json.dumps({"name": "manage_memory", "arguments": create})

    def says(prompt: str) -> str:
        if "Created" in prompt:
            return "DONE"
        return f"<tool_call>{write}</tool_call>" if "Ann lives" in prompt else search

    agent = Curator()
    path = stored(agent, says, tmp_path)
    record = json.loads(gzip.decompress(path.read_bytes()))
    first, second, third = record["contexts"][0]["turns"]
    assert first["text"].startswith("<tool_call>") and "Ann lives" not in first["prompt"]
    assert "memory_1 | Ann lives in Rome." in second["prompt"]  # what the search returned
    assert "Created memory_2." in third["prompt"]
    assert re.fullmatch(r"ann-\w{8}", record["namespace"])
    [episode] = read_episodes(path)
    assert episode.namespace == record["namespace"]
    assert [len(replay(agent.base, episode.ops[:k])) for k in (0, 1)] == [1, 2]
    assert episode.ops[0].label == "turn 2"

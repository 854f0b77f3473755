"""benchmarks/curator_gpu: its teacher writes valid calls, its folds and its tables are right."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from collections import Counter

import pytest

from benchmarks import curator_gpu, curator_table
from benchmarks.curator_teacher import Teacher, rare_words
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.policies.scripted import ScriptedPolicy
from recollect.rollout import Rollout
from recollect.train.wiring import make_agent, make_reward
from tests.support import world
from tests.support.play import TOKENIZER


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curator")
    world.made_up(folder)
    few = {"tasks": 2, "n": 2, "val": 6, "steps": 2, "episodes": 8}
    rest = {"lr": 2e-5, "device": "cpu", "cache_gib": 0.1, "seed": 1}
    found = Namespace(out=folder, data=folder / "made_up.json", **few, **rest)
    curator_gpu.build_data(found)
    return found


def test_the_teacher_makes_every_edit_in_the_right_form(options):
    config = curator_gpu.settings(options.out / "model", options)
    policy = ScriptedPolicy(TOKENIZER, Teacher(3).reply)
    speaker = Model(policy, Renderer(TOKENIZER), window=1 << 20)
    wide = {"max_turn_tokens": 2000, "max_context_tokens": 1 << 20}  # bytes are the tokens here
    limits = config.agent.limits.__class__(max_assistant_turns=4, **wide)
    agent = curator_gpu.replace(make_agent(config), limits=limits)
    roles = {"memory": speaker, "answer": speaker}
    tasks = [config.tasks.task(i, 1, "train") for i in range(24)]
    rollout = Rollout(agent, roles, make_reward(config, roles), concurrency=1)
    episodes = [e for [e] in asyncio.run(rollout.groups(tasks, 1, ("warm up",)))]
    assert all(e.ok for e in episodes)
    done = Counter(op.kind for e in episodes for op in e.ops)
    assert min(done["add"], done["update"], done["delete"]) > 0, done
    counts: Counter[str] = Counter()
    for episode in episodes:
        counts.update(episode.contexts[0].counts)
    assert counts["malformed"] == counts["refused"] == 0
    assert counts["ok"] + counts["failed"] == counts["calls"]
    assert counts["failed"] <= 0.1 * counts["calls"]  # searches that find nothing
    assert len({e.reward for e in episodes}) > 1  # some of what it does helps, or harms


def test_no_seed_sees_what_it_holds_out(options):
    tasks = curator_gpu.Locomo(options.out / "seed1" / "data")
    held_out, seen = (
        {tasks.task(i, 0, part).cluster for i in range(tasks.size(part))}
        for part in ("test", "train")
    )
    assert held_out and seen and not held_out & seen
    corpus = next(iter(tasks.corpora().values()))
    assert {entry.metadata["source"] for entry in corpus} == {"conversation"}


def test_rare_words_are_what_a_question_is_about():
    question = "What is the name of Ben's dog?"
    assert rare_words(question, ("Ada", "Ben")) == ["name", "dog"]


def test_tables_pair_the_same_question_of_the_same_seed(tmp_path, capsys):
    names = ("before", "answer", "growth/tokens", *(f"growth/{k}d" for k in ("create", "update")))
    for seed in range(2):
        folder = tmp_path / f"seed{seed}"
        (folder / "curator").mkdir(parents=True)
        for stage, reward in (("before", 0.0), ("warmed", -0.1), ("after", 0.1 + seed / 10)):
            rows = [
                {"question": f"{c} {q}", "conversation": c, "reward": reward, "failure": ""}
                | dict.fromkeys((*names, "growth/deleted"), 0.5)
                for c in ("a", f"b{seed}")
                for q in range(4)
            ]
            rows[-1]["failure"] = "agent: ContextFull"
            rows[-1]["reward"] = None
            (folder / f"{stage}.json").write_text(json.dumps(rows))
        step = {"reward/mean": 0.0, "time/rollout": 1.0, "time/update": 1.0}
        (folder / "curator" / "metrics.jsonl").write_text(json.dumps(step) + "\n")
    curator_table.show(tmp_path, 2)
    printed = capsys.readouterr().out
    assert "| questions, failed | 8, 1 | 8, 1 | 8, 1 |" in printed
    assert "| questions, failed | 16, 2 | 16, 2 | 16, 2 |" in printed
    assert "reward, warmed to after: +0.250" in printed.partition("## All 2 seeds")[2]
    assert "reward, warmed to after: +0.200" in printed.partition("## Seed 1")[0]
    assert "95% intervals by conversation" in printed

"""Agents that read in other ways, through the real loop: a model that knows the form, two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from recollect.accuracy import Accuracy
from recollect.agents.base import Agent
from recollect.agents.callback import CallbackAgent, CallbackPrompts
from recollect.agents.fold import FoldAgent
from recollect.agents.gated import GatedAgent, GatedPrompts
from recollect.agents.named import agents
from recollect.agents.parallel import ParallelAgent
from recollect.agents.parallel_prompts import ParallelPrompts
from recollect.cli import main
from recollect.commands.dry_run import estimate
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import PRESETS, preset
from recollect.config.published_names import Arguments
from recollect.config.rollout import LocalConfig, RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.rewards.reading import CallbackReward, GateReward, RoundReward
from recollect.rollout import Group
from recollect.runs.episodes import read_episodes
from recollect.runs.run import Run, read_metrics
from recollect.tasks.made.recall import PLAIN, Recall
from recollect.train.comparison import compare
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts
from recollect.train.wiring import make_reward
from tests.support.tiny import tiny_model

TAGS = [
    f"<{slash}{n}>" for slash in ("", "/") for n in ("check", "update", "next", "recall", "note")
]
MARKS = ["Read", "Merge", "Answer", "Memory", "Note"]
WORDS = [*MARKS, "yes", "no", "end", "continue", "\\boxed{", "}"]
FRUIT = PLAIN.values["fruit"]
TASKS = Recall(chunks=3, keep="first", updates=0.5, distractors=1, filler=0, wording="plain")
# The last word says which form is wanted.
PROMPTS = {
    "gated": GatedPrompts("{problem} {chunk} {memory} Read", "{problem} {memory} Answer"),
    "callback": CallbackPrompts(
        "{problem} {chunk} {memory} {recalled} Memory", "{problem} {memory} {recalled} Answer"
    ),
    "parallel": ParallelPrompts(
        "{problem} {chunk} {memory} Note",
        "{problem} {notes} {memory} Merge",
        "{problem} {memory} Answer",
    ),
}


def replied(mark: str, rng: Random) -> str:
    """Say something of the right form, by chance."""
    word, yes = rng.choice(FRUIT), rng.random() < 0.5
    if mark == "Answer":
        return f"\\boxed{{ {word} }}"
    if mark == "Merge":
        return word
    if mark == "Memory":
        return f"<update> {word} </update>" + f" <recall> {rng.choice(FRUIT)} </recall>" * yes
    if mark == "Note":
        return f"<check> yes </check> <note> {word} </note>" if yes else "<check> no </check>"
    following = rng.choice(("end", "continue", "continue"))
    update = f"<check> yes </check> <update> {word} </update>" if yes else "<check> no </check>"
    return f"{update} <next> {following} </next>"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Teach a tiny model the form of all replies: what they say is left to chance."""
    folder = tmp_path_factory.mktemp("form")
    words = [*TAGS, *WORDS, *FRUIT]
    vocabulary = {w: i for i, w in enumerate(["<pad>", "<unk>", "<end>", "<user>", *words])}
    core = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    pattern = Regex("|".join([*TAGS, r"\\boxed\{", r"[A-Z]?[a-z]+", r"\S"]))
    core.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    core.decoder = decoders.WordPiece(cleanup=False)
    hf = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", unk_token="<unk>", eos_token="<end>"
    )
    hf.add_special_tokens({"additional_special_tokens": ["<user>"]})
    hf.chat_template = "{% for m in messages %}<user>{{ m.content }}{% endfor %}<end>"
    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            initializer_range=0.08,
            bos_token_id=None,
            eos_token_id=2,
            pad_token_id=0,
        )
    )
    teach(network, hf, Random(0))
    network.save_pretrained(folder)
    hf.save_pretrained(folder)
    return folder


def teach(network: LlamaForCausalLM, hf: PreTrainedTokenizerFast, rng: Random) -> None:
    optimiser = torch.optim.AdamW(network.parameters(), 1e-2)
    for _step in range(60):
        rows = []
        for mark in MARKS * 6:
            text = " ".join(rng.choice([*FRUIT, "?"]) for _ in range(rng.randrange(1, 30)))
            prompt = hf.encode(f"<user>{text} {mark}<end>")
            rows.append((prompt, [*hf.encode(replied(mark, rng)), 2]))
        width = max(len(prompt) + len(reply) for prompt, reply in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        labels = torch.full_like(ids, -100)
        for i, (prompt, reply) in enumerate(rows):
            ids[i, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
            labels[i, len(prompt) : len(prompt) + len(reply)] = torch.tensor(reply)
        loss = network(input_ids=ids, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def settings(name: str, model: Path) -> TrainConfig:
    """The preset with its reward and its share, on made-up stories and in few tokens."""
    kinds = {"gated": GatedAgent, "callback": CallbackAgent, "parallel": ParallelAgent}
    agent: Agent = kinds[name](
        chunk_size=None, max_memory_tokens=12, max_answer_tokens=5, prompts=PROMPTS[name]
    )
    if isinstance(agent, ParallelAgent):
        agent = replace(agent, max_note_tokens=8, max_rounds=2, fan_in=2)
    return replace(
        preset(name),
        model=ModelConfig(path=str(model), device="cpu"),
        tasks=TASKS,
        agent=agent,
        rollout=RolloutConfig(tasks=3, n=6),
        loss=LossConfig(kl_coef=0.0),
        optim=OptimConfig(lr=1e-3, warmup_steps=0),
        val=ValidationConfig(tasks=4, temperature=1.0, before_training=False),
        steps=2,
    )


@dataclass
class Watching:
    """A watcher that keeps the episodes."""

    groups: list[Group]

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None:
        self.groups += groups

    def validation(self, step: int, results: dict[str, Accuracy]) -> None: ...
    def phase(self, name: str, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


def trained(name: str, model: Path, folder: Path) -> tuple[list[Group], list[dict[str, float]]]:
    config, watcher = settings(name, model), Watching([])
    with Run.open(folder, {"name": name}) as run:
        asyncio.run(train(Rollouts.open(config), run, watcher))
    return watcher.groups, read_metrics(folder)


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("gated", {"exit", "update_gate", "sections", "updated", "ended", "malformed"}),
        ("callback", {"memory_recall", "callback", "queries", "recalled", "malformed"}),
        ("parallel", {"rounds", "kept", "malformed"}),
    ],
)
def test_two_steps_through_the_real_loop(name, scores, model, tmp_path):
    groups, rows = trained(name, model, tmp_path / "run")
    episodes = [episode for group in groups for episode in group]
    assert len(episodes) == 2 * 3 * 6 and all(e.ok for e in episodes)
    assert [row["episodes/failed"] for row in rows] == [0, 0]
    for row in rows:
        assert row["train/grad_norm"] > 0
        assert scores <= {key.removeprefix("score/") for key in row if key.startswith("score/")}
        assert row["score/malformed"] < 0.5
    assert any(key.startswith("val/score/") for key in rows[-1])
    # Again, it is the same run, though episodes and chats were sampled at once.
    again, _ = trained(name, model, tmp_path / "again")
    assert contexts(again) == contexts(groups)
    stored = list(read_episodes(next((tmp_path / "run" / "episodes").glob("val-*"))))
    spans = [c.chunks for e in stored for c in e.contexts if c.chunks is not None]
    assert spans and all(isinstance(span, tuple) and span[0] <= span[1] < 3 for span in spans)


def contexts(groups: Sequence[Group]) -> list[tuple[str, list[int]]]:
    return [(c.label, c.ids) for group in groups for e in group for c in e.contexts]


def test_steps_count_for_as_much_as_the_papers_say(model):
    for name, share, step in (("gated", 0.9, "update_gate"), ("callback", 0.8, "format")):
        config = settings(name, model)
        assert config.outcome_share == share
        groups = asyncio.run(Rollouts.open(config).generate(1, Watching([])))
        named = {key for g in groups for e in g for c in e.contexts for key in c.steps}
        assert step in named
        assert compare(config, groups) != compare(replace(config, outcome_share=1.0), groups)


@pytest.mark.parametrize("name", ["callback", "gated", "parallel"])
def test_the_rest_of_an_episode_can_be_run_again(name, model):
    """Told what was said, an agent stands where it stood: also in the middle of a round."""
    config = replace(settings(name, model), local=LocalConfig(n=2, forks=4))
    groups = asyncio.run(Rollouts.open(config).generate(1, Watching([])))
    again = [group for group in groups if group[0].forked]
    assert len(again) == 3 * 4 and all(episode.ok for group in again for episode in group)
    for first, second in again:
        told = first.forked
        assert first.forked == second.forked
        assert [c.ids for c in first.contexts[:told]] == [c.ids for c in second.contexts[:told]]
        assert not any(c.trainable for c in first.contexts[:told])
    assert len(compare(config, groups)) == len(groups)


def test_each_preset_has_its_reward_and_no_other_agent_takes_it():
    kinds = {"callback": CallbackReward, "gated": GateReward, "parallel": RoundReward}
    for name, kind in kinds.items():
        assert isinstance(PRESETS[name].reward, kind)
        with pytest.raises(UserError, match=r"this reward needs a .*; the agent is FoldAgent"):
            replace(PRESETS[name], agent=FoldAgent())
    both = make_reward(replace(PRESETS["parallel"], outcome_share=0.5), {})
    assert isinstance(both.outcome, RoundReward) and both.outcome.max_rounds == 3


def test_they_are_named_where_agents_are_chosen():
    known = agents(chunk_size=100, max_memory_tokens=50, max_answer_tokens=20)
    for name in ("callback", "gated", "parallel"):
        assert (known[name].chunk_size, known[name].max_answer_tokens) == (100, 20)
        named = Arguments.of(preset("recall"), agent_name_override=name).config.agent
        assert type(named) is type(known[name])
        assert (named.chunk_size, named.max_memory_tokens) == (512, 128)


@pytest.mark.parametrize("name", ["callback", "gated", "parallel"])
def test_a_plan_bounds_what_an_episode_does(name, model):
    config = settings(name, model)
    work = estimate(config, model)
    groups = asyncio.run(Rollouts.open(config).generate(1, Watching([])))
    episodes = [episode for group in groups for episode in group]
    assert max(len(e.contexts) for e in episodes) <= work.contexts
    assert sum(e.sampled_tokens for e in episodes) <= work.sampled
    assert work.shared < work.prompt


def test_the_harness_runs_them(model, tmp_path, capsys):
    folder = tiny_model(tmp_path / "model")
    out = str(tmp_path / "out")
    words = ["--tasks", "recall@1", "--agents", "callback,gated,parallel", "--model", str(folder)]
    limits = ["--chunk-size", "400", "--max-memory-tokens", "8", "--max-answer-tokens", "4"]
    assert main(["eval", *words, *limits, "--n", "2", "--out", out, "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("callback", "gated", "parallel"))

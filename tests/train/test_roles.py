"""Roles: who learns, who is fixed, and that nothing of a fixed model reaches the weights."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recollect.advantages import grpo
from recollect.agents.bank import BankAgent
from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.agents.gated import GatedAgent
from recollect.cli import main
from recollect.commands.arguments import read_config
from recollect.commands.held_out import evaluate
from recollect.commands.train import run_training, train_and_report
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import DEMO_MODEL, PRESETS, preset
from recollect.config.published_names import Arguments, named_agent
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.models.model import load_model
from recollect.models.tokenizer import load_tokenizer
from recollect.rollout import Group
from recollect.runs.run import Run, read_metrics
from recollect.samples import make_samples
from recollect.train import metrics as report
from recollect.train import saved_model
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts
from recollect.train.trainer import Trainer
from recollect.types import Sample
from tests.support.faulty_proxy import faulty_proxy
from tests.support.tiny import tiny_model
from tests.support.token_server import token_server

ROLES = ("memory", "answer")
URL = "http://localhost:8000/v1"


class Notes:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.groups: dict[int, list[Group]] = {}

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None:
        self.groups[step] = groups

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __getattr__(self, _name: str):
        return lambda *_args: None


# --- settings ------------------------------------------------------------------------------------


def test_the_published_names_are_another_way_to_say_it():
    given = read_config(["two_stage", "--models.answer", URL], "train", "demo")
    stage = ["two_stage", "--training-stage", "memory", "--fixed-model-api", URL]
    assert read_config(stage, "train", "demo").models == given.models
    assert given.models.learning == ("memory",) and given.models.fixed == ("answer",)
    qa = Arguments.of(preset("demo"), training_stage="qa", fixed_model_api=URL).config
    assert (qa.models.memory, qa.models.answer) == (URL, "trainable")
    assert replace(qa, steps=7).models == qa.models
    assert preset("demo").models.learning == ROLES
    ledger = PRESETS["ledger"]
    stage = {"training_stage": "memory", "fixed_model_api": URL}
    bank = Arguments.of(ledger, agent_name_override="tool_mem_agent_twostage", **stage).config
    assert isinstance(bank.agent, BankAgent)
    own = FoldAgent(chunk_size=7)
    given = replace(ledger, agent=own)
    assert Arguments.of(given, agent_name_override="mem_agent").config.agent is own


def test_another_agent_takes_over_all_that_it_has_too():
    def named(preset_name: str, agent: str, *settings: str):
        args = [preset_name, "--agent-name-override", agent, *settings]
        return read_config(args, "train", "demo").agent

    limits = ["--agent.chunk-size", "100", "--agent.max-memory-tokens", "7"]
    stage = ["--training-stage", "memory", "--fixed-model-api", URL]
    bank = named("recall", "tool_mem_agent_twostage", *limits, *stage, "--agent.max-chunks", "4")
    assert bank == BankAgent(100, max_core_tokens=7, max_chunks=4)
    assert named("recall", "tool_mem_agent") == BankAgent(512, max_core_tokens=128)
    gated = named("recall", "gated", "--agent.max-answer-tokens", "9")
    assert gated == GatedAgent(512, 128, 9)
    fold = named("bank", "mem_agent", "--agent.max-core-tokens", "11")
    assert fold == FoldAgent(chunk_size=None, max_memory_tokens=11)
    limits = replace(preset("locomo").agent.limits, max_turn_tokens=77)
    curator = replace(preset("locomo").agent, limits=limits)
    assert named_agent("tool_mem_agent", curator, "locomo") == BankAgent(limits=limits)
    config = read_config(["recall", "--agent-name-override", "gated"], "train", "demo")
    assert replace(config, steps=3).agent == config.agent


@pytest.mark.parametrize(
    ("start", "agent", "lost", "words"),
    [
        ("recall", "gated", "order", "--agent.order memory_first"),
        ("recall", "parallel", "query_aware", "--agent.no-query-aware"),
        ("recall", "tool_mem_agent", "max_answer_tokens", "--agent.max-answer-tokens 9"),
        ("recall", "callback", "prompts", "--agent.prompts.answer {problem}{memory}"),
        ("gated", "mem_agent", "exit_gate", "--agent.no-exit-gate"),
        ("bank", "gated", "limits", "--agent.limits.max-turn-tokens 5"),
        ("bank", "tool_agent", "tools", "--agent.tools.passage-size 5"),
    ],
)
def test_a_setting_that_another_agent_does_not_have_is_refused(start, agent, lost, words, capsys):
    args = [start, "--agent-name-override", agent, *words.split(), "--dry-run"]
    assert main(["train", *args]) == 2
    message = capsys.readouterr().err
    assert f"agent.{lost} would be lost: the agent {agent} has nothing like it" in message
    assert f"leave agent.{lost} as the preset has it" in message


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"training_stage": "both"},
            r"training_stage must be 'memory' or 'qa', got: both",
        ),
        (
            {"fixed_model_api": URL},
            r"training_stage must be 'memory' or 'qa', got: None",
        ),
        (
            {"training_stage": "qa"},
            r"fixed_model_api is required for two-stage training",
        ),
        (
            {"agent_name_override": "x"},
            r"Agent loop x not registered, registered agent loops: mem_agent, tool_agent, ",
        ),
        (
            {"training_stage": "qa", "fixed_model_api": "localhost:8000"},
            r"models.memory is 'localhost:8000': neither trainable",
        ),
        (
            {"training_stage": "qa", "fixed_model_api": "http://:80"},
            r"'http://:80' is not the address of a server",
        ),
        (
            {
                "training_stage": "qa",
                "fixed_model_api": URL,
                "models": ModelsConfig(answer=URL),
            },
            r"say different things",
        ),
    ],
)
def test_mistakes_are_named_as_the_seed_names_them(changes, says):
    with pytest.raises(UserError, match=says):
        replace(Arguments.of(preset("demo")), **changes).config  # noqa: B018


def test_nothing_to_train_is_no_run(tmp_path):
    models = ModelsConfig(memory=URL, answer=URL)
    config = replace(preset("demo"), models=models, folder=tmp_path)
    with pytest.raises(UserError, match="no role is trainable"):
        run_training(config)
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_not_there_leaves_no_run(tmp_path):
    models = ModelsConfig(answer="http://127.0.0.1:9/v1")
    with pytest.raises(UserError, match="no model answers at") as caught:
        run_training(replace(preset("demo"), models=models, folder=tmp_path))
    assert "recollect serve" in caught.value.fix and not list(tmp_path.iterdir())


# --- no gradient from a fixed model (acceptance) --------------------------------------------------


def random_settings(folder: Path, learns: str) -> TrainConfig:
    """Two random models: one learns in a role, the other is fixed in the other."""
    trained = tiny_model(folder / "trained", seed=1)
    other = tiny_model(folder / "fixed", seed=2)
    prompts = FoldPrompts(
        chunk_first="{problem} {chunk} {memory}", answer="{problem} {memory} \u00a7\u00a7"
    )
    return replace(
        preset("recall"),
        model=ModelConfig(path=str(trained), device="cpu", threads=1),
        models=replace(ModelsConfig(), **{r: str(other) for r in ROLES if r != learns}),
        agent=FoldAgent(150, 8, 8, max_chunks=2, prompts=prompts),
        rollout=RolloutConfig(tasks=2, n=3),
        loss=LossConfig(kl_coef=0.001),
        optim=OptimConfig(lr=1e-3, warmup_steps=0, weight_decay=0.0),
        updates_per_step=2,
        val=ValidationConfig(tasks=2),
    )


def rolled(config: TrainConfig) -> list[Group]:
    """Roll out through the real loop, and reward so that siblings differ."""
    groups = asyncio.run(Rollouts.open(config).generate(1, Notes()))
    for group in groups:
        for i, episode in enumerate(group):
            assert episode.ok
            episode.reward = float(i)
            for context in episode.contexts:
                context.reward = None
    return groups


def updated(config: TrainConfig, samples: list[Sample]) -> dict[str, torch.Tensor]:
    """Train fresh weights on samples for one step."""
    model = load_model(config.model)
    trainer = Trainer(model, config.loss, config.optim, updates_per_step=config.updates_per_step)
    metrics = trainer.update(samples)
    assert metrics["train/grad_norm"] > 0
    return {name: p.detach().clone() for name, p in model.network.named_parameters()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("learns", ROLES)
def test_turns_of_a_fixed_model_move_no_weight(tmp_path, learns):
    config = random_settings(tmp_path, learns)
    groups = rolled(config)
    contexts = [c for group in groups for e in group for c in e.contexts]
    assert {(c.role, c.trainable) for c in contexts} == {(r, r == learns) for r in ROLES}
    samples = make_samples(groups, grpo)
    assert len(samples) == sum(c.role == learns for c in contexts)
    after = updated(config, samples)

    # The very same update without them ...
    without = copy.deepcopy(groups)
    for episode in (e for group in without for e in group):
        episode.contexts = [c for c in episode.contexts if c.role == learns]
    assert same(after, updated(config, make_samples(without, grpo)))

    # ... and with anything else in their place, whatever it would have earned.
    spoilt = copy.deepcopy(groups)
    rng = np.random.default_rng(0)
    for context in (c for group in spoilt for e in group for c in e.contexts):
        if context.role != learns:
            context.ids = rng.integers(0, 250, len(context.ids)).tolist()
            context.reward = 1000.0
            for i, turn in enumerate(context.turns):
                ids = tuple(context.ids[turn.start : turn.end])
                context.turns[i] = replace(turn, token_ids=ids, logprobs=(-9.0,) * len(ids))
    assert same(after, updated(config, make_samples(spoilt, grpo)))

    # No gradient at all reaches what only they contain: Adam leaves those rows bit for bit.
    def tokens(role: str) -> set[int]:
        return {i for c in contexts if c.role == role for i in c.ids}

    (fixed,) = set(ROLES) - {learns}
    only_fixed, only_learnt = tokens(fixed) - tokens(learns), tokens(learns) - tokens(fixed)
    name = "model.embed_tokens.weight"
    before = dict(load_model(config.model).network.named_parameters())[name]
    moved = (after[name] != before).any(dim=1)
    assert only_fixed and not moved[sorted(only_fixed)].any()
    assert not only_learnt or moved[sorted(only_learnt)].any()

    # The check can fail: trained on, the same turns do move them.
    for context in contexts:
        context.trainable = True
    both = updated(config, make_samples(groups, grpo))
    assert (both[name] != before).any(dim=1)[sorted(only_fixed)].any() and not same(after, both)


def test_turns_of_a_fixed_model_are_in_no_statistic(tmp_path):
    groups = rolled(random_settings(tmp_path, "memory"))
    with_them = report.episode_metrics(groups)
    for episode in (e for group in groups for e in group):
        episode.contexts = [c for c in episode.contexts if c.role == "memory"]
    assert report.episode_metrics(groups) == with_them
    assert with_them["contexts/per_episode"] == 2


# --- a served model in a run ----------------------------------------------------------------------

TOKENIZER = load_tokenizer(DEMO_MODEL)


def answer(prompt: list[int], request: dict) -> list[int]:
    """Box whatever stands in the memory."""
    (memory, colon), (end, _) = TOKENIZER.encode("Memory:"), TOKENIZER.encode("Answer:")
    if end not in prompt:
        return [*TOKENIZER.encode("mango tennis"), TOKENIZER.end_ids[0]]
    at = len(prompt) - prompt[::-1].index(memory)
    inside = [i for i in prompt[at : len(prompt) - 1 - prompt[::-1].index(end)] if i != colon]
    return [*TOKENIZER.encode("\\boxed{"), *inside, *TOKENIZER.encode("}"), TOKENIZER.end_ids[0]]


def served_settings(folder: Path, url: str, **changes) -> TrainConfig:
    return replace(
        preset("demo"),
        models=ModelsConfig(answer=url, timeout=1.0, retries=3, backoff=0.01, grace=0.2),
        rollout=RolloutConfig(tasks=4, n=6),
        val=ValidationConfig(tasks=8, before_training=False),
        folder=folder,
        **{"steps": 3, "test_freq": 2, "save_freq": 2, "updates_per_step": 2} | changes,
    )


def ran(config: TrainConfig, watcher: Notes | None = None):
    """Train in the run folder of the settings."""
    settings = asdict(config) | {"models": {}}
    with Run.open(config.folder / config.name, settings, config.resume) as run:
        return asyncio.run(train(Rollouts.open(config), run, watcher or Notes()))


def weights(folder: Path) -> bytes:
    return (folder / "demo" / "model" / "model.safetensors").read_bytes()


def test_a_served_answerer_gets_the_exact_memory_and_is_named_once(tmp_path):
    with token_server(TOKENIZER, answer, name="reader", max_model_len=512) as server:
        watcher = Notes()
        outcome = ran(served_settings(tmp_path, server.url), watcher)
    assert outcome.finished
    assert [n for n in watcher.notes if "TRAINABLE" in n or "FIXED" in n] == [
        f"memory: TRAINABLE {DEMO_MODEL}",
        f"answer: FIXED reader at {server.url}",
    ]
    prompts = Counter(tuple(request["prompt"]) for request in server.asked)
    returned = [a["choices"][0]["token_ids"] for a in server.answered if "choices" in a]
    for groups in watcher.groups.values():
        for episode in (e for group in groups for e in group):
            *memories, last = episode.contexts
            assert last.role == "answer" and not last.trainable and last.exact
            # id for id: what was sent, what came back, and the memory inside it
            assert prompts[tuple(last.ids[: last.turns[0].start])]
            assert list(last.turns[0].token_ids) in returned
            written = [i for i in memories[-1].turns[0].token_ids if i not in TOKENIZER.end_ids]
            assert str(written)[1:-1] in str(last.ids)
            assert all(c.trainable for c in memories)
    row = read_metrics(tmp_path / "demo")[-1]
    assert row["contexts/per_episode"] == 3 and row["samples/total"] == 3 * 24
    assert row["tokens/trained"] == row["tokens/sampled"]


def test_the_report_says_how_to_measure_with_the_same_fixed_model(tmp_path):
    with token_server(TOKENIZER, answer) as server:
        config = served_settings(tmp_path, server.url, steps=1)
        report = train_and_report(replace(config, val=ValidationConfig(tasks=2)))
    assert report is not None
    _, verb, *args = report.next_command.split()
    again = read_config(args, verb, "demo")
    assert again.models.answer == server.url and again.models.learning == ("memory",)
    assert again.model.path == str(tmp_path / "demo" / "model")


def test_a_fixed_model_in_a_folder_speaks_the_same_tokens(tmp_path):
    rollouts = Rollouts.open(served_settings(tmp_path, str(DEMO_MODEL)))
    memory, reader = rollouts.roles.models["memory"], rollouts.roles.models["answer"]
    assert reader.renderer.tokenizer is memory.renderer.tokenizer and not reader.trainable
    assert memory.trainable and rollouts.roles.notes[1] == f"answer: FIXED {DEMO_MODEL}"


def test_an_exported_model_shares_the_tokenizer_with_the_one_it_came_from(tmp_path):
    saved_model.export(tmp_path / "model", load_model(preset("demo").model))
    with token_server(TOKENIZER, answer, root=str(tmp_path / "model")) as server:
        roles = Rollouts.open(served_settings(tmp_path, server.url)).roles
        assert (
            roles.models["answer"].renderer.tokenizer is roles.models["memory"].renderer.tokenizer
        )
        other = tiny_model(tmp_path / "other")
        models = ModelsConfig(answer=server.url, answer_tokenizer=other)
        with pytest.raises(UserError, match="the tokenizer is not that of"):
            Rollouts.open(replace(served_settings(tmp_path, server.url), models=models))


def test_fixed_models_sample_like_the_learning_one_unless_told_otherwise(tmp_path):
    with token_server(TOKENIZER, answer) as server:
        config = served_settings(tmp_path, server.url)
        rollouts = Rollouts.open(config)
        assert rollouts.rollout(0.7, 0.9).models["answer"].sampling.temperature == 0.7
        models = replace(config.models, temperature=0.0, top_p=1.0)
        rollouts = Rollouts.open(replace(config, models=models))
        both = rollouts.rollout(0.7, 0.9).models
        assert both["answer"].sampling.temperature == 0.0 and both["answer"].sampling.top_p == 1.0
        assert both["memory"].sampling.temperature == 0.7


def test_both_fixed_can_be_measured_without_loading_a_model(tmp_path):
    def speak(prompt: list[int], request: dict) -> list[int]:
        return answer(prompt, request)[:1]

    with token_server(TOKENIZER, speak) as server:
        models = ModelsConfig(server.url, server.url, answer_tokenizer=DEMO_MODEL)
        models = replace(models, memory_tokenizer=DEMO_MODEL)
        config = replace(preset("demo"), models=models, model=ModelConfig(path=""))
        rollouts = Rollouts.open(replace(config, val=ValidationConfig(tasks=3)))
        assert rollouts.roles.models["memory"] is rollouts.roles.models["answer"]  # one client
        groups = asyncio.run(rollouts.validate(Notes()))
        assert len(groups) == 3 and all(e.ok for group in groups for e in group)
        with pytest.raises(UserError, match="no role is trainable"):
            _ = rollouts.model


# --- faults (acceptance) --------------------------------------------------------------------------

KINDS = {
    "reset": "Dropped",
    "429": "RateLimited",
    "500": "ServerError",
    "refuse": "Dropped",
    "hang": "TimedOut",
    "drip": "TimedOut",
    "truncate": "NotJson",
    "wrong ids": "WrongTokens",
}


def test_a_fifth_of_the_calls_failing_loses_only_their_episodes(tmp_path):
    with token_server(TOKENIZER, answer) as server:
        clean = Notes()
        ran(served_settings(tmp_path / "clean", server.url, steps=1), clean)
        with faulty_proxy(server.port, share=0.0, seed=3) as proxy:
            config = served_settings(tmp_path, proxy.url)
            watcher = Notes()
            settings = asdict(config)
            with Run.open(tmp_path / "demo", settings) as run:
                rollouts = Rollouts.open(config)
                proxy.share = 0.2
                outcome = asyncio.run(train(rollouts, run, watcher))
    assert outcome.finished and outcome.step == 3
    assert len(proxy.injected) == 8 and proxy.injected.total() > 12

    # Every fault is counted under its kind.
    rows = read_metrics(tmp_path / "demo")
    counted: Counter[str] = Counter()
    for row in rows:
        for name, value in row.items():
            if name.startswith("endpoint/failed_calls/"):
                counted[name.rpartition("/")[2]] += value
    expected: Counter[str] = Counter()
    for fault, times in proxy.injected.items():
        expected[KINDS[fault]] += times
    # While it refuses, others may be refused or dropped, too; and a busy machine may be slow.
    lost = counted.pop("Dropped") + counted.pop("Unreachable", 0)
    assert lost >= expected.pop("Dropped")
    assert counted.pop("TimedOut") >= expected.pop("TimedOut")
    assert counted == expected

    # No episode is missing, none has a reward it did not earn, none failed of anything else.
    failed: Counter[str] = Counter()
    for groups in watcher.groups.values():
        assert [len(group) for group in groups] == [6] * 4
        for episode in (e for group in groups for e in group):
            if episode.ok:
                assert episode.reward is not None
            else:
                assert episode.reward is None and episode.failure.boundary == "endpoint"
                failed[episode.failure.kind] += 1
    assert failed and set(failed) <= {*KINDS.values(), "Unreachable"}
    for kind, times in failed.items():
        assert times == sum(row.get(f"episodes/failed_at_endpoint/{kind}", 0) for row in rows)
    assert failed.total() == sum(row["episodes/failed"] for row in rows)
    for group, whole in zip(watcher.groups[1], clean.groups[1], strict=True):
        for episode, other in zip(group, whole, strict=True):
            assert not episode.ok or episode.reward == other.reward
            assert [c.ids for c in episode.contexts[:3]] == [c.ids for c in other.contexts[:3]]


@pytest.mark.parametrize("calls", [52, 65])
def test_a_server_gone_for_good_stops_the_run_which_then_goes_on(tmp_path, calls):
    """It goes in the validation after the second step, or in the third step; nothing is lost."""
    undisturbed, broken = tmp_path / "undisturbed", tmp_path / "broken"
    with token_server(TOKENIZER, answer) as server:
        ran(served_settings(undisturbed, server.url, save_freq=100))
    left = iter(range(calls))

    def dying(prompt: list[int], request: dict) -> list[int]:
        if next(left, None) is None:
            server.vanish()
        return answer(prompt, request)

    with token_server(TOKENIZER, dying) as server:
        config = served_settings(broken, server.url, save_freq=100)
        with pytest.raises(UserError, match="is gone") as caught:
            ran(config)
        port = server.port
    assert "the run continues from its last checkpoint" in caught.value.fix
    with token_server(TOKENIZER, answer, port=port):
        watcher = Notes()
        assert ran(config, watcher).finished
    assert any(note.startswith("resumed after step") for note in watcher.notes)
    assert weights(broken) == weights(undisturbed)


def test_a_validation_that_only_failed_is_no_score(tmp_path):
    """48 calls train two steps; then the server says nothing usable: no 0.000 is reported."""
    left = iter(range(49))  # and one that tries the server

    def confused(prompt: list[int], request: dict) -> list[int]:
        return answer(prompt, request) if next(left, None) is not None else [10**6]

    with token_server(TOKENIZER, confused) as server:
        config = served_settings(tmp_path, server.url, steps=2)
        with pytest.raises(UserError, match=r"all 8 episodes of the validation after step 2 fail"):
            ran(config)
        port = server.port
    assert [row["step"] for row in read_metrics(tmp_path / "demo")] == [1]
    with token_server(TOKENIZER, answer, port=port):
        assert ran(config).finished
    assert "val/accuracy" in read_metrics(tmp_path / "demo")[-1]


def test_an_evaluation_says_why_episodes_failed(tmp_path):
    left = iter(range(4))

    def confused(prompt: list[int], request: dict) -> list[int]:
        return answer(prompt, request) if next(left, None) is not None else [10**6]

    with token_server(TOKENIZER, confused) as server:
        watcher = Notes()
        config = replace(served_settings(tmp_path, server.url), val=ValidationConfig(tasks=8))
        (result,) = asyncio.run(evaluate(config, watcher)).values()
    assert result.failed == 5
    assert watcher.notes[-1].startswith(
        "1x the text: 5 of 8 episodes failed (5 by what it depends on);"
        " the first one at endpoint: WrongTokens: "
    )

"""Other agents on the cluster: the curator with its tools, and one role against a fixed model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recollect.commands.stages.server import served
from recollect.config.presets import TWO_STAGE_MODEL, preset
from recollect.config.published_names import Arguments
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.engines.verl.worker.training_rows import trained_contexts
from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from recollect.serve.settings import ServeConfig
from tests.support.cluster import run

SMALL = dict(
    rollout=RolloutConfig(tasks=4, n=4),
    val=ValidationConfig(tasks=4, n=2, temperature=1.0),
    steps=2,
    test_freq=2,
    save_freq=2,
)


@pytest.fixture(scope="module")
def curator(tmp_path_factory):
    """With a loss that verl has not, over two epochs: ratios against the weights before them."""
    config = replace(preset("curator"), name="curator", folder=tmp_path_factory.mktemp("cluster"))
    config = replace(config, loss=replace(config.loss, aggregate="episode_mean"), epochs=2)
    return run(replace(config, **SMALL))


def test_the_curator_uses_its_tools_in_one_growing_context(curator):
    episodes = list(read_episodes(curator / "episodes" / "train-000002.jsonl.gz"))
    assert len(episodes) == 16 and all(e.ok for e in episodes)
    spoken = [e.contexts[0] for e in episodes]
    assert any(len(context.turns) > 1 for context in spoken)  # a tool answered in between
    assert sum(sum(context.counts.values()) for context in spoken) > 0
    assert any(e.ops for e in episodes)  # memories were written
    row = read_metrics(curator)[-1]
    assert row["samples/total"] == 16
    # What tools said is read and not trained.
    assert row["tokens/trained"] == row["tokens/sampled"] < row["tokens/rows"]
    assert row["train/grad_norm"] > 0


def test_memory_growth_and_tool_use_are_measured(curator):
    row = read_metrics(curator)[-1]
    for name in ("score/growth/tokens", "score/tools/calls", "score/answer", "val/single-hop/n"):
        assert name in row, name
    assert row["score/tools/calls"] > 0


@pytest.fixture(scope="module")
def memory_stage(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    serve = ServeConfig(str(TWO_STAGE_MODEL), device="cpu", dtype="float32")
    with served(serve, folder / "server.log") as url:
        config = preset("two_stage")
        # Chunks of several sizes: the first ones of two held-out tasks leave no room for a reply in
        # this window, and all others do.
        tasks = replace(config.tasks, mentions=4)
        config = replace(config, name="memory", folder=folder, tasks=tasks, seed=39, **SMALL)
        config = Arguments.of(config, training_stage="memory", fixed_model_api=url).config
        return run(config, actor_rollout_ref__rollout__max_model_len=59)


def test_what_does_not_fit_the_window_fails_and_is_counted(memory_stage):
    for step in (0, 2):
        episodes = list(read_episodes(memory_stage / "episodes" / f"val-{step:06d}.jsonl.gz"))
        failed = [e.failure for e in episodes if e.failure]
        assert len(episodes) == 8 and len(failed) == 4
        assert {failure.kind for failure in failed} == {"ContextFull"}
    for row in (read_metrics(memory_stage)[0], read_metrics(memory_stage)[-1]):
        assert row["val/n"] == 8 and row["val/failed"] == 4


def test_stage_memory_trains_no_token_of_the_fixed_model(memory_stage):
    episodes = list(read_episodes(memory_stage / "episodes" / "train-000002.jsonl.gz"))
    assert len(episodes) == 16 and all(e.ok for e in episodes)
    for episode in episodes:
        answers = [c for c in episode.contexts if c.role == "answer"]
        assert answers and all(not c.trainable and c.turns for c in answers)
        assert all(c.role == "memory" for c in trained_contexts(episode))
    row = read_metrics(memory_stage)[-1]
    assert row["samples/total"] == sum(len(trained_contexts(e)) for e in episodes)
    trained = sum(
        len(turn.token_ids) for e in episodes for c in trained_contexts(e) for turn in c.turns
    )
    assert row["tokens/trained"] == trained
    assert row["train/grad_norm"] > 0

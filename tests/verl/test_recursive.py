"""Programs and the parts they ask about, through Ray and verl: samples of one episode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks import recursive_tasks
from benchmarks.recursive import make_model, settings
from recollect.config.modules import load
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from tests.support.cluster import run


def test_parents_and_children_are_trained_on_the_cluster(tmp_path):
    make_model(tmp_path / "model", tasks=200, steps=60)
    own = tmp_path / "own_lists.py"  # travels with the run under a name that nothing else has
    own.write_text(Path(recursive_tasks.__file__).read_text())
    config = replace(
        settings(tmp_path / "model", 0, 2),
        tasks=load(f"{own}:Lists")(),
        folder=tmp_path,
        rollout=RolloutConfig(tasks=4, n=8, keep_groups=-1),
        updates_per_step=1,
        val=ValidationConfig(tasks=2, before_training=False),
        save_freq=2,
    )
    folder = run(config)
    episodes = list(read_episodes(folder / "episodes" / "train-000002.jsonl.gz"))
    assert len(episodes) == 32 and all(episode.ok for episode in episodes)
    families = [e for e in episodes if len(e.contexts) > 1]
    assert families
    for episode in families:
        parent, *children = episode.contexts
        assert parent.role == "answer" and parent.counts["asks"] == len(children)
        assert all(child.role == "memory" for child in children)
        assert all(child.label.startswith(f"{parent.label} call ") for child in children)
        assert {context.reward for context in episode.contexts} == {episode.reward}
    row = read_metrics(folder)[-1]
    assert row["samples/total"] == sum(len(e.contexts) for e in episodes) > 32
    assert row["tokens/trained"] == row["tokens/sampled"] > 0 and row["train/grad_norm"] > 0

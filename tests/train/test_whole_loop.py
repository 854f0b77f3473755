"""The benchmark of whole steps: its texts, its reward, its table."""

from __future__ import annotations

import argparse
from dataclasses import replace

from benchmarks.whole_loop import Words, coin, table
from recollect.types import Episode


def test_texts_have_the_length_that_is_asked_for_and_rewards_differ():
    family = Words(chunks=2, words=30)
    task = family.task(3)
    assert [len(chunk.split()) for chunk in task.chunks] == [30, 30]
    assert task == family.task(3) and task.chunks != family.task(4).chunks
    assert len(family.longer(4).task(0).chunks) == 8
    episode = Episode(task=task, rollout=0)
    paid = {coin(replace(episode, answers=[answer]), None) for answer in ("w1", "w2")}
    assert paid == {0.0, 1.0}


def test_a_step_is_laid_out_by_phase_and_a_run_that_ended_early_is_named():
    row = {"step": 2, "time/rollout": 100.0, "time/update": 99.0, "time/sync": 1.0,
           "tokens/sampled": 400_000}  # fmt: skip
    text = table(argparse.Namespace(tasks=8, steps=2), {"chunk_first": [row]})
    assert "| chunk_first | 2 | 100.0 | 99.0 | 1.0 | 200.0 | 4,000 | 25.0 | 24.0x less |" in text
    assert "ended after 1 steps" in text

"""The simulation of scale: work that is conserved, and floors that no number of GPUs goes below."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recollect.engines.verl.launch.scale import Rates, RecipeStep, simulate
from recollect.engines.verl.launch.shapes import KNOWN

SEVEN = KNOWN["Qwen2.5-7B"]


def test_the_train_rate_is_the_measured_one():
    """604,048 tokens took 60.2 s on one H200 (docs/benchmarks.md)."""
    assert 604_048 / Rates().train(SEVEN) == pytest.approx(60.2, rel=0.01)


def test_the_work_of_memagents_step():
    work = RecipeStep()
    assert (work.episodes, work.contexts) == (2048, 7)
    assert work.read == 6 * (4678 + 300 + 500) + 800
    assert work.tokens == 2048 * (work.read + 3200)
    # About what was measured for 16 rollouts of one task.
    assert work.tokens / 128 == pytest.approx(604_048, rel=0.05)


def test_twice_the_gpus_halve_what_can_be_divided():
    one, two = (simulate(SEVEN, RecipeStep(), nodes) for nodes in (1, 2))
    assert two.prefill == pytest.approx(one.prefill / 2)
    assert two.reference == pytest.approx(one.reference / 2)
    assert two.update == pytest.approx(one.update / 2)
    assert one.exchange == 0 < two.exchange


def test_what_cannot_be_divided_stays():
    far, farther = (simulate(SEVEN, RecipeStep(), nodes) for nodes in (256, 4096))
    assert farther.seconds > 0.9 * far.seconds
    assert farther.sync == far.sync and farther.fixed == far.fixed
    # Never faster than the slowest episode on a GPU of its own.
    chain = 7 * 1024 * 2 * SEVEN.parameters / Rates().bandwidth
    assert farther.decode >= chain
    # Nor an update than one row on every GPU.
    row = RecipeStep().tokens / (2048 * 7) / Rates().train(SEVEN)
    assert farther.update >= 16 * row


def test_efficiency_falls_with_the_nodes():
    cost = [simulate(SEVEN, RecipeStep(), nodes).gpu_seconds for nodes in (1, 4, 16, 64, 256)]
    assert cost[0] < 1.1 * cost[1] and cost[1] < cost[2] < cost[3] < cost[4]


def test_siblings_that_share_are_prefilled_once():
    shared = replace(RecipeStep(), shared=True)
    assert shared.prefilled < RecipeStep().prefilled / 5
    assert simulate(SEVEN, shared, 1).seconds < simulate(SEVEN, RecipeStep(), 1).seconds


def test_a_small_cache_makes_episodes_wait():
    small, large = (
        simulate(SEVEN, RecipeStep(), 1, cache_tokens=n).decode for n in (50_000, 1_200_000)
    )
    assert small > 1.5 * large

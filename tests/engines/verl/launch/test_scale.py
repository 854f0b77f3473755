"""The simulation of scale: work that is conserved, and floors that no number of GPUs goes below."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarks import scale
from recollect.engines.verl.launch.rates import FOLD, LONE, MODEL, TRAINED, Rates, sources
from recollect.engines.verl.launch.scale import RecipeStep, simulate
from recollect.engines.verl.launch.shapes import KNOWN

ROOT = Path(__file__).parents[4]

SEVEN = KNOWN["Qwen2.5-7B"]


def test_a_simulated_phase_takes_what_was_measured_for_the_same_work():
    for sampler in ("vllm", "recollect"):
        rates = Rates(sampler=sampler)
        assert TRAINED / rates.train(SEVEN) == pytest.approx(58.4)
        assert TRAINED / rates.train(SEVEN, trie=True) == pytest.approx(14.5)
        assert TRAINED / rates.forward(SEVEN) == pytest.approx(58.4 - 44.8)
        # Share and cost per sequence come from the race, and give the race's figures again.
        for race, name in ((FOLD, "fold"), (LONE, "lone")):
            raced = getattr(rates, f"{sampler}_{name}")
            assert rates.foretold(race, MODEL) == pytest.approx(raced)
        share, each = rates.decoding()
        assert 0.1 < share < 0.7 and 0 < each < 1e-4


def test_every_number_is_measured_by_a_command_or_assumed_for_a_reason():
    found = sources(Rates())
    assert {s.name for s in found} == {f.name for f in fields(Rates)} - {"sampler"}
    for source in found:
        if source.measured:
            script = source.origin.split()[1]
            if script == "-m":
                script = source.origin.split()[2].replace(".", "/") + ".py"
            assert (ROOT / script).is_file(), source
        else:
            assert source.origin and "python" not in source.origin
    assert {s.name for s in found if not s.measured} == {"bandwidth", "link", "network", "sync"}


def test_the_output_splits_measured_from_assumed_and_is_what_the_docs_show():
    said = list(scale.lines(scale.Options()))
    at = [
        i for i, line in enumerate(said) if "measured on one H200 |" in line or "assumed |" in line
    ]
    measured, assumed = said[at[0] : at[1]], said[at[1] :]
    assert any("| 58.4 s | `python benchmarks/train_step.py" in line for line in measured)
    assert any(
        "| 13,200 tokens/s | `python -m benchmarks.rollout --peer vllm" in line for line in measured
    )
    assert any("takes over new weights | 20 GB/s | never timed" in line for line in assumed)
    assert any("a memory on average | 500 tokens" in line for line in assumed)
    docs = (ROOT / "docs/cluster.md").read_text()
    missing = [line for block in said for line in block.strip().splitlines() if line not in docs]
    assert not missing


def test_a_number_of_ones_own_is_named_so_and_counts():
    options = scale.Options(rates=Rates(vllm_fold=14_400.0), model="Qwen2.5-14B")
    said = "\n".join(scale.lines(options))
    assert "| 14,400 tokens/s | given on the command line |" in said
    assert "| Qwen2.5-14B | by its weights |" in said
    faster = simulate(SEVEN, RecipeStep(), 1, rates=options.rates)
    assert faster.decode < simulate(SEVEN, RecipeStep(), 1).decode


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
    chain = 7 * 1024 * Rates().draw(SEVEN, sequences=1, context=0)
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

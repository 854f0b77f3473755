"""Long prompts are read in pieces between others' tokens, and nothing about the results changes."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
import torch

from recollect.models.model import ModelConfig, load_model
from recollect.sampler import dense, serving
from recollect.sampler.dense import LocalPolicy
from recollect.sampler.paged import PagedPolicy
from recollect.sampler.serving import (
    LIGHT_TIMES,
    HeavyPolicy,
    ServingPagedPolicy,
    ServingPolicy,
)
from recollect.types import Completion, Sampling
from tests.sampler.test_dense import check, pair, random_ids, run
from tests.support.tiny import tiny_model

__all__ = ["pair"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.set_num_threads(1)
    loaded = load_model(ModelConfig(path=str(tiny_model(tmp_path_factory.mktemp("m")))))
    loaded.network.double()
    return loaded


def watched(policy: ServingPolicy) -> list[tuple[int, int]]:
    """Record, for every pass over prompts, its tokens and how many sequences were running."""
    passes: list[tuple[int, int]] = []
    compute = policy._compute

    def counted(jobs):
        passes.append((sum(job.run.size for job in jobs), len(policy._running)))
        return compute(jobs)

    policy._compute = counted  # type: ignore[method-assign]
    return passes


def mixed(seed: int = 0) -> list[list[int]]:
    """Prompts of all sizes, some of which begin alike."""
    rng = np.random.default_rng(seed)
    long, other = random_ids(rng, 900), random_ids(rng, 700)
    return [
        long,
        random_ids(rng, 5),
        long,  # the same again
        long[:600] + random_ids(rng, 300),
        long[:300],
        other,
        random_ids(rng, 255),
        long[:40] + random_ids(rng, 30),
        [*long, *random_ids(rng, 20)],
        other[:257],
    ]


def test_replies_are_the_models_own_whatever_is_read_in_pieces(pair, monkeypatch):
    model, plain = pair
    monkeypatch.setattr(serving, "PIECE", 48)
    monkeypatch.setattr(serving, "IDLE_PIECE", 112)
    prompts = mixed()
    replies = run(ServingPolicy(model), prompts, max_tokens=6)
    check(plain, prompts, replies)


def test_the_same_tokens_are_drawn_as_when_prompts_are_read_whole(model):
    prompts = mixed(1)
    whole = run(LocalPolicy(model), prompts, max_tokens=12)
    pieces = run(ServingPolicy(model), prompts, max_tokens=12)
    assert [r.token_ids for r in pieces] == [r.token_ids for r in whole]
    for a, b in zip(pieces, whole, strict=True):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=2e-5)


def test_no_one_waits_for_more_than_a_piece_of_anothers_prompt(model):
    policy = ServingPolicy(model)
    passes = watched(policy)
    rng = np.random.default_rng(2)
    model_end, model.tokenizer.end_ids = model.tokenizer.end_ids, (258,)
    ended: list[str] = []

    async def ask(name: str, prompt: list[int], tokens: int) -> Completion:
        done = await policy.sample(prompt, Sampling(tokens))
        ended.append(name)
        return done

    async def work() -> None:
        first = asyncio.create_task(ask("running", random_ids(rng, 8), 200))
        for _ in range(6):
            await asyncio.sleep(0)
        long = asyncio.create_task(ask("long", random_ids(rng, 3900), 4))
        for _ in range(6):
            await asyncio.sleep(0)
        short = asyncio.create_task(ask("short", random_ids(rng, 20), 4))
        middle = asyncio.create_task(ask("middle", random_ids(rng, 400), 4))
        await asyncio.gather(first, long, short, middle)

    try:
        asyncio.run(work())
    finally:
        model.tokenizer.end_ids = model_end
    assert ended.index("short") < ended.index("middle") < ended.index("long")
    assert sum(size for size, _ in passes) < 3900 + 400 + 60
    assert max(size for size, running in passes if running) <= serving.PIECE
    assert max(size for size, _ in passes) <= serving.IDLE_PIECE


def test_long_prompts_that_are_alike_are_read_once(model):
    policy = ServingPolicy(model)
    passes = watched(policy)
    prompt = random_ids(np.random.default_rng(3), 1200)
    run(policy, [prompt] * 8, max_tokens=3)
    assert sum(size for size, _ in passes) < 1200 + 8 * 32


def test_who_has_waited_long_comes_before_the_short(model):
    policy = ServingPolicy(model, max_running=2)
    rng = np.random.default_rng(4)
    ended: list[str] = []

    async def ask(name: str, prompt: list[int]) -> None:
        await policy.sample(prompt, Sampling(4))
        ended.append(name)

    async def work() -> None:
        long = asyncio.create_task(ask("long", random_ids(rng, 2000)))
        while not long.done():  # new short ones come all the time
            batch = [asyncio.create_task(ask("short", random_ids(rng, 6))) for _ in range(4)]
            await asyncio.gather(*batch)
            assert len(ended) < 3000

    asyncio.run(work())
    assert "long" in ended


def test_a_prompt_that_no_one_waits_for_is_read_no_further(model):
    policy = ServingPolicy(model)
    passes = watched(policy)
    rng = np.random.default_rng(5)

    async def work() -> None:
        running = asyncio.create_task(policy.sample(random_ids(rng, 8), Sampling(60)))
        long = asyncio.create_task(policy.sample(random_ids(rng, 3900), Sampling(4)))
        while len(passes) < 5:
            await asyncio.sleep(0)
        long.cancel()
        await running
        await policy.sample(random_ids(rng, 300), Sampling(2))

    asyncio.run(work())
    assert sum(size for size, _ in passes) < 1500
    assert not policy._readings and all(not block.users for block in policy._blocks)
    policy.reset()


@pytest.mark.parametrize("seed", range(3))
def test_memory_is_kept_to_whatever_comes_and_goes(model, seed, monkeypatch):
    monkeypatch.setattr(dense, "BLOCK_MIN", 64)
    monkeypatch.setattr(serving, "BLOCK_MIN", 64)
    rng = np.random.default_rng(seed)
    policy = ServingPolicy(model, max_running=6)
    policy.cache_bytes = 3000 * policy._cache.bytes_per_token
    shared = random_ids(rng, 400)

    async def ask() -> str:
        prompt = shared[: int(rng.integers(1, 400))] + random_ids(rng, int(rng.integers(1, 300)))
        task = asyncio.create_task(policy.sample(prompt, Sampling(int(rng.integers(1, 9)))))
        if rng.random() < 0.3:
            for _ in range(int(rng.integers(0, 20))):
                await asyncio.sleep(0)
            task.cancel()
        held = sum(len(b.ids) for b in policy._blocks)
        assert held + policy._cache.slots * policy._cache.length < 3 * 3000
        try:
            return (await task).stop_reason
        except asyncio.CancelledError:
            return "cancelled"

    async def work() -> list[str]:
        return await asyncio.gather(*(ask() for _ in range(60)))

    ended = asyncio.run(work())
    assert len(ended) == 60 and set(ended) <= {"length", "stop", "cancelled"}
    assert not policy._readings and not policy._running
    policy.reset()


def test_pages_are_read_short_prompts_first_and_give_the_same_tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "GPU_PIECE", 64)
    loaded = load_model(ModelConfig(path=str(tiny_model(tmp_path / "p"))))
    prompts = mixed(6)
    whole = run(PagedPolicy(loaded, 32, 4096, 1 << 24), prompts, max_tokens=10, temperature=0.0)
    pieces = run(
        ServingPagedPolicy(loaded, 32, 4096, 1 << 24), prompts, max_tokens=10, temperature=0.0
    )
    assert [r.token_ids for r in pieces] == [r.token_ids for r in whole]


def test_many_sequences_take_no_more_time_than_a_light_one_gets(model):
    light = ServingPolicy(model)
    heavy = HeavyPolicy(light, max_running=64)
    taken: list[tuple[ServingPolicy, float]] = []

    def timed(policy: ServingPolicy) -> None:
        step = policy.step

        def stepped() -> None:
            started = time.perf_counter()
            step()
            taken.append((policy, time.perf_counter() - started))

        policy.step = stepped  # type: ignore[method-assign]

    async def work() -> tuple[list[Completion], Completion]:
        many = [
            asyncio.create_task(heavy.sample([5, 6], Sampling(max_tokens=60, seed=i)))
            for i in range(40)
        ]
        while not heavy._running:
            await asyncio.sleep(0)
        for _ in range(3):  # what was taken while nobody waited is not owed
            await asyncio.sleep(0)
        del taken[:]
        own = await light.sample([7, 8], Sampling(max_tokens=24, seed=1, stop=("no such",)))
        beside = list(taken)
        others = await asyncio.gather(*many)
        mine = [seconds for policy, seconds in beside if policy is light]
        theirs = [seconds for policy, seconds in beside if policy is heavy]
        assert theirs and LIGHT_TIMES * sum(theirs[1:]) < sum(mine) + LIGHT_TIMES * max(theirs)
        return others, own

    for policy in (light, heavy):
        timed(policy)
    others, own = asyncio.run(work())

    async def alone() -> list[Completion]:
        policy = LocalPolicy(model)
        asked = [([5, 6], Sampling(max_tokens=60, seed=i)) for i in range(40)]
        asked.append(([7, 8], Sampling(max_tokens=24, seed=1, stop=("no such",))))
        jobs = [policy.sample(prompt, sampling) for prompt, sampling in asked]
        return await asyncio.gather(
            *jobs
        )  # which changes no token: see tests/sampler/test_dense.py

    assert [c.token_ids for c in (*others, own)] == [c.token_ids for c in asyncio.run(alone())]

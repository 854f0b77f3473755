"""The GPU's sampler, run on the CPU: the same scheduler and cache with plain torch inside."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from recollect.errors import UserError
from recollect.models.model import LoadedModel, ModelConfig, load_model
from recollect.sampler import paged
from recollect.sampler.bursts import Burst
from recollect.sampler.dense import LocalPolicy
from recollect.sampler.dense_cache import keys_of
from recollect.sampler.paged import PAGE
from recollect.types import Completion, Sampling
from tests.sampler.test_dense import KINDS
from tests.support.tiny import tiny_model


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def model(request, tmp_path_factory) -> LoadedModel:
    torch.set_num_threads(1)
    folder = tiny_model(tmp_path_factory.mktemp("m"), request.param, **KINDS[request.param])
    return load_model(ModelConfig(path=str(folder)))


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> LoadedModel:
    torch.set_num_threads(1)
    return load_model(ModelConfig(path=str(tiny_model(tmp_path_factory.mktemp("m"), "llama"))))


def paged_policy(model: LoadedModel, cache_bytes: int = 1 << 22, **settings) -> paged.PagedPolicy:
    return paged.PagedPolicy(model, cache_bytes=cache_bytes, **settings)


def run(policy, prompts: list[list[int]], **settings) -> list[Completion]:
    async def all_at_once() -> list[Completion]:
        jobs = [policy.sample(p, Sampling(seed=i, **settings)) for i, p in enumerate(prompts)]
        return await asyncio.gather(*jobs)

    return asyncio.run(all_at_once())


def assert_alike(one: list[Completion], other: list[Completion]) -> None:
    for a, b in zip(one, other, strict=True):
        assert (a.token_ids, a.stop_reason) == (b.token_ids, b.stop_reason)
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


def families(count: int, siblings: int, seed: int = 0) -> list[list[int]]:
    """Make prompts that share beginnings of all lengths, and some that share nothing."""
    rng = np.random.default_rng(seed)
    prompts = []
    for _ in range(count):
        shared = rng.integers(0, 250, rng.integers(1, 90)).tolist()
        for _ in range(siblings):
            prompts.append(shared + rng.integers(0, 250, rng.integers(1, 40)).tolist())
    return prompts


def test_a_model_that_computes_no_numbers_ends_with_a_sentence(tmp_path):
    broken = load_model(ModelConfig(path=str(tiny_model(tmp_path, "llama"))))
    with torch.no_grad():
        broken.network.get_decoder().norm.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="computes no numbers any more"):
        run(paged_policy(broken), [[5, 6, 7]], temperature=0, max_tokens=4)


@pytest.mark.parametrize("temperature, top_p", [(0, 1.0), (1.0, 1.0), (0.7, 0.8)])
def test_it_draws_what_the_cpu_sampler_draws(model, temperature, top_p):
    prompts = families(4, 3)
    settings = dict(temperature=temperature, top_p=top_p, max_tokens=13)
    expected = run(LocalPolicy(model), prompts, **settings)
    assert_alike(run(paged_policy(model), prompts, **settings), expected)
    small = paged_policy(model, max_running=5, prefill_tokens=37, burst=3)
    assert_alike(run(small, prompts, **settings), expected)


def test_a_full_cache_makes_the_latest_wait_and_changes_nothing(llama):
    prompts = families(3, 3)
    expected = run(LocalPolicy(llama), prompts, max_tokens=60)
    one = 2 * sum(value.nbytes for _key, value in keys_of(llama))
    longest = max(len(p) for p in prompts) + 60
    policy = paged_policy(llama, cache_bytes=one * 2 * longest)
    evicted = []
    evict = policy._evict
    policy._evict = lambda request: (evicted.append(request), evict(request))
    assert_alike(run(policy, prompts, max_tokens=60), expected)
    assert evicted
    assert policy._pages.room == policy._pages.count - 1  # every page came back


@dataclass
class Slow(Burst):
    """A burst that a device still works on when it is first asked for."""

    asked: int = 0

    def ready(self) -> bool:
        self.asked += 1
        return self.asked > 3


@pytest.mark.parametrize("settings", [{}, dict(max_running=7, burst=3, prefill_tokens=37)])
@pytest.mark.parametrize("tokens", [1 << 14, 400])
def test_who_asks_again_while_the_device_works_is_served_alike(llama, settings, tokens):
    async def chats(policy) -> list[Completion]:
        async def chat(number: int, prompt: list[int]) -> list[Completion]:
            said = []
            for turn in range(3):  # of many lengths, so that some ask while others are served
                sampling = Sampling(seed=10 * number + turn, max_tokens=1 + (number + turn) % 14)
                said.append(await policy.sample(prompt, sampling))
                prompt = [*prompt, *said[-1].token_ids, 7]
            return said

        found = await asyncio.gather(*(chat(*job) for job in enumerate(families(4, 3))))
        return [completion for said in found for completion in said]

    one = 2 * sum(value.nbytes for _key, value in keys_of(llama))
    policy = paged_policy(llama, cache_bytes=one * tokens, **settings)
    burst = policy._extender.burst

    def slow(*given) -> Slow:
        begun = burst(*given)
        return Slow(begun.tokens, begun.logprobs, counts=begun.counts)

    policy._extender.burst = slow
    assert_alike(asyncio.run(chats(policy)), asyncio.run(chats(LocalPolicy(llama))))
    assert policy._pages.room == policy._pages.count - 1


def test_the_others_go_on_before_whoever_was_answered_asks_again(llama):
    policy = paged_policy(llama, burst=4)
    events = []
    burst, read = policy._extender.burst, policy._reader.read

    def begin(*given) -> Slow:
        begun = burst(*given)
        events.append("burst")
        return Slow(begun.tokens, begun.logprobs, counts=begun.counts)

    policy._extender.burst = begin
    policy._reader.read = lambda runs: (events.append("read"), read(runs))[1]

    async def twice() -> None:
        await policy.sample([1, 2, 3], Sampling(max_tokens=1))
        events.append("answered")
        await policy.sample([4, 5, 6], Sampling(max_tokens=1))

    async def both() -> None:
        await asyncio.gather(policy.sample([7, 8, 9], Sampling(max_tokens=13)), twice())

    policy._ends = set()
    asyncio.run(both())
    # The second burst runs while the answer is heard; what is asked then is read right after it.
    assert events[:5] == ["read", "burst", "burst", "answered", "read"]


def test_the_device_works_before_all_askers_have_worked_on_their_replies(llama):
    """All replies end at once; the device does not wait until all askers have asked again."""
    policy = paged_policy(llama)
    policy._ends = set()
    rows, begin = [], policy._extender.burst
    policy._extender.burst = lambda plan, start, *new: (
        rows.append(len(start.ids)),
        begin(plan, start, *new),
    )[1]
    count = 3 * paged.ANSWERED

    async def ask(number: int) -> None:
        for turn in range(2):
            await policy.sample([number, turn, 3], Sampling(max_tokens=3, seed=number))

    async def everyone() -> None:
        await asyncio.gather(*(ask(number) for number in range(count)))

    asyncio.run(everyone())
    assert rows[0] == count  # asked together
    assert rows[1] < count and sum(rows[1:]) >= count


def test_a_prompt_above_the_cache_says_so(llama):
    policy = paged_policy(llama, cache_bytes=1 << 16)
    with pytest.raises(UserError, match="cache-gib"):
        run(policy, [[1] * 200], max_tokens=4000)


def test_prompts_that_begin_alike_are_read_once(llama):
    policy = paged_policy(llama)
    read = []
    take = policy._reader.read
    policy._reader.read = lambda runs: (read.append(len(runs.ids)), take(runs))[1]
    prompt = np.random.default_rng(0).integers(0, 250, 10 * PAGE + 3).tolist()
    run(policy, [prompt] * 16, max_tokens=1)
    assert sum(read) == len(prompt) + 15 * 3
    read.clear()
    (reply,) = run(policy, [prompt], max_tokens=3 * PAGE)  # still known
    assert sum(read) == 3
    read.clear()
    run(policy, [[*prompt, *reply.token_ids, 7]], max_tokens=1)  # the next turn of a chat
    assert sum(read) <= PAGE + 1
    policy.reset()
    read.clear()
    run(policy, [prompt], max_tokens=1)
    assert sum(read) == len(prompt)


def test_a_cache_that_all_nearly_fit_is_not_read_anew_by_all(llama):
    """By age alone each of these chats would lose its pages to the one before it."""
    one = 2 * sum(value.nbytes for _key, value in keys_of(llama))
    count, size = 16, 6 * PAGE
    policy = paged_policy(llama, cache_bytes=one * PAGE * 100)
    policy._ends = set()
    prompts = np.random.default_rng(1).integers(0, 250, (count, size)).tolist()
    run(policy, prompts, max_tokens=3)
    read = []
    take = policy._reader.read
    policy._reader.read = lambda runs: (read.append(len(runs.ids)), take(runs))[1]
    run(policy, [[*prompt, *range(20)] for prompt in prompts], max_tokens=3)
    # They need 112 pages and there are 99: the last two lose theirs.
    assert sum(read) < count * 20 + 2 * size


def test_requests_join_leave_and_are_cancelled_at_any_time(llama):
    policy = paged_policy(llama, max_running=3)
    prompts = families(3, 3)
    expected = run(LocalPolicy(llama), prompts, max_tokens=12)

    async def uneven() -> list[Completion]:
        doomed = asyncio.create_task(policy.sample(prompts[0], Sampling(max_tokens=900, seed=99)))
        first = [
            asyncio.create_task(policy.sample(p, Sampling(max_tokens=12, seed=i)))
            for i, p in enumerate(prompts[:5])
        ]
        await first[0]
        doomed.cancel()
        later = [
            policy.sample(p, Sampling(max_tokens=12, seed=i + 5)) for i, p in enumerate(prompts[5:])
        ]
        return [*(await asyncio.gather(*first)), *(await asyncio.gather(*later))]

    assert_alike(asyncio.run(uneven()), expected)
    assert policy._pages.room == policy._pages.count - 1


def test_every_token_is_told_in_order_and_stop_texts_end_a_reply(llama):
    prompt = families(1, 1)[0]
    (free,) = run(LocalPolicy(llama), [prompt], max_tokens=50)
    text = llama.tokenizer.decode(free.token_ids[20:24])
    expected = run(LocalPolicy(llama), [prompt], max_tokens=50, stop=(text,))
    heard = []

    async def listen() -> Completion:
        sampling = Sampling(max_tokens=50, stop=(text,), seed=0)
        policy = paged_policy(llama)
        return await policy.sample(prompt, sampling, lambda token, p: heard.append((token, p)))

    reply = asyncio.run(listen())
    assert_alike([reply], expected)
    assert heard == list(zip(reply.token_ids, reply.logprobs, strict=True))


def test_a_single_token_and_the_end_of_the_window(llama):
    prompts = families(2, 2)
    assert_alike(
        run(paged_policy(llama), prompts, max_tokens=1),
        run(LocalPolicy(llama), prompts, max_tokens=1),
    )
    policy = paged_policy(llama, cache_bytes=1 << 24)
    whole = [7] * (llama.window - 3)
    assert len(run(policy, [whole], max_tokens=3)[0].token_ids) <= 3
    with pytest.raises(ValueError, match="window"):
        run(policy, [whole], max_tokens=4)


def test_a_reset_gives_up_a_burst_that_no_one_waits_for(llama):
    policy = paged_policy(llama)
    prompt = families(1, 1)[0]
    expected = run(LocalPolicy(llama), [prompt], max_tokens=5)

    async def leave_and_come_again() -> Completion:
        begin = policy._extender.burst

        def never_ready(*args):
            burst = begin(*args)
            burst.ready = lambda: False
            return burst

        policy._extender.burst = never_ready
        lost = asyncio.create_task(policy.sample(prompt, Sampling(max_tokens=5)))
        for _ in range(5):
            await asyncio.sleep(0)
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        policy._extender.burst = begin
        policy.reset()
        return await policy.sample(prompt, Sampling(max_tokens=5, seed=0))

    assert_alike([asyncio.run(leave_and_come_again())], expected)


def test_what_breaks_is_told_to_all_who_wait_and_the_next_ones_are_served(llama):
    policy = paged_policy(llama)
    prompts = families(2, 2)
    begin = policy._extender.burst

    def broken(*_args):
        raise RuntimeError("no such kernel")

    policy._extender.burst = broken
    with pytest.raises(RuntimeError, match="no such kernel"):
        run(policy, prompts, max_tokens=3)
    policy._extender.burst = begin
    expected = run(LocalPolicy(llama), prompts, max_tokens=3)
    assert_alike(run(policy, prompts, max_tokens=3), expected)


def test_a_reset_takes_the_weights_as_they_are(llama):
    policy = paged_policy(llama)
    prompt = families(1, 1)[0]
    before = run(policy, [prompt], max_tokens=30)
    head = llama.network.get_output_embeddings().weight
    with torch.no_grad():
        head.mul_(-1)
    try:
        policy.reset()
        assert run(policy, [prompt], max_tokens=30) != before
    finally:
        with torch.no_grad():
            head.mul_(-1)

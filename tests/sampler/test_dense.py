"""The sampler against transformers' own model, token for token."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from recollect.models.model import LoadedModel, ModelConfig, load_model
from recollect.sampler import dense as local
from recollect.sampler.dense import LocalPolicy
from recollect.sampler.draw import draw, uniforms
from recollect.sampler.paged import PagedPolicy
from recollect.types import Completion, Sampling
from tests.support.tiny import tiny_model

KINDS = {
    "llama": {},
    "qwen2": {},
    "gemma2": {
        "sliding_window": 12,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 10.0,
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 4096},
}


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request, tmp_path_factory) -> tuple[LoadedModel, torch.nn.Module]:
    torch.set_num_threads(1)
    folder: Path = tiny_model(tmp_path_factory.mktemp("m"), request.param, **KINDS[request.param])
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return load_model(ModelConfig(path=str(folder))), plain.eval()


def run(
    policy: LocalPolicy | PagedPolicy, prompts: list[list[int]], **sampling
) -> list[Completion]:
    async def all_at_once() -> list[Completion]:
        jobs = [policy.sample(p, Sampling(seed=i, **sampling)) for i, p in enumerate(prompts)]
        return await asyncio.gather(*jobs)

    return asyncio.run(all_at_once())


def reference_logprobs(plain, prompt: list[int], reply: tuple[int, ...]) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *reply]])
    with torch.no_grad():
        logprobs = plain(ids).logits[0].float().log_softmax(-1)
    return logprobs[len(prompt) - 1 : -1].gather(1, torch.tensor(reply)[:, None])[:, 0]


def check(plain, prompts: list[list[int]], replies: list[Completion]) -> None:
    for prompt, reply in zip(prompts, replies, strict=True):
        expected = reference_logprobs(plain, prompt, reply.token_ids)
        np.testing.assert_allclose(reply.logprobs, expected, atol=2e-4)


def random_ids(rng: np.random.Generator, size: int) -> list[int]:
    return rng.integers(0, 250, size).tolist()


def test_greedy_tokens_are_the_models_own(pair):
    model, plain = pair
    rng = np.random.default_rng(0)
    prompts = [random_ids(rng, n) for n in (1, 5, 40, 41, 300, 301)]
    replies = run(LocalPolicy(model), prompts, temperature=0, max_tokens=12)
    for prompt, reply in zip(prompts, replies, strict=True):
        with torch.no_grad():
            logits = plain(torch.tensor([[*prompt, *reply.token_ids]])).logits[0]
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == list(reply.token_ids)
    check(plain, prompts, replies)


def test_logprobs_are_exact_where_prompts_share_prefixes(pair, monkeypatch):
    model, plain = pair
    monkeypatch.setattr(local, "BLOCK_MIN", 64)
    rng = np.random.default_rng(1)
    short, long = random_ids(rng, 30), random_ids(rng, 150)
    prompts = [short + random_ids(rng, n) for n in (0, 1, 7, 20)]
    prompts += [short] * 3
    prompts += [long + random_ids(rng, n) for n in (0, 3, 30, 40, 200)]
    prompts += [long[:100] + random_ids(rng, 5), long]
    replies = run(LocalPolicy(model, prefill_tokens=97), prompts, max_tokens=9)
    check(plain, prompts, replies)


def test_requests_come_and_go_at_any_time(pair, monkeypatch):
    model, plain = pair
    monkeypatch.setattr(local, "BLOCK_MIN", 48)
    policy = LocalPolicy(model, max_running=5)
    rng = np.random.default_rng(2)
    shared = random_ids(rng, 60)
    seen: list[tuple[list[int], Completion]] = []

    async def episode(i: int) -> None:
        for turn in range(3):
            prompt = shared[: 20 + 10 * turn + i % 3] + random_ids(rng, 1 + i % 5)
            sampling = Sampling(max_tokens=2 + (i * 7 + turn) % 11, seed=i * 10 + turn)
            seen.append((prompt, await policy.sample(prompt, sampling)))

    async def all_episodes() -> None:
        await asyncio.gather(*(episode(i) for i in range(16)))

    asyncio.run(all_episodes())
    assert len(seen) == 48
    check(plain, [p for p, _ in seen], [c for _, c in seen])
    assert not policy._running and not policy._waiting and not policy._slot_index
    assert all(b.users == 0 for b in policy._blocks)


def test_shared_prompts_are_computed_once(pair):
    model, _ = pair
    computed: list[int] = []
    hidden = model.hidden

    def count(ids, positions, plan):
        computed.append(len(ids))
        return hidden(ids, positions, plan)

    model.hidden = count  # type: ignore[method-assign]
    try:
        prompt = random_ids(np.random.default_rng(3), 400)
        run(LocalPolicy(model), [prompt] * 16, max_tokens=1)
        alone = computed[:]
        computed.clear()
        run(LocalPolicy(model), [prompt[:50]] * 16, max_tokens=1)
    finally:
        del model.hidden
    assert sum(alone) <= 400 + 16 * 16 + 1
    assert sum(computed) <= 50 + 16 + 1


def test_a_draw_does_not_depend_on_its_company(pair):
    model, _ = pair
    rng = np.random.default_rng(4)
    prompts = [random_ids(rng, 20) for _ in range(6)]
    together = run(LocalPolicy(model), prompts, max_tokens=8)
    for i, prompt in enumerate(prompts):

        async def alone(i=i, prompt=prompt) -> Completion:
            return await LocalPolicy(model).sample(prompt, Sampling(max_tokens=8, seed=i))

        assert asyncio.run(alone()).token_ids == together[i].token_ids


def test_stops_at_end_tokens_texts_and_limits(pair, monkeypatch):
    model, _ = pair
    rng = np.random.default_rng(5)
    prompts = [random_ids(rng, 10) for _ in range(8)]
    free = run(LocalPolicy(model), prompts, max_tokens=50)
    ends = model.tokenizer.end_ids
    for reply in free:
        assert reply.stop_reason in ("stop", "length")
        assert all(t not in ends for t in reply.token_ids[:-1])
        assert (reply.token_ids[-1] in ends) == (reply.stop_reason == "stop")
        assert len(reply.token_ids) == 50 or reply.stop_reason == "stop"
    drawn = free[0].token_ids
    end = drawn[20]
    monkeypatch.setattr(model.tokenizer, "end_ids", (end,))
    (cut,) = run(LocalPolicy(model), prompts[:1], max_tokens=50)
    assert cut.stop_reason == "stop" and cut.token_ids == drawn[: drawn.index(end) + 1]


def test_a_stop_text_ends_a_reply_where_it_ends(pair):
    model, _ = pair
    tokenizer = model.tokenizer
    letters = [tokenizer.encode(letter)[0] for letter in "abcdef"]
    policy = LocalPolicy(model)
    logits = model.logits

    def only_letters(hidden: torch.Tensor) -> torch.Tensor:
        allowed = torch.full((len(hidden), tokenizer.vocab_size), float("-inf"))
        allowed[:, letters] = logits(hidden)[:, letters]
        return allowed

    model.logits = only_letters  # type: ignore[method-assign]
    try:
        prompt = random_ids(np.random.default_rng(5), 10)
        (free,) = run(policy, [prompt], max_tokens=60)
        text = tokenizer.decode(free.token_ids)
        stop = text[20:23]  # made of three tokens
        (cut,) = run(policy, [prompt], max_tokens=60, stop=("zzz", stop))
    finally:
        del model.logits
    assert free.stop_reason == "length" and len(text) == 60
    assert cut.stop_reason == "stop"
    assert tokenizer.decode(cut.token_ids) == text[: text.index(stop) + 3]
    assert cut.logprobs == free.logprobs[: len(cut.logprobs)]


def test_a_cancelled_request_frees_its_slot(pair):
    model, _ = pair
    policy = LocalPolicy(model)

    async def main() -> Completion:
        slow = asyncio.create_task(policy.sample([1, 2, 3], Sampling(max_tokens=500, seed=1)))
        fast = asyncio.create_task(policy.sample([1, 2, 4], Sampling(max_tokens=30, seed=2)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slow.cancel()
        return await fast

    assert asyncio.run(main()).token_ids
    assert not policy._running


def test_the_cache_keeps_to_its_memory(pair, monkeypatch):
    """Many short sequences, then long ones: the table must not become many times long."""
    model, plain = pair
    monkeypatch.setattr(local, "BLOCK_MIN", 64)
    rng = np.random.default_rng(6)
    policy = LocalPolicy(model)
    tokens = 1200
    policy.cache_bytes = tokens * policy._cache.bytes_per_token
    held: list[int] = []
    step = policy.step

    def watch() -> None:
        step()
        table = policy._cache.slots * policy._cache.length
        held.append(table + sum(len(b.ids) for b in policy._blocks))

    monkeypatch.setattr(policy, "step", watch)
    for size, max_tokens in ((10, 2), (100, 3), (30, 30), (200, 20), (5, 2)):
        prompts = [random_ids(rng, size + i % 3) for i in range(20 if size < 50 else 6)]
        prompts += [prompts[0] + [7]] * 3
        check(plain, prompts, run(policy, prompts, max_tokens=max_tokens))
    assert max(held) <= tokens
    large = random_ids(rng, 1500)  # alone it is run whatever it takes
    check(plain, [large, large[:9]], run(policy, [large, large[:9]], max_tokens=3))


def test_after_a_reset_the_sampler_is_as_new(pair):
    """Bit for bit: a resumed run starts with a new sampler."""
    model, _ = pair
    rng = np.random.default_rng(7)
    shared = random_ids(rng, 600)
    prompts = [shared[:n] + random_ids(rng, 9) for n in (5, 5, 300, 560, 600)]
    policy = LocalPolicy(model)
    run(policy, [shared, random_ids(rng, 700), *[shared[:40]] * 40], max_tokens=30)
    policy.reset()
    assert run(policy, prompts, max_tokens=12) == run(LocalPolicy(model), prompts, max_tokens=12)


def test_a_reset_cannot_strand_a_request(pair):
    model, _ = pair
    policy = LocalPolicy(model)

    async def main() -> Completion:
        reply = asyncio.create_task(policy.sample([1, 2, 3], Sampling(max_tokens=5)))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="requests wait"):
            policy.reset()
        return await reply

    assert asyncio.run(main()).token_ids


def test_an_error_reaches_every_asker_and_the_next_request_runs(pair, monkeypatch):
    model, _ = pair
    policy = LocalPolicy(model)

    def fail(*_args: object) -> None:
        raise MemoryError("no room")

    async def main() -> list[object]:
        jobs = [policy.sample([1, 2, i], Sampling(max_tokens=5)) for i in range(3)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    with monkeypatch.context() as broken:
        broken.setattr(model, "logits", fail)
        assert all(isinstance(found, MemoryError) for found in asyncio.run(main()))
    assert all(isinstance(found, Completion) for found in asyncio.run(main()))


def test_bad_prompts_are_refused(pair):
    model, _ = pair
    for policy in (LocalPolicy(model), PagedPolicy(model, cache_bytes=1 << 20)):
        for prompt in ([], [-1], [10**6], [model.tokenizer.vocab_size]):
            with pytest.raises(ValueError, match="vocabulary"):
                run(policy, [prompt])
        run(policy, [[model.tokenizer.vocab_size - 1]], max_tokens=4)


def test_draws_follow_the_distribution():
    probs = torch.tensor([0.1, 0.2, 0.0, 0.7])
    n = 20_000
    u = uniforms(np.arange(n), np.zeros(n, dtype=np.int64))
    logits = probs.log().repeat(n, 1)
    tokens, logprobs = draw(logits, np.ones(n), np.ones(n), u)
    shares = np.bincount(tokens, minlength=4) / n
    np.testing.assert_allclose(shares, probs, atol=0.015)
    np.testing.assert_allclose(logprobs[:50], probs.log()[torch.tensor(tokens[:50])], rtol=1e-5)
    tokens, _ = draw(logits, np.ones(n), np.full(n, 0.85), u)
    shares = np.bincount(tokens, minlength=4) / n
    np.testing.assert_allclose(shares, [0, 2 / 9, 0, 7 / 9], atol=0.015)
    tokens, _ = draw(logits, np.full(n, 0.5), np.ones(n), u)
    expected = probs**2 / (probs**2).sum()
    np.testing.assert_allclose(np.bincount(tokens, minlength=4) / n, expected, atol=0.015)


def test_every_token_is_heard_as_it_is_drawn(tmp_path):
    policy = LocalPolicy(load_model(ModelConfig(path=str(tiny_model(tmp_path)))))
    heard: list[list[tuple[int, float]]] = [[], []]

    async def both() -> list[Completion]:
        jobs = [
            policy.sample(
                prompt, Sampling(max_tokens=8, seed=i), lambda *t, i=i: heard[i].append(t)
            )
            for i, prompt in enumerate(([5, 6, 7], [9] * 20))
        ]
        return await asyncio.gather(*jobs)

    replies = asyncio.run(both())
    assert heard == [list(zip(r.token_ids, r.logprobs, strict=True)) for r in replies]


@pytest.mark.parametrize("limit", [512, 7])
def test_what_is_computed_together_does_not_depend_on_when_a_server_answers(tmp_path, limit):
    """Half of the replies lead to a second prompt, after something that takes its time."""
    model = load_model(ModelConfig(path=str(tiny_model(tmp_path))))
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 90, rng.integers(4, 30)).tolist() for _ in range(40)]

    def replies(times: np.ndarray) -> list[Completion]:
        policy = LocalPolicy(model, max_running=limit)
        away = 0
        policy.hold = lambda: away > 0

        async def one(i: int) -> Completion:
            nonlocal away
            for turn in range(2):
                reply = await policy.sample(prompts[i][turn:], Sampling(max_tokens=5, seed=i))
                if i % 2:
                    break
                away += 1
                await asyncio.sleep(times[i, turn])
                away -= 1
                await asyncio.gather(asyncio.create_task(asyncio.sleep(0)))
            return reply

        async def every() -> list[Completion]:
            return await asyncio.gather(*(one(i) for i in range(len(prompts))))

        return asyncio.run(every())

    first = replies(rng.uniform(0, 0.01, (len(prompts), 2)))
    assert replies(rng.uniform(0, 0.01, (len(prompts), 2))) == first  # to the last bit

"""Completions over real HTTP: the tokens are the engine's, one for one."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from openai import AsyncOpenAI

from recollect.sampler.dense import LocalPolicy
from recollect.seeds import derive
from recollect.types import Completion, Sampling
from tests.support.served import served

PROMPTS = [[5, 6, 7], [9] * 40, list(range(60, 100)), [7]]


def direct(model, prompts, sampling) -> list[Completion]:
    policy = LocalPolicy(model)

    async def run() -> list[Completion]:
        return await asyncio.gather(*[policy.sample(p, sampling) for p in prompts])

    return asyncio.run(run())


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_token_prompts_give_the_engine_s_own_tokens_and_logprobs(model, temperature):
    sampling = Sampling(max_tokens=24, temperature=temperature, top_p=0.9, seed=derive("a"))
    expected = direct(model, PROMPTS, sampling)

    async def work(client: AsyncOpenAI, _server):
        ask = lambda prompt: client.completions.create(  # noqa: E731
            model="tiny",
            prompt=prompt,
            max_tokens=24,
            temperature=temperature,
            top_p=0.9,
            seed=derive("a"),
            logprobs=0,
        )
        return await asyncio.gather(*map(ask, PROMPTS)), await ask(PROMPTS)

    alone, together = served(model, work)
    for reply, want, prompt in zip(alone, expected, PROMPTS, strict=True):
        choice = reply.choices[0]
        assert choice.prompt_token_ids == prompt
        assert tuple(choice.token_ids) == want.token_ids
        assert choice.finish_reason == want.stop_reason
        np.testing.assert_allclose(choice.logprobs.token_logprobs, want.logprobs, atol=1e-5)
        assert reply.usage.prompt_tokens == len(prompt)
        assert reply.usage.completion_tokens == len(want.token_ids)
    assert [c.token_ids for c in together.choices] == [r.choices[0].token_ids for r in alone]


def test_several_choices_differ_and_a_seed_brings_them_back(model):
    async def work(client: AsyncOpenAI, _server):
        ask = lambda **more: client.completions.create(  # noqa: E731
            model="tiny", prompt=PROMPTS[0], max_tokens=16, n=3, **more
        )
        return [await ask(seed=1), await ask(seed=1), await ask(), await ask()]

    replies = [[tuple(c.token_ids) for c in r.choices] for r in served(model, work)]
    assert replies[0] == replies[1]
    assert len(set(replies[0])) == 3
    assert replies[2] != replies[3]


def test_a_stream_says_what_the_whole_reply_says(model):
    async def work(client: AsyncOpenAI, _server):
        ask = dict(model="tiny", prompt=PROMPTS[:2], max_tokens=40, n=2, seed=3, logprobs=0)
        whole = await client.completions.create(**ask)
        stream = await client.completions.create(
            **ask, stream=True, stream_options={"include_usage": True}
        )
        return whole, [chunk async for chunk in stream]

    whole, chunks = served(model, work)
    assert chunks[-1].usage == whole.usage
    for choice in whole.choices:
        mine = [c for chunk in chunks for c in chunk.choices if c.index == choice.index]
        assert "".join(c.text for c in mine) == choice.text
        assert [i for c in mine for i in c.token_ids] == choice.token_ids
        assert mine[0].prompt_token_ids == choice.prompt_token_ids
        logprobs = [c.logprobs for c in mine if c.logprobs]
        for name in ("tokens", "token_logprobs", "text_offset"):
            told = [value for one in logprobs for value in getattr(one, name)]
            # What else was computed in the same step moves the last bits.
            close = pytest.approx(getattr(choice.logprobs, name), abs=1e-4)
            assert told == (close if name == "token_logprobs" else getattr(choice.logprobs, name))
        assert [c.finish_reason for c in mine if c.finish_reason] == [choice.finish_reason]
        assert len(mine) > 3


def test_text_is_encoded_once_and_stop_texts_are_cut_from_text_alone(model):
    async def work(client: AsyncOpenAI, _server):
        ask = dict(model="tiny", prompt="what was said", max_tokens=60, seed=5)
        more = {"return_token_ids": True}
        plain = await client.completions.create(**ask, extra_body=more)
        text = plain.choices[0].text
        stop = next(text[i : i + 2] for i in range(10, 50) if text[i : i + 2].isascii())
        cut = await client.completions.create(**ask, stop=[stop], extra_body=more)
        stream = await client.completions.create(**ask, stop=[stop], stream=True)
        streamed = "".join([c.choices[0].text async for c in stream])
        kept = await client.completions.create(
            **ask, stop=stop, extra_body={"include_stop_str_in_output": True}
        )
        return plain.choices[0], stop, cut.choices[0], streamed, kept.choices[0]

    plain, stop, cut, streamed, kept = served(model, work)
    before = plain.text.partition(stop)[0]
    assert cut.text == streamed == before
    assert kept.text == before + stop
    assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)
    assert cut.token_ids == plain.token_ids[: len(cut.token_ids)]
    assert model.tokenizer.decode(cut.token_ids).endswith(stop)
    assert plain.prompt_token_ids == model.tokenizer.encode("what was said")


def test_echo_scores_the_prompt_and_shows_likelier_tokens(model):
    async def work(client: AsyncOpenAI, _server):
        ask = dict(model="tiny", prompt=PROMPTS[2], echo=True, logprobs=3, temperature=0)
        return [
            await client.completions.create(**ask, max_tokens=0),
            await client.completions.create(**ask, max_tokens=5),
        ]

    scored, more = (reply.choices[0] for reply in served(model, work))
    prompt = PROMPTS[2]
    expected = direct(model, [prompt], Sampling(max_tokens=5, temperature=0.0))[0]
    assert scored.token_ids == []
    assert len(scored.logprobs.tokens) == len(prompt)
    assert scored.logprobs.token_logprobs[0] is None and scored.logprobs.top_logprobs[0] is None
    assert more.logprobs.token_logprobs[: len(prompt)] == scored.logprobs.token_logprobs
    assert more.text == model.tokenizer.decode([*prompt, *expected.token_ids])
    for place in range(1, len(prompt)):
        top = scored.logprobs.top_logprobs[place]
        assert len(top) <= 3 and max(top.values()) >= scored.logprobs.token_logprobs[place] - 1e-6
    for top, logprob in zip(more.logprobs.top_logprobs[-5:], expected.logprobs, strict=True):
        assert max(top.values()) == pytest.approx(logprob, abs=1e-4)

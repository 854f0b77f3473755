"""The same questions, with OpenAI's client, to any server: ours here, others where a URL is given.

    RECOLLECT_SERVER_URL=http://localhost:8000/v1 python -m pytest tests/serve/test_other_servers.py

Servers differ in what they can do: a test that needs token ids is skipped where there are none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import openai
import pytest
from openai import AsyncOpenAI

from recollect.models.connect import connect
from recollect.policies.served import EndpointPolicy
from recollect.types import Sampling
from tests.support.served import served

URL = os.environ.get("RECOLLECT_SERVER_URL", "")
USER = [{"role": "user", "content": "Name three colours, then three animals."}]

Ask = Callable[[Callable[[AsyncOpenAI, str, str], Awaitable[None]]], None]


@pytest.fixture(params=["ours", "given"])
def ask(request, model) -> Ask:
    """Run a test with a client, the server's URL and the model's id."""
    if request.param == "ours":
        return lambda work: served(model, lambda client, server: work(client, server.url, "tiny"))
    if not URL:
        pytest.skip("RECOLLECT_SERVER_URL names no server")

    async def run(work) -> None:
        key = os.environ.get("OPENAI_API_KEY") or "none"
        async with AsyncOpenAI(base_url=URL, api_key=key, max_retries=0) as client:
            name = (
                os.environ.get("RECOLLECT_SERVER_MODEL") or (await client.models.list()).data[0].id
            )
            await work(client, URL, name)

    return lambda work: asyncio.run(run(work))


def test_chats_and_streams_agree(ask):
    async def work(client: AsyncOpenAI, _url: str, name: str) -> None:
        settings = dict(model=name, messages=USER, max_tokens=12, temperature=0)
        whole = await client.chat.completions.create(**settings)
        stream = await client.chat.completions.create(**settings, stream=True)
        choices = [chunk.choices[0] async for chunk in stream if chunk.choices]
        assert "".join(c.delta.content or "" for c in choices) == whole.choices[0].message.content
        assert [c.finish_reason for c in choices if c.finish_reason] == [
            whole.choices[0].finish_reason
        ]
        assert whole.usage is not None and 0 < whole.usage.completion_tokens <= 12

    ask(work)


def test_many_at_once_get_what_each_gets_alone(ask):
    async def work(client: AsyncOpenAI, _url: str, name: str) -> None:
        async def one(i: int) -> str:
            messages = [{"role": "user", "content": f"Count from {i}."}]
            reply = await client.chat.completions.create(
                model=name, messages=messages, max_tokens=8, temperature=0
            )
            return reply.choices[0].message.content or ""

        together = await asyncio.gather(*map(one, range(4)))
        assert [await one(i) for i in range(4)] == together

    ask(work)


def test_mistakes_are_refused(ask):
    async def work(client: AsyncOpenAI, _url: str, name: str) -> None:
        with pytest.raises(openai.APIStatusError):
            await client.chat.completions.create(model=name, messages="no list")
        with pytest.raises(openai.APIStatusError):
            await client.chat.completions.create(model=name, messages=USER, temperature="warm")

    ask(work)


def test_token_ids_go_in_and_come_out(ask):
    async def work(client: AsyncOpenAI, url: str, name: str) -> None:
        prompt = [5, 6, 7, 8, 9, 10]
        try:
            reply = await client.completions.create(
                model=name,
                prompt=prompt,
                max_tokens=8,
                temperature=0,
                logprobs=1,
                extra_body={"return_token_ids": True},
            )
        except openai.APIStatusError as error:
            if url != URL:  # ours must
                raise
            pytest.skip(f"it takes no token ids: {error}")
        choice = reply.choices[0]
        if getattr(choice, "token_ids", None) is None and url == URL:
            pytest.skip("it tells no token ids")
        assert choice.prompt_token_ids == prompt
        assert len(choice.logprobs.token_logprobs) == len(choice.token_ids) > 0
        folder = os.environ.get("RECOLLECT_SERVER_FOLDER")
        if "127.0.0.1" in url and not folder:
            return
        remote = await asyncio.to_thread(connect, url, tokenizer=folder)
        assert isinstance(remote.policy, EndpointPolicy)
        drawn = await remote.policy.sample(prompt, Sampling(max_tokens=8, temperature=0.0))
        assert list(drawn.token_ids) == choice.token_ids

    ask(work)

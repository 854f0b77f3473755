"""Users of an endpoint: none lost in a kill, none mixed, and what is forgotten stays so."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from benchmarks.attacks import bodies
from recollect.agents.fold import FoldAgent
from recollect.cli import main
from recollect.endpoint.start import READING, with_budget
from recollect.keeping.keeper import Keeper
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import Item
from recollect.models.connect import connect
from tests.endpoint.test_upstream import conversation, said
from tests.support.endpoint import Started, started
from tests.support.upstream import Upstream, upstream

FEW = ("--memory-tokens", "200", "--set", "chunk_size=600")


@pytest.fixture(scope="module")
def server():
    with upstream(1024) as server:
        yield server


def client_of(running: Started) -> AsyncOpenAI:
    http = httpx.AsyncClient(limits=httpx.Limits(max_connections=400), timeout=60)
    return AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0, http_client=http)


def test_two_hundred_users_at_once_with_a_kill_in_between(tmp_path: Path, server: Upstream):
    async def ask(client: AsyncOpenAI, name: int, turns: int) -> Any:
        reply = await client.chat.completions.create(
            model="scripted", messages=conversation(turns, f"u{name}x"), user=f"user {name}"
        )
        return reply.recollect, reply.choices[0].message.content

    async def all_of_them(running: Started, turns: int, kill_after: int = 0) -> list[Any]:
        async with client_of(running) as client:
            tasks = [asyncio.create_task(ask(client, i, turns)) for i in range(200)]
            if kill_after:
                while sum(task.done() for task in tasks) < kill_after:
                    await asyncio.sleep(0.005)
                running.kill()
            return await asyncio.gather(*tasks, return_exceptions=True)

    args = ("--upstream", server.url, *FEW)
    with started(tmp_path, *args) as running:
        first = asyncio.run(all_of_them(running, 6, kill_after=100))
    answered = {i: found[0] for i, found in enumerate(first) if not isinstance(found, Exception)}
    assert 100 <= len(answered) <= 200
    with started(tmp_path, *args) as running:
        again = asyncio.run(all_of_them(running, 6))
        assert not [found for found in again if isinstance(found, Exception)]
        for i, (receipt, text) in enumerate(again):
            # Everything is there, nothing of others is; what was read before the kill is kept.
            assert set(text.split()[2:]) == {f"factu{i}x{n}" for n in range(6)}
            assert receipt["memory"]["items"] > 4
            if i in answered:
                assert receipt["memory"] == answered[i]["memory"]
                assert receipt["reading"]["calls"] == 0


def test_forgetting_equals_never_having_been_sent(tmp_path: Path, server: Upstream):
    """A hundred random items of ten users, by the routes; readers who never saw them beside."""
    rng = random.Random(0)
    model = connect(server.url, window=1024, sampling=READING)
    agent, _ = with_budget(FoldAgent(chunk_size=600), 1024, 200)
    roles = {"memory": model, "answer": model}
    texts = {
        name: [f"fact{name}y{i} " + "so it is " * rng.randint(8, 24) for i in range(30)]
        for name in range(10)
    }

    def messages(name: int) -> list[dict[str, str]]:
        kept = [said("user", text) for text in texts[name]]
        return [*kept, said("user", "What do you know? " + "Say it. " * 60)]

    async def forget_ten(client: AsyncOpenAI, name: int) -> None:
        user = {"X-Recollect-User": f"user {name}"}

        async def ask(sent: list[dict[str, str]], headers: dict[str, str]) -> Any:
            return await client.chat.completions.create(
                model="scripted", messages=sent, extra_headers=headers
            )

        await ask(messages(name), user)
        listed = await client.get("/memory/items", cast_to=object, options={"headers": user})
        ids = {row["text"].split()[1]: row["id"] for row in listed["data"]}
        gone: set[int] = set()
        for number in rng.sample(range(len(ids)), 10):
            gone.add(number)
            path = f"/memory/items/{ids[f'fact{name}y{number}']}"
            answer = await client.delete(path, cast_to=object, options={"headers": user})
            kept = [t for i, t in enumerate(texts[name][: len(ids)]) if i not in gone]
            never = await Keeper(agent, roles, Shelf()).read(Item(f"user: {t}") for t in kept)
            assert never.hash == answer["memory"]["hash"], number
            assert len(kept) == answer["memory"]["items"]
        # Sent again within the conversation, it does not come back, and the receipt says so.
        reply = await ask([*messages(name), said("user", "And now?")], user)
        seen = reply.choices[0].message.content
        assert len(reply.recollect["withheld"]) == 10
        assert not any(f"fact{name}y{i} " in seen + " " for i in gone)
        assert all(f"fact{name}y{i} " in seen + " " for i in set(range(30)) - gone)

    async def all_of_them(running: Started) -> None:
        async with client_of(running) as client:
            await asyncio.gather(*(forget_ten(client, name) for name in range(10)))

    with started(tmp_path, "--upstream", server.url, *FEW) as running:
        asyncio.run(all_of_them(running))
        stored = "".join(
            path.read_text() for path in (tmp_path / "memories").rglob("*") if path.is_file()
        )
        assert "fact0y" in stored
        running.kill()
    with started(tmp_path, "--upstream", server.url, *FEW) as running:
        root = running.url + "/memory"
        assert httpx.get(root, params={"user": "user 0"}).json()["forgotten"] == 10
        assert httpx.delete(root, params={"user": "user 0"}).json()["deleted"]
        assert httpx.get(root, params={"user": "user 0"}).status_code == 404
        assert httpx.get(root, params={"user": "user 1"}).status_code == 200
        assert httpx.get(root).status_code == 400


def test_nobody_in_particular_shares_nothing_and_survives_a_kill(tmp_path, server):
    async def ask(running: Started, messages: list[dict[str, str]]) -> Any:
        async with client_of(running) as client:
            reply = await client.chat.completions.create(model="scripted", messages=messages)
            return reply.recollect, reply.choices[0].message.content

    args = ("--upstream", server.url, *FEW)
    with started(tmp_path, *args) as running:
        mine, text = asyncio.run(ask(running, conversation(8, "mine")))
        assert mine["user"] is None and mine["reading"]["calls"] > 0 and "factmine0" in text
        _, other = asyncio.run(ask(running, conversation(8, "other")))
        assert "factmine" not in other and "factother0" in other
        running.kill()
    with started(tmp_path, *args) as running:
        again, _ = asyncio.run(ask(running, conversation(8, "mine")))
        assert again["memory"] == mine["memory"] and again["reading"]["calls"] == 0
        root = running.url + "/memory"
        assert httpx.get(root, params={"user": "anonymous"}).status_code == 404


def test_two_requests_of_one_user_wait_for_one_another(tmp_path, server):
    async def both(running: Started) -> list[Any]:
        async with client_of(running) as client:
            ask = lambda turns: client.chat.completions.create(  # noqa: E731
                model="scripted", messages=conversation(turns, "both"), user="both"
            )
            return await asyncio.gather(ask(8), ask(8), ask(10))

    before = len(server.readings)
    with started(tmp_path, "--upstream", server.url, *FEW) as running:
        first, second, third = (reply.recollect for reply in asyncio.run(both(running)))
        calls = [r["reading"]["calls"] for r in (first, second, third)]
        assert sorted(calls)[0] == 0 and len(server.readings) - before == sum(calls)
        read = server.readings[before:]
        assert len(set(read)) == len(read)  # no window was read twice


def test_without_a_key_nothing_is_served_beyond_loopback(tmp_path, server, capsys, monkeypatch):
    args = ["serve", "--agent", "fold", "--upstream", server.url, "--host", "0.0.0.0"]
    assert main(args) == 2 and "--api-key-env" in capsys.readouterr().err
    keys = {"RECOLLECT_EP_KEY": "right", "RECOLLECT_UP_KEY": "theirs"}
    flags = ("--api-key-env", "RECOLLECT_EP_KEY", "--upstream-key-env", "RECOLLECT_UP_KEY")
    with started(tmp_path, "--upstream", server.url, *flags, **keys) as running:
        for path in ("/models", "/models/x", "/memory", "/memory/items", "/memory/items/x"):
            for method in ("GET", "DELETE"):
                assert httpx.request(method, running.url + path).status_code == 401
        with OpenAI(base_url=running.url, api_key="wrong", max_retries=0) as client:
            ask = dict(model="scripted", messages=[said("user", "hi")])
            with pytest.raises(openai.AuthenticationError):
                client.chat.completions.create(**ask)
            assert client.with_options(api_key="right").chat.completions.create(**ask)
        assert "Bearer theirs" in server.keys and "Bearer right" not in server.keys
        headers = {"host": "evil.example", "authorization": "Bearer right"}
        assert httpx.get(running.url + "/models", headers=headers).status_code == 421


def test_hostile_requests_are_refused_and_others_are_served(tmp_path, server):
    attacks = bodies(random.Random(0), 1024)
    chats = {name: body for name, (path, body) in attacks.items() if path.startswith("chat")}
    del chats["15 MB"]  # that is what an endpoint is for
    chats["nested"] = b'{"messages": [{"role": "user", "content": [' + b"[" * 900 + b"]" * 902
    chats["nested parts"] = (
        b'{"messages": [{"role": "user", "content": [{"type": "image", "x": '
        + b"[" * 900 + b"]" * 900 + b"}]}]}"
    )  # fmt: skip
    with (
        started(tmp_path, "--upstream", server.url, *FEW) as running,
        httpx.Client(timeout=30, headers={"content-type": "application/json"}) as plain,
    ):
        for name, body in chats.items():
            with suppress(httpx.TransportError):  # a body that is refused early is not read
                answer = plain.post(running.url + "/chat/completions", content=body)
                assert answer.status_code < 500, (name, answer.text)
        for user in ("../../x", "a/b", "\x7f", "é" * 300):
            params = {"user": user}
            assert plain.get(running.url + "/memory", params=params).status_code in (400, 404)
        path = running.url + "/memory/items/..%2F..%2Fx?user=anna"
        assert plain.delete(path).status_code == 404
        assert plain.get(running.url + "/memory/items?user=a&limit=9999999").status_code == 400
        root = running.url.removesuffix("/v1")
        assert plain.get(root + "/health").json() == {"status": "ok"}
        assert "Traceback" not in running.log.read_text()


def test_who_leaves_stops_the_reading(tmp_path, server):
    async def leave(running: Started) -> None:
        async with client_of(running) as client:
            ask = client.chat.completions.create(
                model="scripted", messages=conversation(300, "left"), user="left"
            )
            task = asyncio.create_task(ask)
            before = len(server.readings)
            while len(server.readings) < before + 3:
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0.3)
            read = len(server.readings)
            await asyncio.sleep(0.3)
            assert len(server.readings) == read < before + 300

    with started(tmp_path, "--upstream", server.url, *FEW) as running:
        asyncio.run(leave(running))


def test_strange_conversations_are_read_or_refused_by_name(tmp_path):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"name": "look", "arguments": '{"at": "' + "x y " * 250_000 + '"}'}
    tool = {"id": "c", "type": "function", "function": call}
    with (
        upstream(32768) as server,
        started(tmp_path, "--upstream", server.url, "--set", "chunk_size=28000") as running,
        OpenAI(base_url=running.url, api_key="none", max_retries=0, timeout=120) as client,
    ):

        def ask(*messages: Any, **settings: Any) -> Any:
            return client.chat.completions.create(model="scripted", messages=messages, **settings)

        crowd = b'{"messages": [' + b'{"role":"user","content":"hi"},' * 70_000 + b"{}]}"
        json_sent = {"content-type": "application/json"}
        url = running.url + "/chat/completions"
        refused = httpx.post(url, content=crowd, headers=json_sent, timeout=60)
        assert refused.status_code == 413 and "at most 65536 messages" in refused.text
        # A call of 1 MB is read into the memory, and its result stays behind it.
        reply = ask(
            said("user", "Look."),
            {"role": "assistant", "content": None, "tool_calls": [tool]},
            {"role": "tool", "tool_call_id": "c", "content": "factseen"},
            said("user", [picture, {"type": "text", "text": "What is factseen?"}]),
            user="tools",
        )
        assert reply.recollect["tokens_read"] > 300_000 and "factseen" in str(reply.choices)
        sent = server.chats[-1]["messages"]
        assert sent[-1]["content"][0] == picture and len(str(sent)) < 3 * 32768
        # A name with the characters of a path is a name, and stays inside the folder.
        for user in ("../../../escaped", "/etc/escaped", "..", "a\\b"):
            reply = ask(said("user", "so it is " * 12_000), said("user", "Is it?"), user=user)
            assert reply.recollect["memory"]["items"] == 1
        assert not [path for path in tmp_path.rglob("*") if "escaped" in path.name]
        names = {path.name for path in (tmp_path / "memories" / "users").iterdir()}
        assert all(len(name) == 32 for name in names if not name.startswith("."))


def test_damaged_files_hurt_one_user_and_the_log_says_what_to_do(tmp_path, server):
    def ask(running: Started, user: str) -> Any:
        with OpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
            talk = conversation(8, user)
            return client.chat.completions.create(model="scripted", messages=talk, user=user)

    with started(tmp_path, "--upstream", server.url, *FEW) as running:
        before = {user: ask(running, user).recollect["memory"] for user in ("hurt", "well")}
        running.kill()
    owner = {
        json.loads(path.read_text())["name"]: path.parent
        for path in (tmp_path / "memories" / "users").glob("*/user.json")
    }
    states = sorted((owner["hurt"] / "states").glob("*.json"))
    whole = [path.read_bytes() for path in states]
    for path in states:
        path.write_bytes(path.read_bytes()[:-7] + b"\x00\xff")
    with started(tmp_path, "--upstream", server.url, *FEW) as running:
        with pytest.raises(openai.InternalServerError, match="the server's log says why"):
            ask(running, "hurt")
        said_so = running.log.read_text()
        assert any(path.name in said_so for path in states) and "Traceback" not in said_so
        assert ask(running, "well").recollect["memory"] == before["well"]
        for path in states:  # as the log says: what it holds is read again
            path.unlink()
        again = ask(running, "hurt").recollect
        assert again["memory"] == before["hurt"] and again["reading"]["calls"] > 0
        assert sorted(path.read_bytes() for path in states if path.exists()) == sorted(whole)

"""A server's life: who may come in, who leaves early, what it serves, how it starts and ends."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from pathlib import Path

import httpx
import openai
import pytest
import torch
from openai import AsyncOpenAI

from recollect.cli import main
from recollect.config.engine import LoraConfig, LossConfig, OptimConfig
from recollect.errors import UserError
from recollect.models.connect import connect
from recollect.models.model import ModelConfig, load_model
from recollect.models.trie.pack import pack
from recollect.policies.client import Endpoint
from recollect.runs.checkpoints import write_checkpoint
from recollect.serve.server import Serving
from recollect.train import saved_model
from recollect.train.source import find_source
from recollect.train.trainer import Trainer
from tests.support.served import served
from tests.support.tiny import tiny_model
from tests.support.warm import Warm

# --- who comes in ---------------------------------------------------------------------------------


def test_a_key_is_needed_everywhere_but_for_health(model):
    async def work(client: AsyncOpenAI, server: Serving):
        with pytest.raises(openai.AuthenticationError, match="API key"):
            await client.models.list()
        root = server.url.removesuffix("/v1")
        async with httpx.AsyncClient() as plain:
            assert (await plain.get(root + "/health")).status_code == 200
            for given in ("", "Bearer", "Bearer wrong", "Basic right", "Bearer rightt"):
                headers = {"authorization": given} if given else {}
                assert (await plain.get(server.url + "/models", headers=headers)).status_code == 401
        keyed = client.with_options(api_key="right")
        assert [m.id for m in (await keyed.models.list()).data] == ["tiny"]

    served(model, work, api_key="right", sent="wrong")


def test_other_names_for_this_machine_are_refused(model):
    async def work(_client: AsyncOpenAI, server: Serving):
        async with httpx.AsyncClient() as plain:
            ask = lambda host: plain.get(server.url + "/models", headers={"host": host})  # noqa: E731
            assert (await ask("evil.example:8000")).status_code == 421
            assert (await ask("localhost:1234")).status_code == 200
            assert (await ask("127.0.0.1")).status_code == 200

    served(model, work)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--host", "0.0.0.0"], "--api-key-env"),
        (["--api-key-env", "RECOLLECT_NO_SUCH_KEY"], "RECOLLECT_NO_SUCH_KEY is empty"),
        (["--port", "70000"], "port 70000"),
        (["--cache-gib", "0"], "cache-gib"),
    ],
)
def test_mistakes_are_said_before_anything_is_loaded(tmp_path, capsys, args, says):
    assert main(["serve", str(tmp_path), *args]) == 2
    assert says in capsys.readouterr().err


# --- who leaves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_frees_the_slot(model, stream):
    async def work(client: AsyncOpenAI, server: Serving):
        policy = server.service.engine._heavy  # a light request's are few tokens
        ask = dict(model="tiny", prompt=[5] * 8, max_tokens=4000, n=2)
        # A tiny model may end by itself: with this temperature and window it rarely does at once.
        task = asyncio.create_task(_ask(client, stream, ask))
        while len(policy._running) < 2:
            await asyncio.sleep(0.001)
        assert server.service.in_flight == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while policy._running or server.service.in_flight:
            await asyncio.sleep(0.001)
        reply = await client.completions.create(model="tiny", prompt=[5], max_tokens=4)
        assert reply.choices[0].token_ids

    async def _ask(client: AsyncOpenAI, stream: bool, ask: dict) -> None:
        reply = await client.completions.create(**ask, stream=stream)
        if stream:
            async for _chunk in reply:
                pass

    end = model.tokenizer.end_ids
    model.tokenizer.end_ids = (len(model.tokenizer.hf) - 2,)  # the pad token: hardly ever drawn
    try:
        served(model, work)
    finally:
        model.tokenizer.end_ids = end


def test_too_many_requests_are_told_to_come_back(model):
    async def work(client: AsyncOpenAI, server: Serving):
        with pytest.raises(openai.BadRequestError, match="2 choices"):
            await client.completions.create(model="tiny", prompt=[5], n=3)
        with server.service.admission.admitted(2):
            with pytest.raises(openai.RateLimitError, match="busy") as raised:
                await client.completions.create(model="tiny", prompt=[5])
            assert raised.value.response.headers["retry-after"] == "1"
            with pytest.raises(openai.RateLimitError):
                await client.completions.create(model="tiny", prompt=[5], stream=True)
        await client.completions.create(model="tiny", prompt=[5], n=2)

    served(model, work, requests=2)


def test_the_web_server_answers_while_the_engine_computes(model):
    computing, go_on = threading.Event(), threading.Event()

    async def work(client: AsyncOpenAI, server: Serving):
        policy = server.service.engine.policy
        step = policy.step

        def slow() -> None:
            computing.set()
            assert go_on.wait(30)
            step()

        policy.step = slow  # type: ignore[method-assign]
        asking = asyncio.create_task(client.completions.create(model="tiny", prompt=[5]))
        while not computing.is_set():
            await asyncio.sleep(0.001)
        async with httpx.AsyncClient() as plain:
            url = server.url.removesuffix("/v1") + "/health"
            assert (await plain.get(url)).json() == {"status": "ok"}
        assert not asking.done()
        go_on.set()
        await asking

    served(model, work)


def test_texts_become_tokens_and_back(model):
    async def work(_client: AsyncOpenAI, server: Serving):
        root = server.url.removesuffix("/v1")
        async with httpx.AsyncClient() as plain:
            raw = await plain.post(root + "/tokenize", json={"prompt": "a<|end|>"})
            chat = {"messages": [{"role": "user", "content": "a<|end|>"}]}
            rendered = await plain.post(root + "/tokenize", json=chat)
            ids = raw.json()["tokens"]
            back = await plain.post(root + "/detokenize", json={"tokens": ids})
            return ids, rendered.json(), back.json()

    ids, rendered, back = served(model, work)
    end = model.tokenizer.end_ids[0]
    assert ids[-1] == end and len(ids) == 2 and back == {"prompt": "a<|end|>"}
    assert rendered["tokens"].count(end) == 1 and rendered["max_model_len"] == model.window


# --- what is served -------------------------------------------------------------------------------


def test_runs_checkpoints_and_exports_are_found(tmp_path):
    base = tiny_model(tmp_path / "base")
    lora = LoraConfig(rank=2)
    run = tmp_path / "runs" / "mine"
    (run / "checkpoints").mkdir(parents=True)
    settings = {"model": {"path": str(base), "lora": {"rank": 2, "alpha": 32}}}
    (run / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match="no checkpoint yet"):
        find_source(str(run))

    model = load_model(ModelConfig(path=str(base), lora=lora))
    trainer = Trainer(model, LossConfig(), OptimConfig())
    for step in (1, 2):
        with torch.no_grad():
            for parameter in model.trainable_parameters():
                parameter.fill_(0.01 * step)
        write_checkpoint(
            run / "checkpoints", step, lambda folder: saved_model.save(folder, model, trainer)
        )
    saved_model.export(run / "model", model)

    ids = torch.arange(8)

    def logits(path: Path) -> torch.Tensor:
        loaded = find_source(str(path)).load()
        with torch.no_grad():
            rows = pack([ids.tolist()], device="cpu")
            return loaded.logits(loaded.hidden(rows.ids, rows.positions, rows.plan))

    newest = logits(run)
    assert find_source(str(run)).checkpoint == run / "checkpoints" / "step-000002"
    torch.testing.assert_close(logits(run / "model"), newest, rtol=1e-4, atol=1e-4)
    older = logits(run / "checkpoints" / "step-000001")
    assert (older - newest).abs().max() > 1e-3
    names = [run, run / "model", run / "checkpoints" / "step-000001", base]
    assert [find_source(str(p)).name for p in names] == ["mine", "mine", "mine-step-000001", "base"]

    base.rename(tmp_path / "moved")
    assert find_source(str(run)).folder == run / "model"
    with pytest.raises(UserError, match="began from"):
        find_source(str(run / "checkpoints" / "step-000001"))
    with pytest.raises(UserError, match="nothing to serve"):
        find_source(str(tmp_path / "nowhere"))


def test_the_command_serves_until_it_is_told_to_stop(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOLLECT_TEST_KEY", "k")
    folder, ready = tiny_model(tmp_path / "small"), tmp_path / "ready"
    command = ["serve", str(folder), "--port", "0", "--ready-file", str(ready)]
    process = Warm([*command, "--api-key-env", "RECOLLECT_TEST_KEY"])
    try:
        while not (line := process.out.read_text()).endswith("\n"):  # said when it answers
            assert process.poll(0.01) is None, process.err.read_text()
        assert line.startswith("serving small at http://127.0.0.1:")
        url = line.split()[-1]
        assert ready.read_text() == url + "\n"
        # The server says where its tokenizer is, so that nothing else needs to be named.
        remote = connect(Endpoint(url, api_key_env="RECOLLECT_TEST_KEY"))
        assert remote.exact and remote.window == 4096
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (128 + signal.SIGTERM, line + "stopping\n"), err
        assert "Traceback" not in err
    finally:
        process.kill()

"""The endpoint before a model in its own process: reads, answers, streams and stores episodes."""

from __future__ import annotations

import signal
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from recollect.cli import main
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.models.model import load_model
from recollect.runs.episodes import read_episodes
from recollect.samples import make_sample
from recollect.train.trainer import Trainer
from tests.endpoint.test_upstream import conversation
from tests.support.endpoint import Started, started
from tests.support.tiny import tiny_model
from tests.support.warm import cold
from tests.test_docs import snippet

SMALL = ("--memory-tokens", "16", "--set", "chunk_size=500", "--limits.max-tokens", "8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("endpoint")


@pytest.fixture(scope="module")
def args(folder: Path) -> tuple[str, ...]:
    model = tiny_model(folder / "tiny", max_position_embeddings=1024)
    kept = ("--keep-episodes", str(folder / "kept"), "--cache-gib", "0.05", "--dtype", "float64")
    return (str(model), *SMALL, *kept)


@pytest.fixture(scope="module")
def first(folder: Path, args: tuple[str, ...]):
    with started(folder, *args) as running:
        yield running


def test_it_is_served_by_a_process_that_starts_from_nothing(folder: Path, args: tuple[str, ...]):
    """All other servers of these tests are forks of a Python that has imported everything."""
    ready = folder / "cold"
    places = ("--ready-file", str(ready), "--memories", str(folder / "remembered"))
    small = (*SMALL, "--cache-gib", "0.05")
    process = cold(["serve", args[0], *small, "--agent", "fold", "--port", "0", *places])
    try:
        end = time.monotonic() + 60
        while not ready.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        url = ready.read_text().strip()
        with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
            said = conversation(5)
            made = client.chat.completions.create(model="tiny", messages=said, max_tokens=4)
        assert made.recollect["reading"]["calls"] > 0 and made.usage.completion_tokens <= 4
        process.send_signal(signal.SIGTERM)
        _out, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in error


def ask(running: Started, messages: list[Any], **settings: Any) -> Any:
    with OpenAI(base_url=running.url, api_key="none", max_retries=0, timeout=60) as client:
        made = client.chat.completions.create(
            model="tiny", messages=messages, temperature=0, **settings
        )
        return list(made) if settings.get("stream") else made


def test_a_conversation_longer_than_the_window_is_answered(first: Started):
    reply = ask(first, conversation(5), user="anna", n=2)
    assert reply.recollect["reading"]["calls"] > 2 and len(reply.choices) == 2
    assert reply.recollect["memory"]["tokens"] <= 17 and reply.usage.completion_tokens <= 16
    assert reply.usage.prompt_tokens < 1024 < reply.recollect["tokens_read"]
    again = ask(first, conversation(5), user="anna")
    assert again.recollect["reading"]["calls"] == 0
    assert again.recollect["memory"] == reply.recollect["memory"]
    chunks = ask(first, conversation(5), user="anna", stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == again.choices[0].message.content
    assert chunks[-1].recollect["memory"] == reply.recollect["memory"]
    assert chunks[-1].choices[0].finish_reason
    with pytest.raises(openai.BadRequestError, match="presence_penalty"):
        ask(first, conversation(5), presence_penalty=1)


def test_every_token_is_stored_as_an_episode(first: Started, folder: Path, capsys):
    before = set((folder / "kept" / "episodes").iterdir())
    reply = ask(first, conversation(7), user="bert", extra_body={"return_token_ids": True})
    (path,) = set((folder / "kept" / "episodes").iterdir()) - before
    (episode,) = read_episodes(path)
    *reading, answer = episode.contexts
    assert len(reading) == reply.recollect["reading"]["calls"] and answer.question == 0
    prompt, drawn = reply.prompt_token_ids, reply.choices[0].token_ids
    assert answer.ids == (*prompt, *drawn) and answer.exact
    assert len(answer.turns[0].logprobs) == len(drawn)
    assert all(context.exact and context.turns[0].logprobs for context in reading)
    assert episode.answers == [reply.choices[0].message.content]
    assert episode.ops and episode.ops[-1].kind == "replace"
    page = folder / "page.html"
    assert main(["view", str(folder / "kept"), "--export", str(page)]) == 0 and page.exists()
    assert main(["replay", str(folder / "kept")]) == 0
    # Forgetting reaches the episodes as well.
    with OpenAI(base_url=first.url, api_key="none") as client:
        client.delete("/memory?user=bert", cast_to=object)
    assert not path.exists()


def test_stored_episodes_can_be_trained_from_as_documented(first: Started, folder: Path, capsys):
    ask(first, conversation(6), user="dora")
    code = snippet("endpoint.md", "Episodes").replace('"models/served"', repr(str(folder / "tiny")))
    names = {}
    with chdir(folder):
        (folder / "models").mkdir()
        exec(code, names)
    for line in capsys.readouterr().out.splitlines():
        contexts, mismatch = line.split()
        assert int(contexts) > 0 and float(mismatch) < 1e-2
    # The stored tokens are the model's own: before the first update both agree on each of them.
    read = load_model(ModelConfig(str(folder / "tiny"), "cpu"))
    (episode,) = read_episodes(max((folder / "kept" / "episodes").iterdir()))
    samples = [make_sample(context, 1.0, 0, 0) for context in episode.contexts if context.exact]
    trainer = Trainer(read, LossConfig(kl_coef=0.0), OptimConfig())
    metrics = trainer.update(samples)
    assert len(samples) == len(episode.contexts) > 3 and metrics["train/grad_norm"] > 0
    assert metrics["train/mismatch"] < 1e-6 and metrics["train/mismatch_ratio_max"] < 1.001
    assert (folder / "models" / "trained" / "config.json").exists()


def test_a_kill_loses_no_memory(first: Started, folder: Path, args: tuple[str, ...]):
    before = ask(first, conversation(6), user="cleo").recollect
    first.kill()
    with started(folder, *args) as running:
        after = ask(running, conversation(6), user="cleo").recollect
        assert after["memory"] == before["memory"] and after["reading"]["calls"] == 0
        grown = ask(running, conversation(9), user="cleo").recollect
        assert 0 < grown["reading"]["calls"] < before["reading"]["calls"] + 4

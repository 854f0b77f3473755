"""An agent of your own before the model; mistakes on the command line are one message."""

from __future__ import annotations

import openai
import pytest
from openai import OpenAI

from recollect.cli import main
from tests.endpoint.test_upstream import conversation, said
from tests.support.endpoint import started
from tests.support.upstream import upstream

MINE = """
async def mine(task, chats, memory):
    memory.text = memory.text + task.chunks[0][:9]
    return [memory.text]

async def wrong(task, chats, memory):
    return [1 / 0]
"""


def test_your_own_agent_reads_and_its_mistake_has_a_place(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    with upstream(1024) as server:
        args = ("--upstream", server.url)
        with (
            started(tmp_path, *args, agent="mine.py:mine") as running,
            OpenAI(base_url=running.url, api_key="none", max_retries=0) as client,
        ):
            reply = client.chat.completions.create(model="scripted", messages=conversation(8))
        assert reply.recollect["memory"]["tokens"] >= 6
        sent = server.chats[-1]["messages"][0]["content"]
        assert "<memory>\nuser: Rem" in sent
        with started(tmp_path, *args, agent="mine.py:wrong") as running:
            with OpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
                with pytest.raises(openai.InternalServerError, match=r"mine.py:7: ZeroDivision"):
                    client.chat.completions.create(model="scripted", messages=conversation(8))
                hello = [said("user", "hi")]
                assert client.chat.completions.create(model="scripted", messages=hello).choices
            assert "Traceback" not in running.log.read_text()


def test_mistakes_are_said_before_anything_is_loaded(tmp_path, capsys):
    (tmp_path / "before_loading.py").write_text(MINE)
    folder = str(tmp_path)
    for args, says in (
        (["--agent", "fold"], "nothing to serve"),
        (["--upstream", "http://127.0.0.1:9/v1"], "--agent fold"),
        ([folder, "--memories", "m"], "--memories needs an agent"),
        ([folder, "--agent", "nothing"], "no agent 'nothing'"),
        ([folder, "--agent", "rag"], "keeps no memory"),
        ([folder, "--agent", f"{folder}/before_loading.py:nobody"], "has no nobody"),
    ):
        assert main(["serve", *args]) == 2
        err = capsys.readouterr().err
        assert says in err and len(err.strip().splitlines()) <= 3, err

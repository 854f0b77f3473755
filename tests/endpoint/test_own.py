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


def test_an_agent_that_knows_the_question_reads_for_it(tmp_path):
    document = said("user", "Look. " + "It is so. " * 400)
    with (
        upstream(1024) as server,
        started(tmp_path, "--upstream", server.url, "--know-question") as running,
        OpenAI(base_url=running.url, api_key="none", max_retries=0) as client,
    ):

        def read(*messages, **settings):
            before = len(server.readings)
            client.chat.completions.create(model="scripted", messages=messages, **settings)
            return server.readings[before:]

        first = read(document, said("user", "Who is factown?"))
        assert len(first) > 2 and all("<problem>\nWho is factown?\n" in p for p in first)
        assert not read(document, said("user", "Who is factown?"))
        second = read(document, said("user", "Where is it?"))
        assert len(second) == len(first) and all("\nWhere is it?\n" in p for p in second)
        # In one long message the question is at its beginning or at its end.
        whole = read(said("user", "Whose? " + document["content"] + "Who asks?"))
        assert all("\nWhose? Look." in p and "Who asks?\n" in p for p in whole)
        assert len(whole[0]) < 3 * 1024
        # A user's memory serves all questions, so it is read for none.
        assert not any("Where" in p for p in read(document, said("user", "Where?"), user="anna"))


def test_mistakes_are_said_before_anything_is_loaded(tmp_path, capsys):
    (tmp_path / "before_loading.py").write_text(MINE)
    folder = str(tmp_path)
    for args, says in (
        (["--agent", "fold"], "nothing to serve"),
        (["--upstream", "http://127.0.0.1:9/v1"], "--agent fold"),
        ([folder, "--memories", "m"], "--memories needs an agent"),
        ([folder, "--agent", "nothing"], "no agent 'nothing'"),
        ([folder, "--agent", "rag"], "keeps no memory"),
        ([folder, "--know-question"], "--know-question needs an agent"),
        (
            [folder, "--agent", "fold", "--know-question", "--set", "query_aware=False"],
            "without the question",
        ),
        ([folder, "--agent", f"{folder}/before_loading.py:nobody"], "has no nobody"),
    ):
        assert main(["serve", *args]) == 2
        err = capsys.readouterr().err
        assert says in err and len(err.strip().splitlines()) <= 3, err

"""The status tells apart what finished (0), what failed (1, 2) and what was stopped (128 + n)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recollect.cli import main
from recollect.evaluation.folder import read_episodes
from tests.support.tiny import tiny_model
from tests.support.token_server import http_response, listening, read_request
from tests.support.warm import Warm

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Reply = Callable[[int], tuple[int, dict[str, Any]] | None]
"""What the n-th call is answered with; None is never answered."""


@contextmanager
def answering(reply: Reply) -> Iterator[tuple[str, list[int]]]:
    """Serve a model that says OK when it is found, and what `reply` says afterwards."""
    calls: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            path, _headers, body = request
            content: dict[str, Any] = {"data": [{"id": "tiny"}]}
            status = 200
            if path != "/v1/models":
                message = {"role": "assistant", "content": "OK"}
                content = {"choices": [{"message": message, "finish_reason": "stop"}]}
                if json.loads(body)["messages"][-1]["content"] != "Say OK.":
                    calls.append(1)
                    said = reply(len(calls))
                    if said is None:
                        await asyncio.sleep(60)
                        return
                    status, content = said
            writer.write(http_response(status, json.dumps(content).encode()))

    with listening(handle) as (port, _end):
        yield f"http://127.0.0.1:{port}/v1", calls


def evaluation(url: str, out: Path) -> list[str]:
    sizes = ("--tasks", "recall@256", "--agents", "full_context", "--n", "3", "--concurrency", "2")
    return ["eval", *sizes, "--no-closed-book", "--model", url, "--out", str(out)]


def test_an_evaluation_whose_every_call_failed_says_why_and_ends_with_1(tmp_path, capsys):
    def refuse(_call: int) -> tuple[int, dict[str, Any]]:
        return 400, {"error": {"message": "quota of this account is spent"}}

    with answering(refuse) as (url, _calls):
        assert main(evaluation(url, tmp_path)) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 of 3 episodes failed; the first one at" in shown
    assert "quota of this account is spent" in shown and "--retry-failed" in shown
    assert main(["replay", str(tmp_path)]) == 1
    assert "quota of this account is spent" in capsys.readouterr().out


@pytest.mark.parametrize(("content", "said"), [(None, 1), (" ", 1), ("x", 0)])
def test_an_agent_whose_every_answer_is_empty_is_named(tmp_path, capsys, content, said):
    thought = {"content": content, "reasoning_content": "red"}
    well = {"choices": [{"message": thought, "finish_reason": "length"}]}
    with answering(lambda _call: (200, well)) as (url, _calls):
        assert main(evaluation(url, tmp_path)) == 0
    says = "full_context: all answers of 3 episodes are empty: a model that thinks first may need"
    assert main(["replay", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(says) == 2 * said
    assert (tmp_path / "report.md").read_text().count(says) == said


def test_an_evaluation_some_of_whose_calls_failed_says_so_and_ends_with_0(tmp_path, capsys):
    well = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}

    def refuse(call: int) -> tuple[int, dict[str, Any]]:
        return (400, {"error": {"message": "no"}}) if call == 2 else (200, well)

    with answering(refuse) as (url, _calls):
        assert main(evaluation(url, tmp_path)) == 0
    assert "1 of 3 episodes failed" in " ".join(capsys.readouterr().out.split())


def start(*arguments: str) -> subprocess.Popen[str]:
    def hear_signals() -> None:  # a shell may have had us ignore them
        for number in STOPS:
            signal.signal(number, signal.SIG_DFL)

    command = [sys.executable, "-m", "recollect", *arguments]
    pipe = subprocess.PIPE
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=env, preexec_fn=hear_signals
    )


def wait(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.005)


def stopped(process: subprocess.Popen[str] | Warm, number: int) -> str:
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, out + err
    assert "Traceback" not in out + err
    return err


def test_an_evaluation_that_is_stopped_names_the_signal_and_keeps_what_it_has(tmp_path):
    with answering(lambda _call: None) as (url, calls):
        for number in STOPS:
            before = len(calls)
            words = evaluation(url, tmp_path)
            process = start(*words) if number == signal.SIGINT else Warm(words)
            wait(lambda known=before: len(calls) > known)
            assert stopped(process, number) == "recollect: stopped\n"
    assert (tmp_path / "calls.jsonl").read_bytes() == b""
    well = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
    with answering(lambda _call: (200, well)) as (url, _calls):
        assert main(evaluation(url, tmp_path)) == 0


def test_a_server_that_is_stopped_names_the_signal(tmp_path):
    model = tiny_model(tmp_path / "model")
    for number in STOPS[1:]:
        ready = tmp_path / "ready"
        process = Warm(["serve", str(model), "--port", "0", "--ready-file", str(ready)])
        wait(ready.exists)
        assert stopped(process, number) == ""
        ready.unlink()


def test_data_that_are_stopped_leave_nothing_half_written(tmp_path):
    output = tmp_path / "ledger"
    process = start("data", "ledger", "--output", str(output), "--questions", "5000000")
    wait(output.exists)
    assert stopped(process, signal.SIGTERM) == "recollect: stopped\n"
    assert not output.exists() or not [p for p in output.rglob("*") if p.is_file()]


def test_a_background_process_that_ignores_ctrl_c_hears_the_others(tmp_path):
    """A shell's `command &` ignores SIGINT; nohup's ignores SIGHUP."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with answering(lambda _call: None) as (url, calls):
        command = [sys.executable, "-m", "recollect", *evaluation(url, tmp_path)]
        process = subprocess.Popen(
            command, env=env, preexec_fn=ignore, stderr=subprocess.PIPE, text=True
        )
        wait(lambda: calls)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[1] == "recollect: stopped\n"
        assert process.returncode == 143


BLOCKS = """
import time
from pathlib import Path

calls = []

async def agent(task, chats, memory):
    calls.append(1)
    reply = await chats.open("answer").say("Which?", max_tokens=4)
    if len(calls) > FREE and not Path("free").exists():
        Path("blocked").touch()
        DO
    return [reply.text for _ in task.questions]
"""


def block(free: int, do: str = "time.sleep(1000)") -> None:
    """Write an agent that blocks the event loop after some episodes, until there is a file."""
    text = BLOCKS.replace("FREE", str(free)).replace("DO", do)
    Path("blocking.py").write_text(text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_training_ends_and_is_saved_though_an_agent_blocks(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    block(free=4 + 2 + 4)  # the trial, a validation and one step
    words = ["train", "demo", "--agent", "blocking:agent", "--steps", "2", "--test-freq", "2"]
    words += ["--rollout.tasks", "2", "--rollout.n", "2", "--updates-per-step", "1"]
    words += ["--val.tasks", "2", "--val.lengths", "1", "--val.length-tasks", "2"]
    process = Warm(words)
    wait(Path("blocked").exists)
    assert stopped(process, number) == ""
    assert [p.name for p in Path("runs/demo/checkpoints").iterdir()] == ["step-000001"]
    Path("free").touch()
    assert Warm(words).wait() == 0


def test_an_evaluation_ends_and_keeps_what_it_has_though_an_agent_blocks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block(free=1 + 1, do="while True: pass")  # the trial and one episode
    well = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
    with answering(lambda _call: (200, well)) as (url, _calls):
        words = ["eval", "--tasks", "recall@256", "--agents", "blocking:agent", "--n", "3"]
        words += ["--no-closed-book", "--model", url, "--out", "out", "--concurrency", "1"]
        process = Warm(words)
        wait(Path("blocked").exists)
        assert stopped(process, signal.SIGTERM) == "recollect: stopped\n"
        [kept] = read_episodes(Path("out"))
        assert kept["failure"] is None
        Path("free").touch()
        assert Warm(words).wait() == 0
    assert [record["failure"] for record in read_episodes(Path("out"))] == [None] * 3


@pytest.mark.parametrize("signals", [1, 2])
def test_an_agent_that_blocks_in_its_trial_is_not_blamed_for_a_stop(tmp_path, monkeypatch, signals):
    monkeypatch.chdir(tmp_path)
    twice = "import os; os.kill(os.getpid(), 2); os.kill(os.getpid(), 2)"
    block(free=0, do="while True: pass" if signals == 1 else twice)
    well = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
    with answering(lambda _call: (200, well)) as (url, _calls):
        words = ["eval", "--tasks", "recall@256", "--agents", "blocking:agent", "--n", "3"]
        process = Warm([*words, "--no-closed-book", "--model", url, "--out", "out"])
        if signals == 1:
            wait(Path("blocked").exists)
            process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "recollect: stopped\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_lists_its_model_and_never_speaks_is_not_waited_for(tmp_path, number):
    asked: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            asked.append(request[0])
            if request[0] == "/v1/models":
                writer.write(http_response(200, b'{"data": [{"id": "tiny"}]}'))

    with listening(handle) as (port, _end):
        process = Warm(evaluation(f"http://127.0.0.1:{port}/v1", tmp_path))
        wait(lambda: "/v1/chat/completions" in asked)
        assert stopped(process, number) == "recollect: stopped\n"


@pytest.mark.parametrize("arguments", [["--help"], ["doctor"]])
def test_output_on_a_full_disk_is_one_message(arguments):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "recollect", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=env)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith("recollect: cannot write the output: No space left on device\n")

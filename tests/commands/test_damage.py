"""Any damage to any file of a run, an evaluation, a data set or a memory: one message, or a repair.

`make chaos` damages the files of real commands, one process each; here are more kinds of damage,
in one process. What takes a second, such as training or serving, meets a few files of each kind of
damage.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import threading
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest

from recollect.chat.tools import Call, ToolBox
from recollect.cli import main
from recollect.errors import UserError
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.reader import Reader
from recollect.files import TEMPORARY
from recollect.keeping.users import Users
from recollect.sharing.mcp import answer
from recollect.sharing.tools import memory_tools
from tests.chaos.damage import DAMAGES
from tests.chaos.grounds import TASK
from tests.chaos.invariants import messages
from tests.chaos.values import gone_inside, other_inside
from tests.commands.test_ask import SMALL, respond
from tests.support.chat_server import chat_server
from tests.support.viewing import planted

KINDS = {
    **{name: spoil for name, spoil in DAMAGES.items() if name != "unreadable"},
    **{f"other values inside {i}": other_inside for i in range(4)},
    **{f"values gone inside {i}": gone_inside for i in range(2)},
}
VERBS: dict[str, list[list[str]]] = {
    "planted": [
        ["runs", "."],
        ["report", "planted"],
        ["view", "planted", "--export", "page.html"],
        ["replay", "planted"],
        ["compare", "planted", "planted"],
        ["train", "planted", "--dry-run"],
        ["eval", "planted", "--n", "1"],
    ],
    "evaluation": [
        ["report", "evaluation"],
        ["replay", "evaluation"],
        ["view", "evaluation", "--export", "page.html"],
        ["compare", "evaluation", "evaluation"],
        ["runs", "."],
        ["EVAL"],
    ],
    "memory": [["ASK", "story.txt"], ["ASK"]],
}
SECONDS = 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with everything in it, and the commands that need a server."""
    folder = tmp_path_factory.mktemp("whole")
    metrics = planted(folder) / "metrics.jsonl"
    counted = '"val/n": 6, "val/failed": 1, "val/accuracy"'
    metrics.write_text(metrics.read_text().replace('"val/accuracy"', counted))
    (folder / "story.txt").write_text("Maria keeps the seed in the tin box. " * 5)
    with chat_server(lambda text: "\\boxed{the tin box}") as server:
        sizes = [
            "--tasks",
            "recall@128",
            "--agents",
            "fold",
            "--n",
            "2",
            "--no-closed-book",
            "--timeout",
            "5",
        ]
        kept = ["--memory", "memory/kept.json", "--cache", "memory/states"]
        given = {
            "EVAL": ["eval", *sizes, "--model", server.url, "--out", "evaluation"],
            "ASK": ["ask", "Where is the seed?", "--model", server.url, *kept],
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert main(given["EVAL"]) == 0 and main([*given["ASK"], "story.txt"]) == 0
        yield folder, given


def _hangs(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt  # nothing makes one message of it


@pytest.mark.parametrize("place", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_one_message_and_nothing_is_half_written(
    whole, kind, place, tmp_path, monkeypatch, capsys
):
    origin, given = whole
    verbs = cycle(VERBS[place])
    for _ in range(list(KINDS).index(kind)):
        next(verbs)  # every file meets every verb, with some kind of damage
    for name in sorted(p.relative_to(origin) for p in (origin / place).rglob("*") if p.is_file()):
        folder = spoiled(origin, name, kind, tmp_path, monkeypatch)
        first, *more = next(verbs)
        command = [*given.get(first, [first]), *more]
        well_behaved(lambda command=command: main(command), (name, command), folder, capsys)


def spoiled(origin: Path, name: Path, kind: str, tmp_path: Path, monkeypatch) -> Path:
    """Return a copy in which one file is damaged; it is the current folder."""
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(origin, folder)
    monkeypatch.chdir(folder)
    KINDS[kind](folder / name, random.Random(f"{name}/{kind}"))
    return folder


def well_behaved(command: Callable[[], int], what: object, folder: Path, capsys) -> None:
    """Run a command: it ends in time, with a status, one message at most, and nothing left over."""
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(SECONDS)
    try:
        status = command()  # anything but a status is a traceback for a person
    finally:
        signal.alarm(0)
    said = capsys.readouterr()
    what = (what, status, said.err[-500:])
    assert status in (0, 1, 2), what
    assert messages(said.err) == (status == 2), what
    assert "Traceback" not in said.err + said.out, what
    assert not list(folder.rglob(f"{TEMPORARY}*")), what


EXPERIMENT = """
preset = "demo"
name = "e"
seeds = [0]
steps = 1
save_freq = 1
updates_per_step = 1
rollout.tasks = 2
rollout.n = 2
rollout.keep_groups = 1
val.tasks = 2
val.lengths = [1]
val.length_tasks = 2
"""
LEDGER = ["data", "ledger", "--output", "ledger_file", "--sessions", "2", "--questions", "9"]
OWN = ["data", "jsonl", "--input", "own.jsonl", "--output", "own"]
QUICK = [
    ["train", "e.toml", "--folder", ".", "--dry-run"],
    ["runs", "."],
    ["view", "RUN", "--export", "page.html"],
    ["report", "RUN"],
    ["train", "RUN", "--dry-run"],
]
SLOW = [["train", "e.toml", "--folder", "."], ["serve", "RUN"], ["eval", "RUN", "--n", "1"]]
SETS = {
    "ledger_file": [["validate", "ledger_file:ss2", "--data", "."], LEDGER[1:]],
    "own": [["validate", "own"], ["audit", "own", "--n", "9"], OWN[1:]],
    "own.jsonl": [["validate", "own.jsonl"], ["audit", "own.jsonl", "--n", "9"], OWN[1:]],
}


def serve(command: list[str]) -> int:
    """Serve until the address is there, then ask it to stop."""
    ready, over = Path("ready"), threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            if ready.exists():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        status = main([*command, "--port", "0", "--ready-file", "ready"])
    finally:
        over.set()
        watching.join()
    return 0 if status == 128 + signal.SIGTERM else status


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An experiment of one run, with its checkpoint and exported model, and two data sets."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("e.toml").write_text(EXPERIMENT)
        lines = (json.dumps({"id": str(i), **TASK}) + "\n" for i in range(9))
        Path("own.jsonl").write_text("".join(lines))
        for command in (SLOW[0], LEDGER, OWN):
            assert main(command) == 0
    [run] = [path.parent.relative_to(folder) for path in folder.rglob("metrics.jsonl")]
    return folder, str(run)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_a_trained_run_is_one_message_or_repaired(
    trained, kind, tmp_path, monkeypatch, capsys
):
    origin, run = trained
    draw = random.Random(f"trained/{kind}")
    files = sorted(p.relative_to(origin) for p in (origin / run).rglob("*") if p.is_file())
    weighty = [name for name in files if name.parent.name != "episodes"]
    number = list(KINDS).index(kind)
    cases = [(name, draw.choice(QUICK)) for name in draw.sample(files, 4)]
    cases += [(draw.choice(weighty), SLOW[number % len(SLOW)]), (Path("e.toml"), QUICK[0])]
    for name, verb in cases:
        folder = spoiled(origin, name, kind, tmp_path, monkeypatch)
        command = [run if word == "RUN" else word for word in verb]
        work = serve if command[0] == "serve" else main
        well_behaved(
            lambda work=work, command=command: work(command), (name, command), folder, capsys
        )


@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_a_data_set_is_one_message_or_repaired(
    trained, kind, tmp_path, monkeypatch, capsys
):
    origin, _run = trained
    number = list(KINDS).index(kind)
    draw = random.Random(f"data/{kind}")
    for place, verbs in SETS.items():
        files = sorted(p for p in (origin / place).rglob("*") if p.is_file()) or [origin / place]
        name = draw.choice(files).relative_to(origin)
        number += 1
        command = ["data", *verbs[number % len(verbs)]]
        folder = spoiled(origin, name, kind, tmp_path, monkeypatch)
        well_behaved(lambda command=command: main(command), (name, command), folder, capsys)


@pytest.fixture(scope="module")
def remembered(tmp_path_factory):
    """A user's memory, as `recollect mcp` and an endpoint keep it, and what opens it."""
    folder = tmp_path_factory.mktemp("remembered")
    with chat_server(respond) as server:
        reader = Reader.open(EvalOptions((), server.url), "", tuple(SMALL[1:]))
        text = "Anna owns the house. " + "It rained. " * 60
        assert not calls(folder / "memories", reader, [("remember", {"text": text})])
        yield folder, reader


class Unwatched:
    """A session of a client that asks for no progress."""

    async def report_progress(self, *_how_far: object) -> None:
        pass


def calls(folder: Path, reader: Reader, asked: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Call the tools of a user's memory; return what they say is wrong."""
    users = Users(folder, reader.keeper)

    async def work() -> list[str]:
        box = ToolBox(memory_tools(users, "me"))
        said = [await answer(box, Call(name, given), Unwatched()) for name, given in asked]
        return [text for text, failed in said if failed]

    try:
        return asyncio.run(work())
    finally:
        users.close()


@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_a_users_memory_is_one_line(remembered, kind, tmp_path, monkeypatch):
    origin, reader = remembered
    asked = [("recall", {}), ("recall", {"question": "Who?"}), ("remember", {"text": "Abel."})]
    for name in sorted(p.relative_to(origin) for p in origin.rglob("*") if p.is_file()):
        folder = spoiled(origin, name, kind, tmp_path, monkeypatch)
        try:
            wrong = calls(folder / "memories", reader, asked)
        except UserError as error:  # said when the server starts
            wrong = [str(error)]
        for line in wrong:
            assert "Traceback" not in line and len(line) < 1200, (name, line)

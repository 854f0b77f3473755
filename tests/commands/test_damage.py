"""Any damage to any file of a run, an evaluation or a memory: each verb says so in one message.

`make chaos` damages the files of real commands, one process each; here are more kinds of damage,
in one process.
"""

from __future__ import annotations

import random
import shutil
import signal
from itertools import cycle
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.files import TEMPORARY
from tests.chaos.damage import DAMAGES
from tests.chaos.invariants import messages
from tests.chaos.values import gone_inside, other_inside
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
    signal.signal(signal.SIGALRM, _hangs)
    for name in sorted(p.relative_to(origin) for p in (origin / place).rglob("*") if p.is_file()):
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(origin, folder)
        monkeypatch.chdir(folder)
        KINDS[kind](folder / name, random.Random(f"{name}/{kind}"))
        first, *more = next(verbs)
        command = [*given.get(first, [first]), *more]
        signal.alarm(SECONDS)
        try:
            status = main(command)  # anything but a status is a traceback for a person
        finally:
            signal.alarm(0)
        said = capsys.readouterr()
        what = (str(name), command, said.err[-500:])
        assert status in (0, 1, 2), what
        assert messages(said.err) == (status == 2), what
        assert "Traceback" not in said.err + said.out, what
        assert not list(Path(folder).rglob(f"{TEMPORARY}*")), what

"""Memories of many users: none lost, none mixed, and what is forgotten is gone."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from recollect.errors import UserError
from recollect.keeping.keeper import Keeper, memory_text
from recollect.keeping.shelf import Shelf
from recollect.keeping.users import Users
from recollect.keeping.windows import Item
from tests.keeping.test_keeper import keeper, words

FIRST = keeper(Shelf())[0]


def beside(shelf: Shelf) -> Keeper:
    """Return a keeper of the same agent, which an endpoint also names once and not for each."""
    return keeper(shelf, root=FIRST.root)[0]


def opened(folder) -> Users:
    return Users(folder, beside)


def test_two_hundred_users_at_once_are_never_mixed(tmp_path):
    users = opened(tmp_path)

    async def live(name: int) -> None:
        for i in range(3):
            await users[f"user {name}"].remember([f"u{name}i{i} " + words(12)])

    async def all_of_them() -> None:
        await asyncio.gather(*(live(i) for i in range(200)))

    asyncio.run(all_of_them())
    users.close()
    users = opened(tmp_path)
    for i in range(200):
        user = users[f"user {i}"]
        kept = asyncio.run(user.memory())
        assert kept.read == 0 and [item.text.split()[0] for item in user.items] == [
            f"u{i}i{n}" for n in range(3)
        ]
        found = memory_text(kept.memory).strip(";").split(";")
        assert all(text.startswith((f"u{i}i", "word")) for text in found) and found


def test_forgetting_equals_never_having_seen(tmp_path):
    """A hundred random items, of ten users; the last one leaves an empty memory."""
    rng = random.Random(0)
    users = opened(tmp_path)
    for name in range(10):
        user = users[f"user {name}"]
        asyncio.run(user.remember(f"s{i}x " + words(rng.randint(5, 40)) for i in range(10)))
        while user.items:
            gone = rng.choice(user.items)
            kept = asyncio.run(user.forget(gone.id))
            never = beside(Shelf())
            rest = [Item(item.text) for item in user.items]
            assert kept.hash == asyncio.run(never.read(rest)).hash
            mark = gone.text.split()[0]
            stored = [path.read_text() for path in user.folder.rglob("*") if path.is_file()]
            assert not any(mark in text for text in stored)
    users.close()


def test_a_user_is_forgotten_whole(tmp_path):
    users = opened(tmp_path)
    asyncio.run(users["anna"].remember(["one thing"]))
    asyncio.run(users["../anna"].remember(["another"]))
    assert users.forget("anna") and not users.forget("anna")
    assert not users["anna"].items and len(users["../anna"].items) == 1
    assert {path.parent for path in tmp_path.rglob("items.jsonl")} <= set(tmp_path.iterdir())
    with pytest.raises(UserError, match="no item nothing"):
        asyncio.run(users["anna"].forget("nothing"))
    with pytest.raises(UserError, match="in use by another process"):
        opened(tmp_path)


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.keeping.test_users import opened
users = opened(Path(sys.argv[1]))
async def live(name):
    for i in range(50):
        await users[f"user {name}"].remember([f"u{name}i{i} some words to be remembered"])
        print(name, i, flush=True)
async def all_of_them():
    await asyncio.gather(*(live(i) for i in range(8)))
asyncio.run(all_of_them())
"""


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path):
    folder, log = tmp_path / "users", tmp_path / "log"
    with open(log, "w") as out:
        command = [sys.executable, "-c", KILLED, str(folder)]
        running = subprocess.Popen(command, stdout=out, env={**os.environ})
    end = time.monotonic() + 60
    while time.monotonic() < end and len(log.read_text().splitlines()) < 60:
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    said: dict[str, int] = {}
    for line in log.read_text().splitlines()[:-1]:
        name, number = line.split()
        said[name] = int(number)
    users = opened(folder)
    for name, last in said.items():
        user = users[f"user {name}"]
        texts = [item.text.split()[0] for item in user.items]
        assert texts == [f"u{name}i{i}" for i in range(len(texts))] and len(texts) > last
        never = beside(Shelf())
        rest = [Item(item.text) for item in user.items]
        assert asyncio.run(user.memory()).hash == asyncio.run(never.read(rest)).hash


def test_what_is_being_written_is_no_state(tmp_path):
    """Another process writes it: it has no name yet, and is not removed with the old ones."""
    shelf = Shelf(tmp_path)
    for key in "abc":
        shelf.save(key, {})
    written = tmp_path / ".tmp-0.json"
    written.write_text("half")
    assert sorted(shelf.keys()) == ["a", "b", "c"]
    assert shelf.keep_newest(1) == 2 and shelf.keep_only([]) == 1
    assert written.exists() and not list(shelf.keys())

"""Bases in shared memory: equal to the ones in memory, made once, gone with their users."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
from itertools import takewhile

import numpy as np
import pytest

from recollect.engines.verl.worker.bases import (
    PREFIX,
    LazyBases,
    hold,
    open_base,
    sweep,
    write_base,
)
from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.store import Store


def corpus(name: str, n: int = 20, vectors: bool = True) -> Corpus:
    drafts = [Draft(f"{name} remembers thing {i}", {"source": "talk"}) for i in range(n)]
    rows = np.eye(n, 32, dtype=np.float32) if vectors else None
    return Corpus.build(name, drafts, rows)


@pytest.mark.parametrize("vectors", [True, False])
def test_a_mapped_base_is_the_base(tmp_path, vectors):
    made = corpus("conv-1", vectors=vectors)
    write_base(tmp_path / "a.base", made)
    mapped = open_base(tmp_path / "a.base")
    assert mapped.fingerprint == made.fingerprint and list(mapped) == list(made)
    for name, array in made.arrays().items():
        assert (
            np.array_equal(mapped.arrays()[name], array)
            and array.dtype == mapped.arrays()[name].dtype
        )
    found = [asyncio.run(Store(c).search("thing 7", 3, "bm25")) for c in (made, mapped)]
    assert found[0] == found[1]
    with pytest.raises(ValueError, match="read-only"):
        mapped.lengths[0] = 1


def test_an_empty_base_can_be_mapped(tmp_path):
    write_base(tmp_path / "a.base", Corpus.build("none"))
    assert len(open_base(tmp_path / "a.base")) == 0


def test_the_first_one_makes_a_base_and_the_others_find_it(tmp_path):
    made = []

    def make():
        made.append(1)
        return {name: corpus(name) for name in ("conv-1", "conv-2")}

    first, second = (LazyBases(make, "key", tmp_path) for _ in range(2))
    assert first["conv-1"].fingerprint == second["conv-1"].fingerprint
    assert "conv-2" in second and "conv-3" not in second
    assert len(made) == 2  # once for all of them, and once to find that there is no conv-3
    assert second.folder == first.folder
    assert LazyBases(make, "other", tmp_path).folder != first.folder


def test_the_folder_goes_with_its_last_user(tmp_path):
    first, second = (LazyBases(lambda: {"a": corpus("a")}, "key", tmp_path) for _ in range(2))
    base = first["a"]
    first.close()
    assert second.folder.exists()
    second.close()
    assert not second.folder.exists()
    assert base.entry(1).content == "a remembers thing 0"  # what is mapped stays readable


def test_what_a_killed_process_left_is_swept(tmp_path):
    code = (
        "import os, signal; from pathlib import Path;"
        "from recollect.engines.verl.worker.bases import hold;"
        f"held = hold(Path({str(tmp_path)!r}) / '{PREFIX}-{os.getuid()}-killed');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}-{os.getuid()}-killed"]
    used = LazyBases(lambda: {}, "key", tmp_path)  # whoever starts next sweeps
    assert list(tmp_path.iterdir()) == [used.folder]


def test_what_is_in_use_is_not_swept(tmp_path):
    held = hold(tmp_path / f"{PREFIX}-{os.getuid()}-used")
    assert sweep(tmp_path) == []
    held.close()
    assert len(sweep(tmp_path)) == 1


def test_no_shared_memory_is_a_message(tmp_path):
    with pytest.raises(UserError, match="/dev/shm"):
        LazyBases(lambda: {}, "key", tmp_path / "missing")


def test_a_sweep_spares_what_was_made_anew_meanwhile(tmp_path, monkeypatch):
    folder = tmp_path / f"{PREFIX}-{os.getuid()}-x"
    folder.mkdir()
    (folder / "lock").touch()
    real = fcntl.flock

    def late(file, how) -> None:  # another one's sweep, and another one's folder, come first
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "lock").touch()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert sweep(tmp_path) == []
    assert (folder / "lock").exists()


RACE = """
import sys
from pathlib import Path
from recollect.engines.verl.worker.bases import LazyBases
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft

def make():
    print("made", flush=True)
    return {"a": Corpus.build("a", [Draft("one memory")])}

bases = LazyBases(make, "key", Path(sys.argv[1]))
assert bases["a"].entry(1).content == "one memory"
print("ready", flush=True)
sys.stdin.read()  # hold it until the other ones are done
"""


def test_processes_that_start_together_make_it_once(tmp_path):
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    lines = [line for p in started for line in takewhile(lambda it: it != "ready\n", p.stdout)]
    assert lines == ["made\n"]
    for process in started:
        process.communicate()
    assert [process.returncode for process in started] == [0, 0, 0]

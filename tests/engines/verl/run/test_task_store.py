"""Tasks on disk: what comes back is what went in, equal texts cost once, and memory stays flat."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.engines.verl.run.task_store import open_store, write_store
from recollect.errors import UserError
from recollect.tasks.files.mapped import TEXTS, MappedWriter
from recollect.types import Question, Task

texts = st.text(st.characters(), max_size=20)  # half surrogate pairs among them
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
questions = st.builds(
    Question,
    texts,
    st.lists(texts, min_size=1, max_size=3).map(tuple),
    texts,
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.none() | st.integers(0, 9),
    st.booleans(),
)
tasks = st.builds(
    Task,
    texts,
    st.lists(texts, max_size=4).map(tuple),
    st.lists(questions, max_size=3).map(tuple),
    texts,
    st.dictionaries(texts, plain, max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(tasks, max_size=6))
def test_what_comes_back_is_what_went_in(tmp_path_factory, given_tasks):
    folder = tmp_path_factory.mktemp("store") / "train"
    written = write_store(folder, given_tasks, "these")
    assert list(written) == given_tasks
    again = open_store(folder)
    assert len(again) == len(given_tasks)
    assert [again[i] for i in range(len(again))] == given_tasks
    for task, stored in zip(given_tasks, again, strict=True):
        assert list(stored.chunks) == list(task.chunks)
        assert stored.chunks[1:] == list(task.chunks[1:])


def test_places_are_those_of_a_sequence(tmp_path):
    store = write_store(tmp_path / "s", [Task("a", ("x", "y", "z"), ()), Task("b", (), ())])
    assert store[-1].id == "b" and [task.id for task in store[:1]] == ["a"]
    assert store[0].chunks[-1] == "z"
    with pytest.raises(IndexError):
        store[2]
    with pytest.raises(IndexError):  # not the first chunk of another task
        store[0].chunks[3]


def test_an_equal_text_is_stored_once(tmp_path):
    text = ("Ägypten " * 500, "b" * 500)
    once = write_store(tmp_path / "once", [Task("0", text, ())])
    thrice = write_store(
        tmp_path / "more",
        [Task("0", text, ()), Task("1", ("other",), ()), Task("2", text, ()), Task("3", text, ())],
    )
    size = once.chunks.table.nbytes
    assert thrice.chunks.table.nbytes == size + len("other") + 8  # and where it ends
    assert all(thrice[i].chunks == text for i in (0, 2, 3))
    # The same letters cut elsewhere are another text.
    cut = write_store(tmp_path / "cut", [Task("0", ("ab", "c"), ()), Task("1", ("a", "bc"), ())])
    assert [list(task.chunks) for task in cut] == [["ab", "c"], ["a", "bc"]]


def test_a_store_travels_as_its_name(tmp_path):
    store = write_store(tmp_path / "s", [Task("a", ("x" * 100_000,), ())])
    assert store[0].chunks[0]  # mapped by now
    parcel = pickle.dumps(store[0])  # Ray does this when a task crosses processes
    assert len(parcel) < 1000
    assert pickle.loads(parcel) == store[0]


def test_half_a_store_is_none(tmp_path):
    def never_ends():
        yield Task("a", ("x",), ())
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        write_store(tmp_path / "s", never_ends())
    with pytest.raises(UserError, match="no whole store"):
        open_store(tmp_path / "s")
    for name in ("chunks.arrow", "tasks.arrow"):
        store = write_store(tmp_path / "s", [Task("a", ("x",), ())])
        whole = (store.folder / name).read_bytes()
        for spoilt in (whole + b"more", whole[:-1], whole[: len(whole) // 2], b""):
            (store.folder / name).write_bytes(spoilt)
            with pytest.raises(UserError, match=f"no whole store of tasks: .*{name} is not whole"):
                open_store(tmp_path / "s")


def test_another_format_is_refused(tmp_path):
    store = write_store(tmp_path / "s", [])
    with MappedWriter(store.folder / "tasks.arrow", TEXTS):
        pass
    with pytest.raises(UserError, match=r"another version\n  fix: delete .* start the run again"):
        open_store(store.folder)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "store.json").write_text('{"format": 1}')  # as it was once written
    with pytest.raises(UserError, match=r"no whole store of tasks: there is no file"):
        open_store(tmp_path / "old")


def test_bounds_that_were_spoilt_are_refused(tmp_path):
    store = write_store(tmp_path / "s", [Task("a", ("x" * 100, "y" * 100, "z"), ())])
    path = store.folder / "chunks.arrow"
    ends = b"".join(n.to_bytes(8, "little") for n in (0, 100, 200, 201))
    data = path.read_bytes()
    assert data.count(ends) == 1
    path.write_bytes(data.replace(ends, ends[:8] + (1 << 40).to_bytes(8, "little") + ends[16:]))
    with pytest.raises(UserError, match="is not whole"):
        open_store(store.folder)


MEASURE = """
import sys
from pathlib import Path
from recollect.engines.verl.run.task_store import open_store

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1])

store = open_store(Path(sys.argv[1]))
store[0].chunks[0]
before = anonymous()
read = sum(len(chunk) for task in store for chunk in task.chunks)
print(read, anonymous() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_reading_all_of_a_large_store_takes_no_memory_of_its_own(tmp_path):
    """Four tasks of 3.5 million tokens (about 16 MB) each: all are read, none is held."""
    made = (
        Task(str(i), tuple(f"{i}-{j} " + "lorem ipsum dolor " * 1000 for j in range(890)), ())
        for i in range(4)
    )
    store = write_store(tmp_path / "s", made)
    size = store.chunks.table.nbytes - 8 * len(store.chunks)
    assert size > 60e6
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(store.folder)], capture_output=True, text=True
    )
    read, kib = map(int, done.stdout.split())
    assert read == size  # all of it is ASCII
    assert kib < 4096, f"reading {size} bytes took {kib} KiB"

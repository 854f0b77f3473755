"""Mapped tables: written a few megabytes at a time, read a row at a time."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from recollect.errors import UserError
from recollect.tasks.files.lazy import Lazy
from recollect.tasks.files.mapped import TEXTS, MappedFile, MappedWriter

NUMBERS = pa.schema({"n": pa.int64()})


def test_rows_come_back_across_batches(tmp_path):
    rows = [bytes([i]) * (1 << 20) for i in range(10)]
    with MappedWriter(tmp_path / "a", TEXTS, "ten") as writer:
        for row in rows:
            writer.add(row)
        assert writer.rows == 10
    file = MappedFile(tmp_path / "a", TEXTS, "")
    assert file.table.column(0).num_chunks > 2 and len(file) == 10 and file.about == "ten"
    assert [file.value(i) for i in range(10)] == rows
    parcel = pickle.dumps(file)
    assert len(parcel) < 2000 and pickle.loads(parcel).value(3) == rows[3]


def test_numbers_are_views_of_the_file(tmp_path):
    with MappedWriter(tmp_path / "a", NUMBERS) as writer:
        writer.extend([1, 2, 3])
    numbers = MappedFile(tmp_path / "a", NUMBERS, "").numbers("n")
    assert numbers.tolist() == [1, 2, 3] and not numbers.flags.owndata


def test_an_empty_table_is_one(tmp_path):
    with MappedWriter(tmp_path / "a", TEXTS):
        pass
    assert len(MappedFile(tmp_path / "a", TEXTS, "")) == 0


def test_what_is_no_such_table_is_refused(tmp_path):
    (tmp_path / "text").write_text("hello")
    with MappedWriter(tmp_path / "numbers", NUMBERS):
        pass
    with pa.OSFile(str(tmp_path / "theirs"), "wb") as sink, pa.ipc.new_file(sink, TEXTS):
        pass
    for name, why in (
        ("none", "there is no file"),
        ("text", "is not whole"),
        ("numbers", "another version"),
        ("theirs", "another version"),
    ):
        with pytest.raises(UserError, match=rf"{why}(.|\n)*fix: make it"):
            len(MappedFile(tmp_path / name, TEXTS, "make it"))


def test_a_writer_that_failed_leaves_no_whole_file(tmp_path):
    with pytest.raises(KeyError), MappedWriter(tmp_path / "a", TEXTS) as writer:
        writer.add(b"x")
        raise KeyError
    with pytest.raises(UserError, match="is not whole"):
        len(MappedFile(tmp_path / "a", TEXTS, ""))


WRITE = """
import sys
from pathlib import Path
from recollect.tasks.files.mapped import TEXTS, MappedWriter

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1])

most = 0
with MappedWriter(Path(sys.argv[1]), TEXTS) as writer:
    for _ in range(300):  # more than a batch: the first one imports pandas where that is installed
        writer.add(b"x" * 20_000)
    before = anonymous()
    for i in range(5_000):
        writer.add(b"x" * 20_000)
        most = max(most, anonymous() - before) if i % 50 == 0 else most
print(most)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_writing_takes_no_more_memory_than_a_few_batches(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path / "a")], capture_output=True, text=True
    )
    assert (tmp_path / "a").stat().st_size > 100e6
    assert int(done.stdout) < 20_000, done.stderr  # KiB


class Squares(Lazy[int]):
    def __len__(self) -> int:
        return 5

    def item(self, place: int) -> int:
        return place**2


def test_a_lazy_sequence_is_indexed_as_a_list():
    squares, same = Squares(), [0, 1, 4, 9, 16]
    assert squares == same and list(squares) == same and squares[-1] == 16
    assert squares[1:4] == same[1:4] and squares[::-2] == same[::-2]
    assert squares != same[:4] and squares != 3
    with pytest.raises(IndexError):
        squares[5]

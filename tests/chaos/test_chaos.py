"""The short form of `make chaos`, and proof that its check finds what it looks for."""

from __future__ import annotations

from pathlib import Path

from recollect.files import TEMPORARY
from tests.chaos.invariants import bad_manners, compare
from tests.chaos.suite import Suite, table
from tests.chaos.workloads import Unit, Workload

SHORT = ("eval: SIGTERM, SIGHUP, Ctrl-C", "eval: SIGKILL", "eval: full disk", "eval: damaged file",
         "eval: faulty model server", "train: SIGKILL", "train: full disk")  # fmt: skip


def test_a_few_seconds_of_every_kind_of_fault(tmp_path):
    with Suite(tmp_path, seed=1) as suite:
        rows = suite.run(1, list(SHORT), tries=1)
    assert not any(row.wrong for row in rows), table(rows)


def found(units: list[Unit], folder: Path) -> str:
    whole: list[Unit] = [("step 0", 0.5), ("step 1", 0.25)]
    workload = Workload("made", lambda _folder: [], lambda _folder: iter(units), "")
    return str(compare(workload, folder, whole, []))


def test_the_check_finds_what_is_lost_doubled_changed_or_left(tmp_path):
    assert found([("step 0", 0.5), ("step 1", 0.25)], tmp_path) == ""
    assert found([("step 0", 0.5)], tmp_path) == "lost: step 1"
    assert found([("step 0", 0.5), ("step 1", 0.25), ("step 1", 0.25)], tmp_path).startswith("doub")
    assert found([("step 0", 0.5), ("step 1", 0.125)], tmp_path) == (
        "changed: step 1 (0.125 for 0.25)"
    )
    assert found([("step 0", 0.5), ("step 1", 0.25), ("step 2", 0)], tmp_path) == "left: step 2"
    (tmp_path / f"{TEMPORARY}x").touch()
    assert found([("step 0", 0.5), ("step 1", 0.25)], tmp_path) == f"left: {TEMPORARY}x"


def test_the_check_finds_hangs_tracebacks_and_other_statuses():
    assert bad_manners(0, "fine", {0}) == []
    assert bad_manners(None, "", {0}) == ["it hangs"]
    assert bad_manners(1, "", {0, 2})
    assert bad_manners(0, "Traceback (most recent call last):\n  File", {0})
    assert bad_manners(2, "recollect: x\n  fix: y", {2}) == []
    assert bad_manners(2, "", {2}), "a failure that says nothing"

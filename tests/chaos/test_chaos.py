"""The short form of `make chaos`, and proof that its check finds what it looks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.files import TEMPORARY
from tests.chaos.invariants import Findings, bad_manners, compare
from tests.chaos.suite import FAULTS, Suite
from tests.chaos.table import BEGIN, END, Row, put, table
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


def test_what_no_check_expects_is_counted_and_the_suite_continues(tmp_path, monkeypatch, capsys):
    def broken(_suite, _folder, _draw):
        raise ValueError("nobody expected this")

    monkeypatch.setitem(FAULTS, "made", broken)
    with Suite(tmp_path, seed=7) as suite:
        rows = suite.run(0, ["made"], tries=2)
    assert (rows[0].tries, rows[0].wrong) == (2, 2)
    assert "seed 7, made, try 2" in (said := capsys.readouterr().err)
    assert "nobody expected this" in said


def test_the_table_replaces_the_one_of_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    row = Row("a fault")
    row.add(Findings(lost=["x"]), [1.0, 3.0])
    for _ in range(2):
        put(page, [row], 7, 9.0)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert text.count("| a fault | 1 | 1 | 0 | 0 | 1 | 2.0 (3.0) |") == 1 and "seed 7" in text
    (tmp_path / "other.md").write_text("no marks")
    with pytest.raises(SystemExit, match="has no"):
        put(tmp_path / "other.md", [row], 7, 9.0)

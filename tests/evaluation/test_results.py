"""results.json: what was written is what is read, and what is not a result is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.errors import UserError
from recollect.evaluation.results import (
    Cell,
    Comparison,
    Cost,
    Estimate,
    Example,
    JudgeError,
    JudgeKind,
    Results,
    load,
    save,
)

SCORE = Estimate(0.5, 0.25, 0.75, 12, 1, 12, "wilson")
CELL = Cell(
    "recall@1x",
    "recall",
    "fold",
    "boxed_exact_match",
    {"boxed_exact_match": SCORE},
    {"0": 0.5},
    None,
    SCORE,
    {"position": {"first": SCORE}},
    Cost(12, 12, 100, 20, 12, 50, 10, 12, 3.5, 20.0, 80.0, 0.01),
    {"policy: TimeoutError": 1},
    512.0,
    2048.0,
)
RESULTS = Results(
    "recollect eval --tasks recall@1x",
    "2026-01-01T00:00:00+00:00",
    {"id": "tiny"},
    {"n": 12},
    {"recollect": "0"},
    {"recall@1x": "abc"},
    [CELL],
    [Comparison("recall@1x", "token_f1", "fold", "rag", 0.1, -0.1, 0.3, 0.2, 0.4, 12)],
    [Example("recall@1x", "fold", "e", "Who?", ["Ada"], "<b>Ben</b> \u2028", 0.0)],
    JudgeError("m", "h", 0.0, SCORE, SCORE, [JudgeKind("vague", False, 1, 9)]),
)


def test_what_is_written_is_read(tmp_path: Path):
    path = save(RESULTS, tmp_path)
    assert load(tmp_path) == load(path) == RESULTS
    assert RESULTS.n_failed == 1 and CELL.cost.calls == 24 and CELL.cost.tokens == 180


def test_what_is_no_result_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path)
    path = save(RESULTS, tmp_path)
    data = json.loads(path.read_text())
    del data["cells"][0]["scores"]
    path.write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"cells\.0\.scores"):
        load(tmp_path)

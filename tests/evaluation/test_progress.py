"""What a person sees while it runs: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from recollect.evaluation.progress import PLAIN_EVERY, Progress

CELLS = {("codes@4", "reader"): 3, ("codes@4", "closed_book"): 3}


def record(agent: str, answer: str, failed: bool = False) -> dict:
    return {
        "task": "codes@4",
        "agent": agent,
        "questions": [{"text": "?", "answers": ["c1"]}],
        "answers": [] if failed else [answer],
        "failure": {"boundary": "policy"} if failed else None,
        "contexts": [{"turns": [[100, 10, "stop", ""]]}],
    }


def test_plain_lines_come_now_and_then():
    now = [0.0]
    out = io.StringIO()
    console = Console(file=out, width=60)
    with Progress(
        console, CELLS, {"codes@4": "exact_match"}, "found", clock=lambda: now[0]
    ) as shown:
        for i in range(4):
            now[0] += PLAIN_EVERY / 2
            shown.episode(record("reader" if i < 3 else "closed_book", "c1", failed=i == 1))
    lines = out.getvalue().splitlines()
    assert lines[0] == "found: 6 of 6 episodes to run" and len(lines) == 4
    assert lines[1].startswith("2/6 episodes, 1 failed, 2 calls") and "220 tokens" in lines[1]
    assert lines[-1].startswith("4/6 episodes") and "30 s elapsed, 15 s left" in lines[-1]


def test_the_table_has_a_score_for_every_cell():
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None)
    with Progress(console, CELLS, {"codes@4": "exact_match"}, "found") as shown:
        shown.before(record("reader", "c1"))
        shown.before(record("other", "c1"))  # no longer asked for
        shown.episode(record("reader", "", failed=True))
        assert shown.done == 2 and shown.total == 6
    text = out.getvalue()
    assert "0.500 2/3 1 failed" in text and "·" in text and "closed_book" in text

"""What a person sees: no markup or control code of a model gets through, no number is cut."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from recollect.accuracy import Accuracy
from recollect.display import (
    Display,
    Report,
    report_card,
    report_markdown,
    rollout_table,
)
from recollect.display.figures import interval_bar, sparkline
from recollect.types import Episode, Failure, MemoryOp, Question, Task

HALF = Accuracy(512, 3, 0.5, 0.457, 0.543)
METRICS = {
    "reward/mean": 0.5, "score/answer": 0.25, "episodes/failed": 2, "tokens/per_turn": 41.25,
    "train/kl": 0.0012, "train/grad_norm": math.nan, "time/rollout": 1.04, "time/update": 2.0,
    "other": 9.0,
}  # fmt: skip


def screen(width: int = 100, terminal: bool = True) -> Console:
    return Console(
        file=io.StringIO(), width=width, height=40, force_terminal=terminal, color_system=None,
        record=True,
    )  # fmt: skip


def text(renderable: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def episode(reward: float | None, memories: list[str], answer: str = "", **more) -> Episode:
    task = Task("t1", (), (Question("Which [red]?", ("apple [b]",)),))
    ops = [MemoryOp("replace", {"text": m}, f"chunk {i}") for i, m in enumerate(memories, 1)]
    return Episode(task, 0, [], ops, [answer], reward, **more)


def test_a_sparkline_has_a_fixed_scale_for_rewards_and_skips_what_is_not_finite():
    assert sparkline([0.0, 0.5, math.nan, 1.0], 10) == "▁▅█"
    assert sparkline([-2.0, 4.0], 10) == "▁█"
    assert len(sparkline([i / 999 for i in range(1000)], 50)) == 50
    assert sparkline([], 10) == "" and sparkline([3.0, 3.0], 10) == "▁▁"


@given(st.tuples(*[st.floats(0, 1)] * 3).map(sorted), st.integers(5, 40))
def test_an_interval_bar_always_fills_its_width(bounds, width):
    bar = interval_bar(*bounds, width).plain
    assert len(bar) == width and bar.count("●") == 1


def test_a_pipe_gets_one_plain_line_per_step():
    console = Console(file=io.StringIO(), width=80)
    ticks = iter([0.0, 0.0, 3.0, 6.0])
    with Display(
        console, 10, "demo [x]", {"model": "base\x1b[0m"}, clock=lambda: next(ticks)
    ) as display:
        display.validation(0, [("recall", HALF)])
        display.phase("rollout", 1, 2)
        display.step(1, METRICS)
        display.note("a [bold]damaged[/bold] checkpoint")
        display.step(2, {"reward/mean": 1.0})
    lines = console.file.getvalue().splitlines()
    assert lines == [
        "demo [x]: 10 steps, model base\N{REPLACEMENT CHARACTER}[0m",
        "step  0/10  recall accuracy 0.500 [0.457, 0.543]  n 512  failed 3",
        "step  1/10  reward 0.500  score 0.250  failed 2  tokens 41.2  kl 0.0012  grad nan"
        "  rollout 1.0 s  update 2.0 s  left 27 s",
        "note: a [bold]damaged[/bold] checkpoint",
        "step  2/10  reward 1.000  left 24 s",
    ]


def test_a_terminal_shows_the_latest_steps_and_where_it_stands():
    console = screen()
    with Display(console, 40, "demo", {"model": "base", "agent": "fold"}) as display:
        display.validation(0, [("recall", HALF)])
        for step in range(1, 21):
            display.step(step, {**METRICS, "reward/mean": step / 20})
        display.phase("rollout", 3, 256)
        page = text(display._page())
        display.note("careful [bold]")
    for piece in ("model base", "agent fold", "20/40", "rollout 3/256", "from 0.050 to 1.000"):
        assert piece in page
    rows = [line.split()[0] for line in page.splitlines() if line.endswith("2.0 s")]
    assert rows == [str(step) for step in range(13, 21)]
    assert "0.457 to 0.543" in page
    assert "! careful [bold]" in console.file.getvalue()


def test_a_resumed_run_starts_where_it_was():
    with Display(screen(), 40, "demo", done=30) as display:
        assert "30/40" in text(display._page())
        assert math.isnan(display.seconds_left)


@pytest.mark.parametrize("width", [30, 50, 80, 100, 200])
def test_a_narrow_terminal_loses_columns_not_digits(width):
    with Display(screen(width), 40, "demo", {"model": "m" * 90}) as display:
        display.step(1, METRICS)
        page = text(display._page(), width)
    assert max(map(len, page.splitlines())) <= width
    assert "0.500" in page and "step   reward" in page
    assert ("2.0 s" in page) == (width >= 80)


def test_the_first_validation_stays_in_view():
    with Display(screen(), 40, "demo") as display:
        for step in range(0, 40, 2):
            display.validation(step, [("recall", HALF)])
        steps = [line.split()[0] for line in text(display._page()).splitlines() if "512" in line]
    assert steps == ["0", "32", "34", "36", "38"]


def test_rollouts_of_the_most_telling_task_stand_side_by_side():
    dull = [episode(1.0, ["dull"], "dull")] * 3
    telling = [
        episode(0.0, ["pear", "\x1b[31mplum"], "\\boxed{plum}"),
        episode(1.0, ["apple", "apple"], "\\boxed{apple}"),
        episode(0.5, ["[bold]fig[/bold]", ""], "fig"),
    ]
    shown = text(rollout_table([dull, telling], "Step 4"))
    lines = {line.split("  ")[0]: line.split() for line in shown.splitlines() if line.strip()}
    assert lines["reward"] == ["reward", "1.000", "0.500", "0.000"]
    assert lines["chunk 1"][2:] == ["apple", "[bold]fig[/bold]", "pear"]
    assert lines["chunk 2"][2:] == ["apple", "(empty)", "\N{REPLACEMENT CHARACTER}[31mplum"]
    assert lines["answer"][1:] == ["\\boxed{apple}", "fig", "\\boxed{plum}"]
    assert "Which [red]?   expected apple [b]" in shown
    assert "dull" not in shown and "\x1b" not in shown


def test_failed_episodes_are_counted_and_rank_nowhere():
    failed = episode(None, [], failure=Failure("policy", "ValueError", "no [reply]"))
    shown = text(rollout_table([[failed, episode(0.5, ["a"], "b")]]))
    assert "1 failed; the first at policy: ValueError: no [reply]" in shown
    assert shown.count("0.500") == 3
    assert "no episode was finished" in text(rollout_table([[failed]]))
    assert "no episode was finished" in text(rollout_table([]))


def test_long_readings_show_their_two_ends_and_other_operations_their_data():
    long = episode(1.0, [f"m{i}" for i in range(1, 101)], "x" * 1000)
    shown = text(rollout_table([[long]]))
    assert "m4 " in shown and "m97" in shown and "m50" not in shown and "x" * 200 not in shown
    notes = episode(1.0, [], "a")
    notes.ops = [
        MemoryOp("add", {"title": "Ann", "text": "likes [i]tea[/i]"}, "chunk 1"),
        MemoryOp("delete", {"title": "Bob"}, "chunk 1"),
        MemoryOp("core", {"text": "a tale", "token_ids": (4711, 4712)}, "chunk 1"),
        MemoryOp("clear", {}),
    ]
    shown = text(rollout_table([[notes]]), 200)
    assert "core a tale" in shown and "4711" not in shown
    assert "add Ann, likes [i]tea[/i]; delete Bob" in shown and "memory    clear" in shown


def test_many_questions_are_named_and_counted():
    task = Task("t", (), tuple(Question(f"q{i}?", (f"a{i}",)) for i in range(9)))
    shown = text(rollout_table([[Episode(task, 0, answers=["r"] * 9, reward=1.0)]]))
    assert "q2?   expected a2" in shown and "and 6 more questions" in shown
    assert "answer 3" in shown and "answer 4" not in shown


REPORT = Report(
    "demo", Path("runs/demo"), HALF, Accuracy(512, 0, 0.977, 0.959, 0.987),
    [(1, HALF), (16, HALF)], 40, 10240, 5, 3141592, 2912345, {"rollout": 48.0, "update": 61.0},
    {"seed": "0"}, "recollect eval runs/demo", [(2, HALF)],
)  # fmt: skip


@pytest.mark.parametrize("width", [70, 80, 100])
def test_the_report_card_states_everything(width):
    shown = text(report_card(REPORT), width)
    for piece in (
        "before", "after", "0.977", "0.959 to 0.987", "0.500", "0.457 to 0.543", "512", "1x", "16x",
        "2x distractors 0.500",
        "40 steps, 10,240 episodes (5 failed)", "3.14M tokens sampled",
        "1 min 49 s (rollout 48 s, update", "runs/demo", "recollect eval runs/demo", "seed",
    ):  # fmt: skip
        assert piece in " ".join(shown.split()), piece
    assert max(map(len, shown.splitlines())) <= width


def test_the_markdown_report_states_the_same():
    shown = report_markdown(REPORT)
    assert "| after | 0.977 | 0.959 to 0.987 | 512 | 0 |" in shown
    assert "| 16x | 0.500 | 0.457 to 0.543 | 512 | 3 |" in shown
    assert "| 2x distractors | 0.500 | 0.457 to 0.543 | 512 | 3 |" in shown
    assert "- next: `recollect eval runs/demo`" in shown
    only = Report("demo", Path("r"), None, HALF)
    assert "before" not in report_markdown(only) and "before" not in text(report_card(only))


def test_a_terminal_that_knows_only_ascii_gets_the_report_too():
    code = (
        "from recollect.display import open_console, report_card\n"
        "from test_display import REPORT\n"
        "open_console().print(report_card(REPORT))\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    environment["PYTHONPATH"] = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"0.977" in done.stdout


def test_what_could_not_be_measured_is_counted_apart_wherever_accuracies_are_shown():
    lost = replace(HALF, unmeasured=7)
    card = " ".join(text(report_card(replace(REPORT, after=lost))).split())
    page = report_markdown(replace(REPORT, after=lost))
    assert "failed unmeasured" in card and "| failed | unmeasured |" in page and "| 7 |" in page
    assert "unmeasured" not in text(report_card(REPORT)) + report_markdown(REPORT)

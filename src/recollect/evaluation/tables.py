"""Results on a terminal: scores with intervals, what they cost, how often the judge errs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from recollect.display.figures import interval_bar, plain_table
from recollect.display.numbers import count, dollars, duration, estimate, interval, share
from recollect.evaluation.results import Cell, JudgeError, Results


def score_table(results: Results) -> Table:
    """Show every cell's primary metric: interval, n, failures, and the closed-book score."""
    table = plain_table(padding=2)
    for header in ("tasks, by", "agent"):
        table.add_column(header, no_wrap=True)
    for header in ("mean", "95% interval"):
        table.add_column(header, justify="right", no_wrap=True)
    # The one column that may be cut: every number beside it must stay whole.
    table.add_column(Text("0" + "1".rjust(19), no_wrap=True, overflow="crop"))
    several = any(cell.spread is not None for cell in results.cells)
    for header in ("n", "failed", *(["spread"] if several else []), "closed"):
        table.add_column(header, justify="right", no_wrap=True)
    shown = ""
    for cell in results.cells:
        score = cell.scores[cell.primary]
        if cell.task != shown:
            shown = cell.task
            table.add_row(Text(shown, "bold"))
        spread = "" if cell.spread is None else f"±{share(cell.spread)}"
        table.add_row(
            Text(f"  {cell.primary}", "bright_black"),
            cell.agent,
            Text(share(score.mean), "bold"),
            interval(score.low, score.high),
            interval_bar(score.low, score.mean, score.high),
            str(score.n),
            Text(str(score.n_failed), "yellow" if score.n_failed else ""),
            *([spread] if several else []),
            "" if cell.closed_book is None else share(cell.closed_book.mean),
        )
    return table


def published_table(results: Results) -> Table | None:
    """Show the benchmarks' own scores, by their own names; None where no set has any."""
    names = list(dict.fromkeys(name for cell in results.cells for name in cell.published))
    title = "as published, to compare with published figures; hedging can win some of them"
    rows = [(cell, cell.published) for cell in results.cells if cell.published]
    return _beside(rows, names, title) if names else None


def asked_table(results: Results, asked: Sequence[str]) -> Table | None:
    """Show the metrics that were asked for; None where the other tables have all of them."""
    shown = [(cell.primary, *cell.published) for cell in results.cells]
    names = [name for name in dict.fromkeys(asked) if not all(name in own for own in shown)]
    rows = [(cell, names) for cell in results.cells]
    return _beside(rows, names, "as asked for with --metrics") if names else None


def _beside(rows: Sequence[tuple[Cell, Sequence[str]]], names: Sequence[str], title: str) -> Table:
    """Show further scores below each other: sets have different ones, too many for columns."""
    table = plain_table(padding=2)
    table.title, table.title_justify = title, "left"
    for header in ("tasks, by", "agent"):
        table.add_column(header, no_wrap=True)
    table.add_column("mean and 95% interval", justify="right", no_wrap=True)
    for task in dict.fromkeys(cell.task for cell, _own in rows):
        table.add_row(Text(task, "bold"))
        for name in names:
            for cell, own in rows:
                if cell.task == task and name in own and (score := cell.scores.get(name)):
                    shown = estimate(score.mean, score.low, score.high)
                    table.add_row(Text(f"  {name}", "bright_black"), cell.agent, shown)
    return table


def cost_table(results: Results) -> Table:
    """Show what every cell spent per episode."""
    table = plain_table(padding=2)
    for header in ("tasks", "agent"):
        table.add_column(header, no_wrap=True)
    headers = ("build in", "out", "answer in", "out", "calls", "memory", "time", "price in all")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for cell in results.cells:
        cost = cell.cost
        each = max(1, cost.episodes)
        table.add_row(
            cell.task,
            cell.agent,
            count(cost.build_read / each),
            count(cost.build_written / each),
            count(cost.answer_read / each),
            count(cost.answer_written / each),
            count(cost.calls / each),
            count(cost.memory_tokens),
            duration(cost.seconds / each),
            "" if cost.dollars is None else dollars(cost.dollars),
        )
    table.caption = "per episode: tokens, calls, time"
    table.caption_justify = "left"
    return table


def judge_table(error: JudgeError) -> Table:
    """Show how often a judge errs, over all and by kind."""
    table = plain_table(padding=2)
    table.title = f"judge {error.model}, prompt {error.prompt_hash}, temperature 0"
    table.title_justify = "left"
    for header in ("labelled answers", "should be"):
        table.add_column(header, no_wrap=True)
    for header in ("errors", "rate", "95% interval"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, label, score in (
        ("all wrong ones", "refused", error.false_accept),
        ("all right ones", "accepted", error.false_reject),
    ):
        errors = f"{round(score.mean * score.n)} of {score.n}"
        between = interval(score.low, score.high)
        table.add_row(name, label, errors, Text(share(score.mean), "bold"), between)
    for kind in error.kinds:
        wrong = kind.n - kind.accepted if kind.right else kind.accepted
        label = "accepted" if kind.right else "refused"
        table.add_row(kind.kind, label, f"{wrong} of {kind.n}", share(wrong / kind.n), "")
    return table

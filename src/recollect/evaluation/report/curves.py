"""The two curves of a report: accuracy against length, and against cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.display.numbers import count, dollars
from recollect.evaluation.report.charts import Point, Series, chart
from recollect.evaluation.report.document import Bar, Block, Charts, Prose, Table, Value, scored
from recollect.evaluation.results import Cell

MOST = 4
"""Task sets above which only the longest of each family is drawn against its cost."""


def length_charts(cells: Sequence[Cell], agents: Sequence[str]) -> list[Block]:
    """Draw one curve per family that was asked at several lengths."""
    families: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.tokens:
            families.setdefault(cell.family, []).append(cell)
    curves = {f: own for f, own in families.items() if len({cell.task for cell in own}) > 1}
    if not curves:
        return []
    svgs = [
        chart(
            f"{family} ({own[0].primary})",
            "tokens of text",
            _series(own, agents, lambda cell: cell.tokens or 0.0),
            count,
        )
        for family, own in curves.items()
    ]
    rows: list[list[Value]] = []
    for family, own in curves.items():
        for tokens, task in sorted({(cell.tokens or 0.0, cell.task) for cell in own}):
            at = {cell.agent: cell for cell in own if cell.task == task and cell.tokens == tokens}
            scores = [_score(at.get(agent)) for agent in agents]
            rows.append([family, count(tokens), *scores])
    shown = [agent for agent in agents if any(c.agent == agent for o in curves.values() for c in o)]
    keep = [i for i, agent in enumerate(agents) if agent in shown]
    rows = [[*row[:2], *(row[2 + i] for i in keep)] for row in rows]
    return [Charts(svgs, Table(["family", "tokens", *shown], rows, 2), shown)]


def cost_charts(cells: Sequence[Cell], agents: Sequence[str]) -> list[Block]:
    """Draw accuracy against tokens per question, and against dollars where there are prices."""
    drawn = [cell for cell in _drawn(cells) if cell.cost.questions and cell.cost.tokens]
    if not drawn:
        return []
    ways: list[tuple[str, Callable[[Cell], float], Callable[[float], str]]] = [
        ("tokens per question", lambda c: c.cost.tokens / c.cost.questions, count)
    ]
    if any(cell.cost.dollars for cell in drawn):
        ways.append(
            (
                "dollars per 1,000 questions",
                lambda c: 1000 * (c.cost.dollars or 0) / c.cost.questions,
                dollars,
            )
        )
    svgs = []
    for task in dict.fromkeys(cell.task for cell in drawn):
        for label, x, text in ways:
            own = [cell for cell in drawn if cell.task == task and x(cell) > 0]
            if own:
                svgs.append(chart(task, label, _series(own, agents, x, text), text, lines=False))
    rows: list[list[Value]] = [
        [
            cell.task,
            cell.agent,
            Bar(cell.scores[cell.primary], drawn=False),
            *(text(x(cell)) if x(cell) > 0 else "" for _, x, text in ways),
        ]
        for cell in drawn
    ]
    table = Table(["task set", "agent", "score", *(label for label, _, _ in ways)], rows, 2)
    shown = [agent for agent in agents if any(cell.agent == agent for cell in drawn)]
    blocks: list[Block] = [Charts(svgs, table, shown)]
    if len(drawn) < len(cells):
        blocks.append(Prose("Drawn: the longest task set of each family; the tables have all."))
    return blocks


def _drawn(cells: Sequence[Cell]) -> list[Cell]:
    if len({cell.task for cell in cells}) <= MOST:
        return list(cells)
    longest: dict[str, float] = {}
    for cell in cells:
        longest[cell.family] = max(longest.get(cell.family, 0.0), cell.chars)
    return [cell for cell in cells if cell.chars == longest[cell.family]]


def _series(
    cells: Sequence[Cell],
    agents: Sequence[str],
    x: Callable[[Cell], float],
    text: Callable[[float], str] = count,
) -> list[Series]:
    series = []
    for style, agent in enumerate(agents):
        own = [cell for cell in cells if cell.agent == agent]
        points = []
        for cell in own:
            score = cell.scores[cell.primary]
            note = f"{agent}, {cell.task}: {scored(score)}, n = {score.n}, {text(x(cell))}"
            points.append(Point(x(cell), score.mean, score.low, score.high, note))
        if points:
            series.append(Series(agent, style, points))
    return series


def _score(cell: Cell | None) -> Value:
    return Bar(cell.scores[cell.primary], drawn=False) if cell else ""

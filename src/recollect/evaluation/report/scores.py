"""What a report says about scores: all of them, each task set's own, and by kinds of questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recollect.display.numbers import count, p_value, share, signed
from recollect.evaluation.report.document import (
    AgentName,
    Bar,
    Best,
    Block,
    Folded,
    Notice,
    Prose,
    Section,
    Subtitled,
    Table,
    Value,
)
from recollect.evaluation.results import Cell, Comparison, Estimate, Results, remarks

OPEN = 10
"""Task sets up to which their tables are shown at once."""

_AXES = {
    "category": "By category",
    "position": "By position of the evidence",
    "distance": "By distance between pieces of evidence",
    "order": "By order of the evidence",
}

_WHOSE = (
    "Ours count the questions that the text answers; the one that counts first cannot be won by"
    " naming every candidate or by giving up. Published scores are the benchmarks' own, by their"
    " own names and rules, over all questions: compare them with published figures only."
)

_ORDER = ("first", "middle", "last", "spread", "near", "far", "in order", "out of order")
"""Values of axes as they follow one another; others stay as they come."""


def overview(results: Results, tasks: Sequence[str], agents: Sequence[str]) -> list[Block]:
    """Show how every agent did on every task set, after what failed and what was not run."""
    blocks: list[Block] = [*_notices(results, agents)]
    closed = any(cell.closed_book for cell in results.cells) and "closed_book" not in agents
    rows: list[list[Value]] = []
    for task in tasks:
        cells = {cell.agent: cell for cell in results.cells if cell.task == task}
        some = next(iter(cells.values()))
        best = _best(list(cells.values()))
        row: list[Value] = [Subtitled(task, some.primary), str(some.scores[some.primary].n)]
        row += [_entry(cells.get(agent), best) for agent in agents]
        if closed:
            row.append(Bar(some.closed_book, drawn=False) if some.closed_book else "")
        rows.append(row)
    head = ["task set", "n", *agents, *(["closed book"] if closed else [])]
    caption = (
        "Our own score, from 0 to 1, with its 95% interval; n counts questions that the text"
        " answers (the others are under their category). Failed episodes count as wrong. The"
        " highest mean of a row is bold (but no bound's, such as the oracle's); that is no claim"
        " that it differs from the next."
    )
    return [*blocks, Table(head, rows, 1, caption)]


def _best(cells: Sequence[Cell]) -> Cell:
    """Return who did best; who was shown the evidence does not compete."""
    competing = [cell for cell in cells if not cell.bound] or list(cells)
    return max(competing, key=lambda cell: cell.scores[cell.primary].mean)


def _entry(cell: Cell | None, best: Cell) -> Value:
    if cell is None:
        return ""
    score = cell.scores[cell.primary]
    value = Bar(score, drawn=False)
    highest = score.mean == best.scores[best.primary].mean > 0 and not cell.bound
    return Best(value) if highest else value


def _notices(results: Results, agents: Sequence[str]) -> list[Block]:
    notices: list[Block] = []
    if results.n_failed:
        kinds: Counter[str] = Counter()
        for cell in results.cells:
            kinds.update(cell.failures)
        named = "; ".join(f"{kind} ({times})" for kind, times in kinds.most_common(6))
        notices.append(
            Notice(f"{results.n_failed:,} episodes failed and count as wrong. By cause: {named}.")
        )
    notices += [Notice(f"{remark}.") for remark in remarks(results)]
    lacking = [
        ("closed_book", "what the model knew before reading is not measured"),
        ("full_context", "there is no reading of the whole text to compare with"),
        ("rag", "there is no retrieval to compare with"),
        ("oracle", "there is no upper bound from the evidence alone"),
    ]
    missing = [f"{name} ({why})" for name, why in lacking if name not in agents]
    if missing:
        notices.append(Prose(f"Not run: {'; '.join(missing)}."))
    return notices


def detail(results: Results, task: str, tasks: int) -> Block:
    """Show one task set: every agent, beside the one that did best."""
    cells = [cell for cell in results.cells if cell.task == task]
    best = _best(cells)
    against = {
        (c.second if c.first == best.agent else c.first): c
        for c in results.comparisons
        if c.task == task and best.agent in (c.first, c.second)
    }
    head = ["agent", best.primary, "n", "clusters", "failed", "spread", "closed book"]
    head += [f"against {best.agent}", "p", "p (Holm)"]
    rows: list[list[Value]] = []
    for cell in cells:
        score = cell.scores[cell.primary]
        row: list[Value] = [AgentName(cell.agent), Bar(score), str(score.n), str(score.n_clusters)]
        row.append(str(score.n_failed))
        row.append("" if cell.spread is None else f"\u00b1{share(cell.spread)}")
        row.append(share(cell.closed_book.mean) if cell.closed_book else "")
        row += _compared(cell.agent, best.agent, against.get(cell.agent))
        rows.append(row)
    spread = "Spread: standard deviation over seeds. " if any(c.spread for c in cells) else ""
    length = f"About {count(best.tokens)} tokens of text. " if best.tokens else ""
    caption = (
        f"{length}{spread}Clusters: what the interval rests on (conversations, articles, tasks)."
        " Differences of scores, paired by question, tested by cluster; Holm's correction is for"
        " all comparisons of this evaluation."
    )
    blocks: list[Block] = [Table(head, rows, 1, caption)]
    if len(cells) > 2:
        blocks.append(Folded("All pairs", [_pairs(results.comparisons, task)]))
    return Folded(task, blocks, open=tasks <= OPEN)


def _compared(agent: str, best: str, pair: Comparison | None) -> list[Value]:
    if agent == best or pair is None:
        return ["", "", ""]
    sign = 1 if pair.first == agent else -1
    low, high = sorted((sign * pair.low, sign * pair.high))
    difference = f"{signed(sign * pair.difference)} [{signed(low)}, {signed(high)}]"
    return [difference, p_value(pair.p), p_value(pair.p_adjusted)]


def _pairs(comparisons: Sequence[Comparison], task: str) -> Table:
    rows: list[list[Value]] = [
        [
            AgentName(c.first),
            AgentName(c.second),
            f"{signed(c.difference)} [{signed(c.low)}, {signed(c.high)}]",
            p_value(c.p),
            p_value(c.p_adjusted),
            str(c.n_clusters),
        ]
        for c in comparisons
        if c.task == task
    ]
    return Table(["first", "second", "first minus second", "p", "p (Holm)", "clusters"], rows, 2)


def metrics(results: Results, tasks: Sequence[str]) -> list[Block]:
    """Show all metrics side by side, where there is more than one."""
    if all(len(cell.scores) < 2 for cell in results.cells):
        return []
    families = {cell.family: cell for cell in results.cells}
    about: list[list[Value]] = [
        [
            family,
            cell.primary,
            ", ".join(name for name in cell.scores if name not in (cell.primary, *cell.published)),
            ", ".join(cell.published) or "none",
        ]
        for family, cell in families.items()
    ]
    head = ["family", "counts first (ours)", "beside it (ours)", "published"]
    blocks: list[Block] = [Prose(_WHOSE), Table(head, about, 4)]
    for task in tasks:
        cells = [cell for cell in results.cells if cell.task == task]
        published = list(dict.fromkeys(name for cell in cells for name in cell.published))
        found = dict.fromkeys(name for cell in cells for name in cell.scores)
        names = [*(name for name in found if name not in published), *published]
        rows: list[list[Value]] = [
            [AgentName(cell.agent), *(_plain(cell.scores.get(name)) for name in names)]
            for cell in cells
        ]
        shown = [f"{name} (published)" if name in published else name for name in names]
        blocks.append(Folded(task, [Table(["agent", *shown], rows)]))
    return blocks


def _plain(score: Estimate | None) -> Value:
    return Bar(score, drawn=False) if score else ""


def axes(results: Results, tasks: Sequence[str], agents: Sequence[str]) -> list[Section]:
    """Show the scores again by what sets the questions apart, in one section each."""
    names = list(dict.fromkeys(axis for cell in results.cells for axis in cell.axes))
    ordered = [n for n in _AXES if n in names] + [n for n in names if n not in _AXES]
    sections = []
    for axis in ordered:
        blocks: list[Block] = []
        for task in tasks:
            cells = {c.agent: c for c in results.cells if c.task == task and axis in c.axes}
            if cells:
                blocks.append(Folded(task, [_axis(axis, cells, agents)]))
        sections.append(Section(_AXES.get(axis, f"By {axis}"), blocks))
    return sections


def _axis(axis: str, cells: dict[str, Cell], agents: Sequence[str]) -> Table:
    shown = [agent for agent in agents if agent in cells]
    found = dict.fromkeys(value for cell in cells.values() for value in cell.axes[axis])
    values = sorted(found, key=lambda value: _ORDER.index(value) if value in _ORDER else 0)
    rows: list[list[Value]] = []
    for value in values:
        scores = [cells[agent].axes[axis].get(value) for agent in shown]
        n = max(score.n for score in scores if score)
        rows.append([value or "(none)", str(n), *(_plain(score) for score in scores)])
    return Table([axis, "n", *shown], rows)

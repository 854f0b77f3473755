"""What a report says: from results to a document. Knows nothing of Markdown or HTML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from recollect.evaluation.results import Cell, Comparison, Example, Results, Score
from recollect.report.curves import cost_charts, length_charts
from recollect.report.document import (
    Agent,
    Bar,
    Best,
    Block,
    Code,
    Document,
    Facts,
    Folded,
    Noted,
    Notice,
    Paragraph,
    Quote,
    Section,
    Table,
    Value,
)
from recollect.report.numbers import count, dollars, p_value, percent, seconds, signed

OPEN = 10
"""Task sets up to which their tables are shown at once."""

_AXES = {
    "category": "By category",
    "position": "By position of the evidence",
    "distance": "By distance between pieces of evidence",
    "order": "By order of the evidence",
}

_ORDER = ("first", "middle", "last", "spread", "near", "far", "in order", "out of order")
"""Values of axes as they follow one another; others stay as they come."""


def make_document(results: Results) -> Document:
    """Say what was found, how sure it is, what it cost, and how to find it again."""
    agents = list(dict.fromkeys(cell.agent for cell in results.cells))
    tasks = list(dict.fromkeys(cell.task for cell in results.cells))
    sections = [
        Section("Results", _overview(results, tasks, agents)),
        Section("Length", length_charts(results.cells, agents)),
        Section("Cost", [*cost_charts(results.cells, agents), *_costs(results, tasks)]),
        Section("Each task set", [_detail(results, task, len(tasks)) for task in tasks]),
        Section("All metrics side by side", _metrics(results, tasks)),
        *_axes(results, tasks, agents),
        Section("Judge", _judge(results)),
        Section("Answers to look at", _examples(results.examples)),
        Section("How to get this again", _reproduction(results)),
    ]
    return Document(
        f"Evaluation of {model_name(results.model)}",
        f"{len(agents)} agents on {len(tasks)} task sets, {_moment(results.created)}",
        _facts(results),
        [section for section in sections if section.blocks],
        agents,
    )


def model_name(model: dict[str, Any]) -> str:
    """Return what a model is called, or both where two speak: who remembers, who answers."""
    own = [model[role] for role in ("memory", "answer") if isinstance(model.get(role), dict)]
    names = dict.fromkeys(
        str(name)
        for one in own or [model]
        if (name := next((one[key] for key in ("id", "folder", "url") if one.get(key)), None))
    )
    return " with ".join(names) or "a model"


def _moment(created: str) -> str:
    try:
        return datetime.fromisoformat(created).astimezone(UTC).strftime("%d %B %Y, %H:%M UTC")
    except ValueError:
        return created


def _facts(results: Results) -> list[tuple[str, str]]:
    costs = [cell.cost for cell in results.cells]
    episodes = sum(cost.episodes for cost in costs)
    read = sum(cost.build_read + cost.answer_read for cost in costs)
    facts = [
        ("Episodes", f"{episodes:,}"),
        ("Failed", f"{results.n_failed:,}"),
        ("Questions", f"{sum(cost.questions for cost in costs):,}"),
        ("Model calls", f"{sum(cost.calls for cost in costs):,}"),
        ("Tokens read", count(read)),
        ("Tokens written", count(sum(cost.tokens for cost in costs) - read)),
        ("Wall time", seconds(results.seconds)),
    ]
    if all(cost.dollars is not None for cost in costs) and costs:
        facts.append(("Price", dollars(sum(cost.dollars or 0.0 for cost in costs))))
    return facts


# Scores


def _overview(results: Results, tasks: Sequence[str], agents: Sequence[str]) -> list[Block]:
    blocks: list[Block] = [*_notices(results, agents)]
    closed = any(cell.closed_book for cell in results.cells) and "closed_book" not in agents
    rows: list[list[Value]] = []
    for task in tasks:
        cells = {cell.agent: cell for cell in results.cells if cell.task == task}
        some = next(iter(cells.values()))
        best = _best(list(cells.values()))
        row: list[Value] = [Noted(task, some.primary), str(some.scores[some.primary].n)]
        row += [_entry(cells.get(agent), best) for agent in agents]
        if closed:
            row.append(Bar(some.closed_book, drawn=False) if some.closed_book else "")
        rows.append(row)
    head = ["task set", "n", *agents, *(["closed book"] if closed else [])]
    caption = (
        "Percent, with the 95% interval; n counts questions. Failed episodes count as wrong. The"
        " highest mean of a row is bold (but not the oracle's, which is a bound); that is no claim"
        " that it differs from the next."
    )
    return [*blocks, Table(head, rows, 1, caption)]


def _best(cells: Sequence[Cell]) -> Cell:
    """Return who did best; who was shown the evidence does not compete."""
    competing = [cell for cell in cells if cell.agent != "oracle"] or list(cells)
    return max(competing, key=lambda cell: cell.scores[cell.primary].mean)


def _entry(cell: Cell | None, best: Cell) -> Value:
    if cell is None:
        return ""
    score = cell.scores[cell.primary]
    value = Bar(score, drawn=False)
    highest = score.mean == best.scores[best.primary].mean > 0 and cell.agent != "oracle"
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
    lacking = [
        ("closed_book", "what the model knew before reading is not measured"),
        ("full_context", "there is no reading of the whole text to compare with"),
        ("rag", "there is no retrieval to compare with"),
        ("oracle", "there is no upper bound from the evidence alone"),
    ]
    missing = [f"{name} ({why})" for name, why in lacking if name not in agents]
    if missing:
        notices.append(Paragraph(f"Not run: {'; '.join(missing)}."))
    return notices


def _detail(results: Results, task: str, tasks: int) -> Block:
    cells = [cell for cell in results.cells if cell.task == task]
    best = _best(cells)
    against = {
        (c.second if c.first == best.agent else c.first): c
        for c in results.comparisons
        if c.task == task and best.agent in (c.first, c.second)
    }
    head = ["agent", best.primary, "n", "tasks", "failed", "spread", "closed book"]
    head += [f"against {best.agent}", "p", "p (Holm)"]
    rows: list[list[Value]] = []
    for cell in cells:
        score = cell.scores[cell.primary]
        row: list[Value] = [Agent(cell.agent), Bar(score), str(score.n), str(score.n_tasks)]
        row.append(str(score.n_failed))
        row.append("" if cell.spread is None else f"\u00b1{percent(cell.spread)}")
        row.append(percent(cell.closed_book.mean) if cell.closed_book else "")
        row += _compared(cell.agent, best.agent, against.get(cell.agent))
        rows.append(row)
    spread = "Spread: standard deviation over seeds. " if any(c.spread for c in cells) else ""
    length = f"About {count(best.tokens)} tokens of text. " if best.tokens else ""
    caption = (
        f"{length}{spread}Differences in points, paired by task; Holm's correction is for all"
        " comparisons of this evaluation."
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
    difference = f"{signed(sign * pair.difference)} ({signed(low)} to {signed(high)})"
    return [difference, p_value(pair.p), p_value(pair.p_adjusted)]


def _pairs(comparisons: Sequence[Comparison], task: str) -> Table:
    rows: list[list[Value]] = [
        [
            Agent(c.first),
            Agent(c.second),
            f"{signed(c.difference)} ({signed(c.low)} to {signed(c.high)})",
            p_value(c.p),
            p_value(c.p_adjusted),
            str(c.n_tasks),
        ]
        for c in comparisons
        if c.task == task
    ]
    return Table(["first", "second", "first minus second", "p", "p (Holm)", "tasks"], rows, 2)


def _metrics(results: Results, tasks: Sequence[str]) -> list[Block]:
    names = list(dict.fromkeys(name for cell in results.cells for name in cell.scores))
    if len(names) < 2:
        return []
    blocks: list[Block] = []
    for task in tasks:
        cells = [cell for cell in results.cells if cell.task == task]
        rows: list[list[Value]] = [
            [Agent(cell.agent), *(_plain(cell.scores.get(name)) for name in names)]
            for cell in cells
        ]
        blocks.append(Folded(task, [Table(["agent", *names], rows)]))
    return blocks


def _plain(score: Score | None) -> Value:
    return Bar(score, drawn=False) if score else ""


def _axes(results: Results, tasks: Sequence[str], agents: Sequence[str]) -> list[Section]:
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


# Costs


def _costs(results: Results, tasks: Sequence[str]) -> list[Block]:
    priced = any(cell.cost.dollars is not None for cell in results.cells)
    head = ["agent", "building: read", "written", "answering: read", "written", "calls", "time"]
    head += ["memory", *(["price"] if priced else [])]
    blocks: list[Block] = [
        Paragraph("Means per episode, in tokens; memory is its size at the episode's end.")
    ]
    for task in tasks:
        rows: list[list[Value]] = []
        for cell in results.cells:
            if cell.task != task:
                continue
            cost, n = cell.cost, max(1, cell.cost.episodes)
            row: list[Value] = [Agent(cell.agent)]
            spent = (cost.build_read, cost.build_written, cost.answer_read, cost.answer_written)
            row += [count(value / n) for value in (*spent, cost.calls)]
            row += [seconds(cost.seconds / n), count(cost.memory_tokens)]
            if priced:
                row.append("" if cost.dollars is None else dollars(cost.dollars / n))
            rows.append(row)
        blocks.append(Folded(task, [Table(head, rows)]))
    return blocks


# The rest


def _judge(results: Results) -> list[Block]:
    judge = results.judge
    if judge is None:
        return []
    rows: list[list[Value]] = [
        ["wrong answers it accepted", Bar(judge.false_accept), str(judge.false_accept.n)],
        ["right answers it refused", Bar(judge.false_reject), str(judge.false_reject.n)],
    ]
    kinds: list[list[Value]] = [
        [kind.kind, "right" if kind.right else "wrong", str(kind.accepted), str(kind.n)]
        for kind in judge.kinds
    ]
    about = f"{judge.model}, temperature {judge.temperature}, prompt {judge.prompt_hash}."
    return [
        Paragraph(f"Judged by {about} Its own error, on labelled pairs:"),
        Table(["error", "rate", "n"], rows),
        Table(["kind of answer", "it is", "accepted", "of"], kinds, 2),
    ]


def _examples(examples: Sequence[Example]) -> list[Block]:
    """Show first what others got right, by task set and agent."""
    groups: dict[tuple[str, str], list[Example]] = {}
    for example in sorted(examples, key=lambda e: e.score - e.others):
        groups.setdefault((example.task, example.agent), []).append(example)
    order = list(dict.fromkeys((e.task, e.agent) for e in examples))
    return [
        Folded(
            f"{task}: {agent} ({len(groups[task, agent])})", list(map(_quote, groups[task, agent]))
        )
        for task, agent in order
    ]


def _quote(example: Example) -> Quote:
    title = f"score {percent(example.score)}, best of the others {percent(example.others)}"
    kind = f"{example.category}, " if example.category else ""
    fields = [("Question", example.question), ("Accepted", "\n".join(example.answers))]
    fields.append(("Failed", example.failure) if example.failure else ("Said", example.answer))
    if example.memory:
        fields.append(("Memory at the end", example.memory))
    return Quote(f"{kind}{title} \u00b7 {example.episode}", fields)


def _reproduction(results: Results) -> list[Block]:
    hashes: list[list[Value]] = [[task, digest] for task, digest in results.data.items()]
    settings = json.dumps(results.config, indent=1, ensure_ascii=False, default=str)
    model = json.dumps(results.model, indent=1, ensure_ascii=False, default=str)
    return [
        Code(results.command),
        Table(["task set", "hash of its data"], hashes, 2),
        Facts(list(results.versions.items())),
        Folded("The model", [Code(model)]),
        Folded("Every setting", [Code(settings)]),
    ]

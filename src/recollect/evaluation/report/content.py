"""What a report says: from results to a document. Knows nothing of Markdown or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from recollect.display.numbers import count, dollars, duration, share
from recollect.evaluation.report.curves import cost_charts, length_charts
from recollect.evaluation.report.document import (
    AgentName,
    Bar,
    Block,
    Code,
    Document,
    Facts,
    Folded,
    Prose,
    Quote,
    Section,
    Table,
    Value,
)
from recollect.evaluation.report.scores import axes, detail, metrics, overview
from recollect.evaluation.results import Example, Results
from recollect.foreign import readable_json

NAMES = ("run", "id", "folder", "url")
"""Facts of a model that can name it, the best first."""


def make_document(results: Results) -> Document:
    """Say what was found, how sure it is, what it cost, and how to find it again."""
    agents = list(dict.fromkeys(cell.agent for cell in results.cells))
    tasks = list(dict.fromkeys(cell.task for cell in results.cells))
    sections = [
        Section("Results", overview(results, tasks, agents)),
        Section("Length", length_charts(results.cells, agents)),
        Section("Cost", [*cost_charts(results.cells, agents), *_costs(results, tasks)]),
        Section("Each task set", [detail(results, task, len(tasks)) for task in tasks]),
        Section("All metrics side by side", metrics(results, tasks)),
        *axes(results, tasks, agents),
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
    names = [next((one[k] for k in NAMES if one.get(k)), "") for one in own or [model]]
    return " with ".join(dict.fromkeys(str(name) for name in names if name)) or "a model"


def counting(model: dict[str, Any]) -> str:
    """Say what is counted instead of tokens, where no tokenizer is known; else nothing."""
    own = [model[role] for role in ("memory", "answer") if isinstance(model.get(role), dict)]
    found = dict.fromkeys(str(one["tokens"]) for one in own if one.get("tokens"))
    return "; ".join(found)


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
        ("Wall time", duration(results.seconds)),
    ]
    if counting(results.model):
        facts.append(("Tokens", "estimated"))
    if all(cost.dollars is not None for cost in costs) and costs:
        facts.append(("Price", dollars(sum(cost.dollars or 0.0 for cost in costs))))
    return facts


def _costs(results: Results, tasks: Sequence[str]) -> list[Block]:
    priced = any(cell.cost.dollars is not None for cell in results.cells)
    head = ["agent", "building: read", "written", "answering: read", "written", "calls", "time"]
    head += ["memory", *(["price"] if priced else [])]
    blocks: list[Block] = [
        Prose("Means per episode, in tokens; memory is its size at the episode's end.")
    ]
    if how := counting(results.model):
        blocks.append(Prose(f"{how[0].upper()}{how[1:]}."))
    for task in tasks:
        rows: list[list[Value]] = []
        for cell in results.cells:
            if cell.task != task:
                continue
            cost, n = cell.cost, max(1, cell.cost.episodes)
            row: list[Value] = [AgentName(cell.agent)]
            spent = (cost.build_read, cost.build_written, cost.answer_read, cost.answer_written)
            row += [count(value / n) for value in (*spent, cost.calls)]
            row += [duration(cost.seconds / n), count(cost.memory_tokens)]
            if priced:
                row.append("" if cost.dollars is None else dollars(cost.dollars / n))
            rows.append(row)
        blocks.append(Folded(task, [Table(head, rows)]))
    return blocks


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
        Prose(f"Judged by {about} Its own error, on labelled pairs:"),
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
    title = f"score {share(example.score)}, best of the others {share(example.others)}"
    kind = f"{example.category}, " if example.category else ""
    fields = [("Question", example.question), ("Accepted", "\n".join(example.answers))]
    fields.append(("Failed", example.failure) if example.failure else ("Said", example.answer))
    if example.memory:
        fields.append(("Memory at the end", example.memory))
    return Quote(f"{kind}{title} \u00b7 {example.episode}", fields)


def _reproduction(results: Results) -> list[Block]:
    hashes: list[list[Value]] = [[task, digest] for task, digest in results.data.items()]
    settings = readable_json(results.config, indent=1, default=str)
    model = readable_json(results.model, indent=1, default=str)
    return [
        Code(results.command),
        Table(["task set", "hash of its data"], hashes, 2),
        Facts(list(results.versions.items())),
        Folded("The model", [Code(model)]),
        Folded("Every setting", [Code(settings)]),
    ]

"""From the stored episodes of a folder to its results. Calls no model but a judge."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from math import fsum
from pathlib import Path
from typing import Any

from recollect.config.modules import is_here
from recollect.config.sources import import_stored
from recollect.errors import UserError
from recollect.evaluation import summary
from recollect.evaluation.costs import Prices, Spending
from recollect.evaluation.folder import CONFIG, EPISODES, read_config, read_episodes
from recollect.evaluation.graders import Graders
from recollect.evaluation.judging import judge_episodes, measure_judge
from recollect.evaluation.records import Record, questions
from recollect.evaluation.results import Cell, Comparison, Estimate, Example, Results
from recollect.evaluation.scoring import (
    Scored,
    check_metrics,
    first_metric,
    metrics_of,
    score_record,
    try_stored,
)
from recollect.evaluation.texts import changed
from recollect.metrics import holm

CLOSED_BOOK = "closed_book"
EXAMPLES = 3
"""Answers of every cell that are worth a look."""
SHOWN = 600
"""Characters of them that are shown."""


@dataclass
class Pile:
    """What a pass over one cell's episodes collects."""

    answers: list[Scored] = field(default_factory=list)
    spending: Spending = field(default_factory=Spending)
    failures: list[str | None] = field(default_factory=list)
    tokens: int = 0
    chars: int = 0
    empty: int = 0
    bound: bool = False
    early: bool = False

    def add(self, record: Record, answers: Iterable[Scored]) -> None:
        """Take in one episode."""
        self.answers += answers
        self.spending.add(record)
        failure = record["failure"]
        self.failures.append(f"{failure['boundary']}: {failure['kind']}" if failure else None)
        self.tokens += record["tokens"]
        self.chars += record["chars"]
        self.bound |= bool(record.get("bound"))
        self.early |= bool(record.get("early"))
        self.empty += failure is None and not "".join(record["answers"]).strip()


async def assess(
    folder: Path,
    metrics: Sequence[str] = (),
    graders: Graders | None = None,
    prices: Prices | None = None,
) -> Results:
    """Score all episodes of a folder, and say how sure one can be of it."""
    config = read_config(folder)
    if config is None:
        raise UserError(f"{folder} holds no evaluation", "name a folder that `recollect eval` made")
    check_metrics(filter(is_here, metrics))  # before an older copy of the same file is imported
    import_stored(
        {name: entry for name, entry in config.get("code", {}).items() if name not in sys.modules},
        folder,
    )
    check_metrics(metrics)
    judged = graders is not None
    sets = {
        name: {**known, "primary": first_metric(known["primary"], judged)}
        for name, known in config["sets"].items()
    }
    names = {name: metrics_of(known, metrics, judged) for name, known in config["sets"].items()}
    check_metrics(name for own in names.values() for name in own)
    try_stored(read_episodes(folder), {name for own in names.values() for name in own})
    error = await measure_judge(graders.judge) if graders else None
    verdicts = await judge_episodes(graders, read_episodes(folder), names) if graders else None
    piles: dict[str, dict[str, Pile]] = defaultdict(lambda: defaultdict(Pile))
    hashes: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    runs: dict[float, float] = {}
    for record in read_episodes(folder):
        _check_known(folder, record, config)
        _check_text(record, hashes[record["task"]])
        scored = score_record(record, names[record["task"]], verdicts)
        piles[record["task"]][record["agent"]].add(record, scored)
        runs[record["run"]] = max(record["at"], runs.get(record["run"], 0.0))
    if not piles:
        raise UserError(f"{folder} holds no episodes yet", "run the evaluation first")
    cells, comparisons, chosen = _cells(piles, sets, list(config["agents"]), names, prices)
    return Results(
        command="\n".join(config["commands"]),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=config["model"],
        config={**config["settings"], "agents": config["agents"], "sets": config["sets"]},
        versions=config["versions"],
        data={name: _data_hash(found) for name, found in hashes.items()},
        cells=[replace(c, bound=c.bound or c.agent in config["bounds"]) for c in cells],
        comparisons=_adjusted(comparisons),
        examples=_examples(folder, chosen),
        judge=error,
        seconds=round(fsum(max(0.0, end - start) for start, end in runs.items()), 3),
    )


def _cells(
    piles: dict[str, dict[str, Pile]],
    sets: dict[str, dict[str, Any]],
    agents: list[str],
    names: dict[str, list[str]],
    prices: Prices | None,
) -> tuple[list[Cell], list[Comparison], dict[tuple[str, int], Example]]:
    cells: list[Cell] = []
    comparisons: list[Comparison] = []
    chosen: dict[tuple[str, int], Example] = {}
    for task in sorted(piles, key=list(sets).index):
        own = piles[task]
        items = summary.items(a for pile in own.values() for a in pile.answers)
        for pile in own.values():  # a copy is the same task once more, and no evidence
            pile.answers = [replace(a, item=items.get(a.text, a.item)) for a in pile.answers]
        known = sets[task]
        primary = names[task].index(known["primary"])
        order = sorted(own, key=agents.index)
        answers = {agent: summary.answerable(own[agent].answers) for agent in order}
        closed = None
        if CLOSED_BOOK in own:
            closed = summary.score(answers[CLOSED_BOOK], primary)
        for agent in order:
            cells.append(_cell(task, agent, known, own[agent], names[task], closed, prices))
            for answer, others in summary.worst(answers, agent, primary, EXAMPLES):
                id = f"{task}|{agent}|{answer.seed}|{answer.index}"
                score = answer.scores[primary]
                chosen[id, answer.question] = Example(
                    task, agent, id, "", [], "", score, others=others
                )
        comparisons += summary.compare(answers, task, primary, known["primary"])
    return cells, comparisons, chosen


def _cell(
    task: str,
    agent: str,
    known: dict[str, Any],
    pile: Pile,
    names: Sequence[str],
    closed: Estimate | None,
    prices: Prices | None,
) -> Cell:
    primary = names.index(known["primary"])
    counted = summary.answerable(pile.answers)
    seeds, spread = summary.by_seed(counted, primary)
    published = [name for name in known.get("published", ()) if name in names]
    return Cell(
        task=task,
        family=known["family"],
        agent=agent,
        primary=known["primary"],
        scores={
            # A published score counts what its benchmark counts: all questions.
            name: summary.score(pile.answers if name in published else counted, i)
            for i, name in enumerate(names)
        },
        seeds=seeds,
        spread=spread,
        closed_book=closed,
        axes=summary.by_axis(pile.answers, primary),
        cost=pile.spending.cost(prices),
        failures=_counted(kind for kind in pile.failures if kind),
        tokens=pile.tokens / len(pile.failures),
        chars=pile.chars / len(pile.failures),
        published=published,
        empty=pile.empty,
        bound=pile.bound,
        early=pile.early,
    )


def _counted(kinds: Iterable[str]) -> dict[str, int]:
    """Count, the most frequent first, and those that are as frequent by name."""
    return dict(sorted(Counter(kinds).items(), key=lambda pair: (-pair[1], pair[0])))


def _adjusted(comparisons: list[Comparison]) -> list[Comparison]:
    adjusted = holm([c.p for c in comparisons])
    return [replace(c, p_adjusted=p) for c, p in zip(comparisons, adjusted, strict=True)]


def _examples(folder: Path, chosen: dict[tuple[str, int], Example]) -> list[Example]:
    """Fill in what was asked and said, which nobody held in memory."""
    ids = {id for id, _number in chosen}
    for record in read_episodes(folder):
        if record["id"] not in ids:
            continue
        failure = record["failure"]
        for number, question in enumerate(questions(record)):
            if (record["id"], number) in chosen:
                chosen[record["id"], number] = replace(
                    chosen[record["id"], number],
                    question=question.text[-SHOWN:],
                    answers=[answer[:SHOWN] for answer in question.answers],
                    answer="" if failure else record["answers"][number][-SHOWN:],
                    category=question.category,
                    failure=_shown_failure(failure),
                    memory=_last_memory(record, number)[-SHOWN:],
                )
    return list(chosen.values())


def _last_memory(record: Record, question: int) -> str:
    """Return what was last written in the role memory before a question was asked."""
    written = ""
    for context in record["contexts"]:
        if context.get("question") == question:
            break
        if context["role"] == "memory" and context.get("turns"):
            written = context["turns"][-1][3]
    return written


def _shown_failure(failure: dict[str, str] | None) -> str:
    if failure is None:
        return ""
    return f"{failure['boundary']}: {failure['kind']}: {failure['message']}"[:SHOWN]


def _check_known(folder: Path, record: Record, config: dict[str, Any]) -> None:
    """Refuse an episode of which config.json knows nothing: it cannot be put into the table."""
    if record["task"] not in config["sets"] or record["agent"] not in config["agents"]:
        raise UserError(
            f"{folder / CONFIG} has no entry for {record['id']}, which is in {EPISODES}",
            "restore the file from a copy, or evaluate into a new folder with --out",
        )


def _check_text(record: Record, known: dict[tuple[int, int], str]) -> None:
    """Refuse to compare episodes of one task whose text differs: its data have changed."""
    place = record["seed"], record["index"]
    if known.setdefault(place, record["hash"]) != record["hash"]:
        raise changed(record["id"], "other")


def _data_hash(found: dict[tuple[int, int], str]) -> str:
    return blake2b(repr(sorted(found.items())).encode(), digest_size=16).hexdigest()

"""What is lost when a conversation is compacted: the endpoint beside truncation and summaries.

Questions of LongMemEval and LoCoMo, the same model for every way, and the same window to answer
from. docs/results/compaction.md says what came out, and how the scripted model works.

    recollect data locomo --input locomo10.json --output data/locomo
    recollect data longmemeval --input longmemeval_s.json --output data/longmemeval
    python -m benchmarks.compaction --data data --out runs/compaction --model scripted
    python -m benchmarks.compaction --data data --out runs/compaction --model models/smollm2
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import recollect
from benchmarks.compaction_ways import Budget, Evidence, Newest, Retrieval, Served, Summary
from benchmarks.copying import COMMON, Extract
from recollect.evaluation.scoring import Scored, score_record
from recollect.evaluation.summary import compare, score
from recollect.metrics.answers import normalise
from recollect.policies.scripted import ScriptedPolicy
from recollect.tasks.base import Split
from recollect.tasks.conversations.locomo_qa import LocomoQA
from recollect.tasks.conversations.longmemeval import LongMemEval
from recollect.types import Task

LONGEST = 60
"""Words of a reply that can be right."""
BYTES = 4
"""Bytes that count as one token of the scripted model, whose own tokens are bytes."""
OURS = "endpoint, question later"
"""What the others are compared with."""


def covered(reply: str, answers: tuple[str, ...]) -> float:
    """Score 1 if a short reply has at least half of the words of an accepted answer."""
    said = words(reply.replace("\\boxed", " "))
    if len(said) > LONGEST:
        return 0.0
    found = set(said)
    wanted = [set(words(answer)) - COMMON or set(words(answer)) for answer in answers]
    return float(any(len(w & found) * 2 >= len(w) for w in wanted if w))


def words(text: str) -> list[str]:
    """Return the words of a text as they are compared."""
    return normalise(text).split()


@dataclass(frozen=True)
class Spread:
    """Tasks of another family, evenly spread over it."""

    family: Any
    name: str
    n: int
    first: float = 1.0
    """The share of the family that is used, from its start."""
    metric: str = "answer_overlap"

    def size(self, split: Split) -> int:
        return min(self.n, self.family.size(split))

    def longer(self, times: int) -> Spread:
        return self

    def task(self, index: int, seed: int = 0, split: Split = "test") -> Task:
        whole = int(self.family.size(split) * self.first)
        return self.family.task(index * whole // self.size(split), seed, split)


def ways(options: argparse.Namespace, sets: int = 1) -> dict[str, Any]:
    """Return every way, with the same window to answer from."""
    scripted = options.model == "scripted"
    budget = Budget(options.window, options.memory, options.answer, BYTES if scripted else 1)
    states = options.out / "states"
    found: dict[str, Any] = {"before: full text": Newest(budget, True)} if scripted else {}
    return found | {
        "before: evidence": Evidence(budget),
        OURS: Served(budget, states / "later", False, sets),
        "endpoint, question known": Served(budget, states / "known", True, sets),
        "truncation": Newest(budget),
        "summary": Summary(budget, sets),
        "retrieval": Retrieval(budget),
    }


# Results


def scored(result: recollect.EvalResult) -> dict[str, dict[str, list[Scored]]]:
    """Score every answer; leave out questions whose right answer is to give up."""
    found: dict[str, dict[str, list[Scored]]] = defaultdict(lambda: defaultdict(list))
    metric = f"{__file__}:covered"
    for record in result.episodes:
        for one in score_record(record, [metric, "answer_overlap"]):
            if not one.unanswerable and one.agent != "closed_book":
                found[one.task][one.agent].append(one)
    return found


def shown(result: recollect.EvalResult) -> dict[tuple[str, str], float]:
    """Return how much of the evidence each way shows the model, by task set and way."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in result.episodes:
        for context in record["contexts"]:
            if "evidence" in context.get("counts", {}):
                found[record["task"], record["agent"]].append(context["counts"]["evidence"])
    return {key: sum(own) / len(own) / 1000 for key, own in found.items()}


def table(
    task: str,
    answers: dict[str, list[Scored]],
    cells: dict[str, Any],
    evidence: dict[tuple[str, str], float],
) -> Iterator[str]:
    """Write a task set's scores, what was lost, and how each way compares with the endpoint."""
    pairs = {(c.first, c.second): c for c in compare(answers, task, 0, "covered")}
    base = next(name for name in answers if name.startswith("before"))
    right = {a.key for a in answers[base] if a.scores[0]}
    yield f"\n### {task}\n"
    head = f"right | overlap | evidence | n | failed | lost of {len(right)}"
    yield f"| way | {head} | endpoint minus it, p | tokens |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, own in answers.items():
        first, second = score(own, 0), score(own, 1)
        lost = sum(a.key in right and not a.scores[0] for a in own)
        share = f"{lost / max(1, len(right)):.0%}" if name != base else ""
        spent = cells[name].cost.tokens / max(1, cells[name].cost.questions)
        yield (
            f"| {name} | {first.mean:.3f} [{first.low:.3f}, {first.high:.3f}] | {second.mean:.3f} |"
            f" {evidence.get((task, name), 0.0):.0%} | {first.n} | {first.n_failed} | {share} |"
            f" {beside(pairs, name)} | {spent:,.0f} |"
        )


def beside(pairs: dict[tuple[str, str], Any], name: str) -> str:
    """Write how much better the endpoint is than another way, question by question."""
    pair, sign = pairs.get((OURS, name)), 1
    if pair is None:
        pair, sign = pairs.get((name, OURS)), -1
    if pair is None:
        return ""
    low, high = sorted((sign * pair.low, sign * pair.high))
    difference = sign * pair.difference + 0.0  # no negative zero
    return f"{difference:+.3f} [{low:+.3f}, {high:+.3f}], {pair.p:.3f}"


def report(result: recollect.EvalResult) -> Iterator[str]:
    """Write the tables."""
    cells: dict[str, dict[str, Any]] = defaultdict(dict)
    for cell in result.results.cells:
        cells[cell.task][cell.agent] = cell
    evidence = shown(result)
    for task, own in scored(result).items():
        yield from table(task, own, cells[task], evidence)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure every way on every task set, and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="scripted", help="scripted, a folder or an address")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs/compaction"))
    parser.add_argument("--locomo", type=int, default=762, help="questions")
    parser.add_argument("--longmemeval", type=int, default=29, help="questions")
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--memory", type=int, default=1024, help="tokens of a memory or a summary")
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=8)
    options = parser.parse_args(argv)
    locomo = LocomoQA("questions", (1, 2, 3, 4), options.data / "locomo")
    families = [
        Spread(locomo, "locomo", options.locomo),
        Spread(LongMemEval("s", options.data / "longmemeval"), "longmemeval", options.longmemeval),
    ]
    families = [family for family in families if family.n]
    model: Any = options.model
    if model == "scripted":
        model = ScriptedPolicy.model(Extract(options.memory * BYTES, options.answer * BYTES))
    result = recollect.evaluate(
        tasks=families,
        agents=ways(options, len(families)),
        model=model,
        n=max(family.n for family in families),
        out=options.out / "evaluation",
        temperature=0.0,
        closed_book=False,
        concurrency=options.concurrency,
        metrics=(f"{__file__}:covered",),
        window=None if options.model == "scripted" else options.window,
    )
    settings = {k: str(v) for k, v in vars(options).items() if k not in ("data", "out")}
    text = "\n".join([json.dumps(settings), *report(result)]) + "\n"
    (options.out / "compaction.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

"""The recursive agent beside others on RULER, BABILong, chronicle and LongMemEval, one reader each.

    recollect data ruler --input BOOKS --output data/ruler          # and babilong, squad, hotpotqa
    recollect data longmemeval --input longmemeval_s.json --output data/longmemeval
    python -m benchmarks.recursive_harness --data data --out runs/harness

The reader is scripted (benchmarks/recursive_reader.py): the tables say what each way of reading can
find and what it costs, and nothing about a model. The same command continues after a stop.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import recollect
from benchmarks import compaction
from benchmarks.recursive_reader import Reader
from recollect.agents.base import Agent
from recollect.agents.named import agents
from recollect.agents.recursive import RecursiveAgent
from recollect.evaluation.results import Cost
from recollect.evaluation.scoring import Scored, score_record
from recollect.evaluation.summary import answerable, score
from recollect.policies.scripted import ScriptedPolicy
from recollect.tasks.haystacks.ruler import VARIANTS
from recollect.tasks.made.chronicle import KINDS

NAMES = ("recursive", "fold", "bank", "rag", "full_context")
BYTES = compaction.BYTES
"""The scripted model's tokens are bytes; this many count as one token."""
METRICS = (f"{compaction.__file__}:covered", "ruler_recall", "ruler_any")
GROUPS = {"vt": "aggregation", "cwe": "aggregation", "fwe": "aggregation"}
GROUPS |= {"qa_1": "documents", "qa_2": "documents"}

Cells = dict[tuple[str, str], dict[str, list[Scored]]]
"""By family or kind and length, then by agent."""


def readers(chunk: int, memory: int, answer: int) -> dict[str, Agent]:
    """Return the agents with limits in tokens."""
    known = agents(chunk * BYTES, memory * BYTES, answer * BYTES)
    chosen = {name: known[name] for name in NAMES}
    recursive = chosen["recursive"]
    assert isinstance(recursive, RecursiveAgent)
    return {**chosen, "recursive": replace(recursive, max_turn_tokens=1024 * BYTES)}


def sets(lengths: Sequence[str], families: Sequence[str]) -> list[str]:
    """Name the task sets."""
    at = ",".join(lengths)
    known = {
        "ruler": f"ruler:{','.join(VARIANTS)}@{at}",
        "babilong": f"babilong:qa1,qa2,qa3@{at}",
        "chronicle": f"chronicle:{','.join(KINDS)}@{at}",
        "longmemeval": "longmemeval",
    }
    return [known[name] for name in families]


def family_of(task: str) -> tuple[str, str]:
    """Return the family of a task set, RULER's in three parts, and its length."""
    name, _, length = task.partition("@")
    family, _, kind = name.partition(":")
    return (f"{family}, {GROUPS.get(kind, 'needles')}" if family == "ruler" else family), length


def metric_of(task: str) -> int:
    """Return the place of the metric of a task set: RULER's own, or half of an answer's words."""
    return 0 if "ruler" not in task else 2 if ":qa_" in task else 1


def tables(result: recollect.EvalResult) -> Iterator[str]:
    """Write a table by family, with intervals and costs, and one by kind, at every length."""
    families: Cells = defaultdict(lambda: defaultdict(list))
    kinds: dict[str, Cells] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for record in result.episodes:
        task, agent = record["task"], record["agent"]
        kind, _, length = task.partition("@")
        for one in answerable(list(score_record(record, METRICS))):
            own = replace(one, scores=(one.scores[metric_of(task)],))
            families[family_of(task)][agent].append(own)
            kinds[kind][kind, length][agent].append(own)
    spent: dict[tuple[str, str, str], list[Cost]] = defaultdict(list)
    for cell in result.results.cells:
        spent[(*family_of(cell.task), cell.agent)].append(cell.cost)
    yield _line("tasks, length, n", NAMES) + "\n|" + "---|" * (1 + len(NAMES))
    for (family, length), answers in families.items():
        cells = [_cell(answers[agent], spent[family, length, agent]) for agent in NAMES]
        yield _line(f"{family}, {length or 'as it is'}, {len(answers[NAMES[0]])}", cells)
    yield "\n" + _line("kind", NAMES) + "\n|" + "---|" * (1 + len(NAMES))
    for kind, lengths in kinds.items():
        shown = [
            ", ".join(f"{score(answers[agent], 0).mean:.2f}" for answers in lengths.values())
            for agent in NAMES
        ]
        yield _line(kind, shown)


def _line(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _cell(answers: Sequence[Scored], costs: Sequence[Cost]) -> str:
    """Write the score, the tokens read for a task, and its calls; name failures where there are."""
    found, episodes = score(answers, 0), sum(cost.episodes for cost in costs)
    read = sum(cost.build_read + cost.answer_read for cost in costs) / BYTES / episodes
    calls = sum(cost.calls for cost in costs) / episodes
    failed = f"; {found.n_failed} failed" if found.n_failed else ""
    scored = f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]"
    return f"{scored}; {read:,.0f}; {calls:.1f}{failed}"


def main() -> None:
    """Measure every agent on every task set, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs/harness"))
    parser.add_argument("--lengths", nargs="+", default=["16k", "128k"])
    parser.add_argument(
        "--families", nargs="+", default=["ruler", "babilong", "chronicle", "longmemeval"]
    )
    parser.add_argument("--n", type=int, default=4, help="tasks of each set")
    parser.add_argument("--window", type=int, default=32768)
    parser.add_argument("--chunk", type=int, default=5000)
    parser.add_argument("--memory", type=int, default=1024)
    parser.add_argument("--answer", type=int, default=64)
    options = parser.parse_args()
    reader = Reader(options.memory * BYTES, options.answer * BYTES)
    result = recollect.evaluate(
        tasks=sets(options.lengths, options.families),
        agents=readers(options.chunk, options.memory, options.answer),
        model=ScriptedPolicy.model(reader, options.window * BYTES),
        n=options.n,
        data=options.data,
        out=options.out,
        temperature=0.0,
        closed_book=False,
        concurrency=4,
    )
    print("\n".join(tables(result)))


if __name__ == "__main__":
    main()

"""What is lost when a conversation is compacted: a kept memory beside truncation and summaries.

Questions of LongMemEval and LoCoMo, the same model for every way, and the same number of tokens to
answer from. docs/results/compaction.md says what came out, and how the scripted model works.

    recollect data locomo --input locomo10.json --output data/locomo
    recollect data longmemeval --input longmemeval_s.json --output data/longmemeval
    python -m benchmarks.compaction --data data --out runs/compaction --model scripted
    python -m benchmarks.compaction --data data --out runs/compaction --model models/smollm2
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import recollect
from benchmarks.copying import COMMON, Extract
from recollect.agents.baselines import FullContextAgent, OracleAgent
from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.agents.rag import RagAgent
from recollect.chat.chat import Chats
from recollect.evaluation.scoring import Scored, score_record
from recollect.evaluation.summary import compare, score
from recollect.keeping.keeper import Keeper
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import Item, digest
from recollect.memory.text import TextMemory
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
COMPACT = FoldPrompts(
    memory_first=(
        "Here are the summary of a conversation so far and what was said since. The conversation is"
        " too long to be kept: it will be continued from your summary alone.\n\n"
        "<memory>\n{memory}\n</memory>\n\n<section>\n{chunk}\n</section>\n\n"
        "Summarise all of it: facts about the people, what they asked for, decided and plan, with"
        " names, numbers and dates. Reply with the summary only.\n\nSummary:"
    )
)
"""How agents compact: the prompt asks for a summary of everything, and nothing else is kept."""


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
class Kept:
    """An agent behind the keeper, as `recollect serve --agent` and `recollect mcp` have it.

    A conversation that was read is not read again for another question.
    """

    agent: FoldAgent
    folder: Path = field(repr=False)
    newest: bool = False
    """Whether it reads only the newest text, as much as fits the window."""
    sets: int = 1
    """Task sets, each of which is tried once before the evaluation."""
    locks: dict[str, asyncio.Lock] = field(default_factory=dict, repr=False, compare=False)

    def new_memory(self, task: Task) -> TextMemory:
        """Start empty; the keeper opens its own."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Read what was not read before, then answer."""
        name = digest(*task.chunks)
        # What the trials before an evaluation have read is read again, and its cost counted.
        shelf = Shelf(None if len(self.locks) < self.sets else self.folder / name)
        keeper = Counted(self.agent, chats.models, shelf, chats=chats)
        async with self.locks.setdefault(name, asyncio.Lock()):
            text = "\n\n".join(task.chunks)
            if self.newest:
                tokenizer = chats.model("memory").renderer.tokenizer
                text = tokenizer.decode(tokenizer.encode(text)[-keeper.size :])
            kept = await keeper.read([Item(text)], task.questions)
        memory.text = kept.memory.snapshot()["text"]
        return (await keeper.answer(kept, task.questions))[0]


@dataclass
class Counted(Keeper):
    """A keeper whose contexts are the episode's, so that their cost is counted."""

    chats: Chats | None = None

    def _chats(self, *key: str) -> Chats:
        assert self.chats is not None
        return self.chats


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
    """Return every way of reading, with the same tokens to answer from."""
    unit = BYTES if options.model == "scripted" else 1
    memory, answer = options.memory * unit, options.answer * unit
    chunk = options.window * unit - 2 * memory - 256 * unit
    fold = FoldAgent(chunk, memory, answer, query_aware=False)
    compact = FoldAgent(chunk, memory, answer, None, "memory_first", False, COMPACT)
    shelves = options.out / "states"
    found: dict[str, Any] = {
        "before: evidence": OracleAgent(answer),
        "kept fold": Kept(fold, shelves / "fold", sets=sets),
        "truncation": FullContextAgent("tail", memory, answer),
        "summary, rolling": Kept(compact, shelves / "summary", sets=sets),
        "summary, once": Kept(compact, shelves / "once", True, sets),
        "retrieval": RagAgent("bm25", min(256 * unit, memory), 20, memory, answer),
    }
    if options.model == "scripted":
        found["before: full text"] = FullContextAgent("error", None, answer)
        known = FoldAgent(chunk, memory, answer)
        found["kept fold, question known"] = Kept(known, shelves / "known", sets=sets)
    return found


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


def table(task: str, answers: dict[str, list[Scored]], cells: dict[str, Any]) -> Iterator[str]:
    """Write a task set's scores, what was lost, and how each way compares with the kept fold."""
    paired = {
        (c.first, c.second): c for c in compare(answers, task, 0, "covered") if "kept fold" in
        (c.first, c.second)
    }  # fmt: skip
    base = [name for name in answers if name.startswith("before")][-1]
    right = {a.key for a in answers[base] if a.scores[0]}
    yield f"\n### {task}\n"
    lost_of = f"lost of {len(right)}"
    yield f"| way | right | overlap | n | failed | {lost_of} | fold minus it, p | tokens |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, own in answers.items():
        first, second = score(own, 0), score(own, 1)
        lost = sum(a.key in right and not a.scores[0] for a in own)
        pair = paired.get(("kept fold", name)) or paired.get((name, "kept fold"))
        sign = 1 if pair and pair.first == "kept fold" else -1
        ends = sorted((sign * pair.low, sign * pair.high)) if pair else []
        beside = ""
        if pair:
            beside = f"{sign * pair.difference:+.3f} [{ends[0]:+.3f}, {ends[1]:+.3f}], {pair.p:.3f}"
        share = f"{lost / max(1, len(right)):.0%}" if name != base else "its own"
        spent = cells[name].cost.tokens / max(1, cells[name].cost.questions)
        yield (
            f"| {name} | {first.mean:.3f} [{first.low:.3f}, {first.high:.3f}] | {second.mean:.3f} |"
            f" {first.n} | {first.n_failed} | {share} | {beside} | {spent:,.0f} |"
        )


def main() -> None:
    """Measure every way on every task set, and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="scripted", help="scripted, a folder or an address")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("runs/compaction"))
    parser.add_argument("--locomo", type=int, default=762, help="questions")
    parser.add_argument("--conversations", type=int, default=5, help="of LoCoMo")
    parser.add_argument("--longmemeval", type=int, default=29, help="questions")
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--memory", type=int, default=1024, help="tokens to answer from")
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=8)
    options = parser.parse_args()
    locomo = LocomoQA("questions", (1, 2, 3, 4), options.data / "locomo")
    families = [
        Spread(locomo, "locomo", options.locomo, options.conversations / 5),
        Spread(LongMemEval("s", options.data / "longmemeval"), "longmemeval", options.longmemeval),
    ]
    model: Any = options.model
    if model == "scripted":
        model = ScriptedPolicy.model(Extract(options.memory * BYTES, options.answer * BYTES))
    result = recollect.evaluate(
        tasks=[family for family in families if family.n],
        agents=ways(options, sum(bool(family.n) for family in families)),
        model=model,
        n=max(family.n for family in families),
        out=options.out / "evaluation",
        temperature=0.0,
        closed_book=False,
        concurrency=options.concurrency,
        metrics=(f"{__file__}:covered",),
        window=None if options.model == "scripted" else options.window,
    )
    cells = defaultdict(dict)
    for cell in result.results.cells:
        cells[cell.task][cell.agent] = cell
    lines = [line for task, own in scored(result).items() for line in table(task, own, cells[task])]
    settings = {k: str(v) for k, v in vars(options).items() if k not in ("data", "out")}
    text = "\n".join([json.dumps(settings), *lines]) + "\n"
    (options.out / "compaction.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

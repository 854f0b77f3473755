"""The plan of benchmarks/chronicle.py: what is trained and measured, and every number of it."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

KNOWN = ("overwrite", "count", "two-hop")
AGENTS = ("gated", "rag", "rag_window", "full_context", "rag_hybrid", "fold")
BABILONG = ("qa1", "qa2", "qa3")
BASELINE_WARM_UP = "warm-baselines"
"""The warm-up of those that answer in one turn: the same, and then many lessons of that alone."""
SENTENCES: dict[str, Any] = {"chunk_size": None, "sentences": True, "neighbours": 1}
"""RAG that finds single sentences, with which a perfect reader answers most."""
WIDE: dict[str, Any] = {**SENTENCES, "top_k": 8192, "max_context_tokens": 7000}
"""The same, filling the window."""
AS_TRAINED: dict[str, dict[str, Any]] = {
    "gated": {"chunk_size": None, "exit_gate": False, "lines": True},
    "rag": SENTENCES,
    "rag_hybrid": SENTENCES,
    "rag_window": WIDE,
}
"""Settings that an evaluation without a run has to be given."""
EVALUATED_AS = {"rag_window": "rag"}
"""What `recollect eval` calls an agent, if not by the plan's name."""
PARTS = ("perfect", "trained", "babilong", "warmed", "bounds", "before")
"""What is done after the warm-up: a reader without mistakes, beside the rest; agents trained and
measured; BABILong; the same agents before training; the oracle and the closed book; and the weights
as they come."""


@dataclass(frozen=True)
class Trained:
    """An agent that is trained: what it is asked, and its settings for `recollect train`."""

    asked: str
    """As `recollect eval` names it, without a length."""
    tasks: tuple[str, ...]
    agent: tuple[str, ...]
    start: str = "warm"
    """The warm-up that it begins with."""
    places: int = 1
    """On the GPU, while it is trained: its cache is as many times as large."""
    seeds: int = 3


def trained_agents(o: argparse.Namespace) -> dict[str, Trained]:
    """Return every agent of the plan.

    All see as many tokens at a time, but for those with a whole window: full_context the text's
    two ends, rag_window all the sentences that fit.
    """
    memory = ("--agent.max-memory-tokens", str(o.memory))
    answer = ("--agent.max-answer-tokens", str(o.answer))
    room = str(256 + o.memory)  # a page and a memory: for the passages, and for words beforehand
    spoken = ("--agent.max-answer-tokens", room)
    rag = ("--agent", "rag", "--agent.order", "text", *flags(SENTENCES),
           "--agent.max-context-tokens", room, *spoken)  # fmt: skip

    def asked(kinds: tuple[str, ...], *agent: str, **more: Any) -> Trained:
        tasks = ("--tasks.kinds", *kinds, "--tasks.tokens", str(o.tokens))
        return Trained(f"chronicle:{','.join(kinds)}", tasks, agent, **more)

    seeds = dict(itertools.zip_longest(o.agents, o.seeds[: len(o.agents)], fillvalue=o.seeds[-1]))

    known = {
        "gated": asked(
            KNOWN, "--agent", "gated", "--agent.no-exit-gate", "--agent.lines", *memory, *answer
        ),
        "rag": asked(KNOWN, *rag, start=BASELINE_WARM_UP),
        "rag_window": asked(KNOWN, *rag, *flags(WIDE), start=BASELINE_WARM_UP, places=2),
        "full_context": asked(
            KNOWN, "--agent", "full_context", *spoken, start=BASELINE_WARM_UP, places=2
        ),
        "rag_hybrid": asked(KNOWN, *rag, "--agent.mode", "hybrid", start=BASELINE_WARM_UP),
        "fold": asked(KNOWN, *memory, *answer),
    }
    return {name: replace(known[name], seeds=seeds[name]) for name in o.agents}


def flags(settings: dict[str, Any]) -> Iterator[str]:
    """Yield an agent's settings as `recollect train` takes them."""
    for name, value in settings.items():
        yield f"--agent.{name.replace('_', '-')}"
        if value is not True:
            yield str(value)


def parts(o: argparse.Namespace, asked: str, memory: bool) -> Iterator[tuple[str, str, int]]:
    """Yield the evaluations of an agent, the longest first: a name, the tasks, how many of each.

    The short lengths share a program, as its start takes longer than they do. Of the order of the
    pages only a memory can tell.
    """
    if o.longest:
        yield "longest", f"{asked}@{o.longest}", o.longest_tasks
    for times in sorted((own for own in o.lengths if own > 8), reverse=True):
        yield f"{times}x", f"{asked}@{times * o.tokens}", o.far
    if near := ",".join(str(times * o.tokens) for times in o.lengths if times <= 8):
        yield "near", f"{asked}@{near}", o.n
    if o.control and memory and asked.startswith("chronicle"):
        yield "shuffled", f"{asked}@{2 * o.tokens}#shuffled", o.n


def turns(trained: dict[str, Trained]) -> list[list[str]]:
    """Return the agents that are trained side by side, in order.

    An update of one program holds up every single token of another, so that memories, which say
    much, are trained one by one; baselines say one thing in an episode.
    """
    memories = [[name] for name in trained if trained[name].start != BASELINE_WARM_UP]
    baselines = [name for name in trained if trained[name].start == BASELINE_WARM_UP]
    return [*memories, baselines] if baselines else memories


def seeded(trained: dict[str, Trained]) -> Iterator[tuple[str, int]]:
    """Yield every run: an agent and a seed."""
    for name, agent in trained.items():
        yield from ((name, seed) for seed in range(agent.seeds))


def parse(description: str | None) -> argparse.Namespace:
    """Read the command line; the defaults are the plan."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="holds babilong/, to measure it too")
    parser.add_argument("--minutes", type=float, help="stop after this time, and pack")
    parser.add_argument("--agents", nargs="+", default=AGENTS[:5], choices=AGENTS)
    parser.add_argument("--not-trained", nargs="*", default=(), choices=AGENTS,
                        help="of these: only measured before reward")  # fmt: skip
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="of the plan")
    numbers = {
        "steps": 25, "tasks": 64, "group": 8, "tokens": 4096, "n": 86, "far": 43,
        "longest": 1_000_000, "longest-tasks": 2, "warm-up": 1536, "rank": 0, "memory": 416,
        "updates": 1, "answer": 384, "val": 96, "curriculum-steps": 10, "concurrency": 512,
        "at-once": 9, "drafts": 9,
    }  # fmt: skip
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lengths", type=int, nargs="+", default=(1, 8, 16, 32))
    parser.add_argument("--curriculum", type=int, nargs="+", default=(1, 2, 4))
    parser.add_argument("--seeds", type=int, nargs="+", default=(3,),
                        help="of each agent in turn; the last number is for the rest")  # fmt: skip
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--negative-weight", type=float, default=1.0)
    parser.add_argument("--warm-lr", type=float, default=4e-4)
    parser.add_argument("--cache-gib", type=float, default=4.0)
    parser.add_argument("--no-control", dest="control", action="store_false")
    options, options.more = parser.parse_known_args()
    if not options.data and "babilong" in options.parts:
        print("BABILong is left out: name the folder that holds babilong/ with --data")
        options.parts = [part for part in options.parts if part != "babilong"]
    return options

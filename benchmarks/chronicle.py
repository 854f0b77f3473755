"""Does a memory learned by reward beat retrieval and a cut-off window, far beyond its training?

Everything that docs/results/chronicle.md plans, in one command that continues where it was stopped:
a warm-up, a training run for every agent and seed (seeds side by side on one GPU), evaluations from
1x to 1,000,000 tokens, a control, and the tables.

    python scripts/convert_smollm2.py --out models/smollm2
    python -m benchmarks.chronicle --model models/smollm2 --out runs/chronicle --minutes 20

With --minutes it stops in time and packs what it needs to continue into OUT/carry, in files of at
most 15 MB. On another machine, put these into OUT/carry and run the same command.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import chronicle_page, chronicle_table
from benchmarks.chronicle_carry import pack, unpack
from benchmarks.squad import RECOLLECT, run, shared_gpu

WARM_UP = (sys.executable, "-m", "benchmarks.chronicle_warm_up")
TABLE = (sys.executable, "-m", "benchmarks.chronicle_table")
KNOWN = ("overwrite", "count", "two-hop")
AGENTS = ("gated", "rag", "full_context", "rag_hybrid", "fold")
BABILONG = ("qa1", "qa2", "qa3")
AT_ONCE = "warm-baselines"
"""The warm-up of those that answer in one turn: the same, and then many lessons of that alone."""
AS_TRAINED = (
    "gated.chunk_size=none", "gated.exit_gate=false", "gated.lines=true", "rag.chunk_size=32",
)  # fmt: skip
"""Settings that an evaluation without a run has to be given."""
PARTS = ("trained", "babilong", "warmed", "bounds", "before")
"""What is done after the warm-up: agents trained and measured; BABILong; the same agents before
training; the oracle and the closed book; and the weights as they come."""


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
    """Return every agent of the plan; all see as many tokens at a time."""
    memory = ("--agent.max-memory-tokens", str(o.memory))
    answer = ("--agent.max-answer-tokens", str(o.answer))
    room = str(256 + o.memory)  # a page and a memory: for the passages, and for words beforehand
    spoken = ("--agent.max-answer-tokens", room)
    rag = ("--agent", "rag", "--agent.order", "text", "--agent.chunk-size", "32",
           "--agent.max-context-tokens", room, *spoken)  # fmt: skip

    def asked(kinds: tuple[str, ...], *agent: str, **more: Any) -> Trained:
        tasks = ("--tasks.kinds", *kinds, "--tasks.tokens", str(o.tokens))
        return Trained(f"chronicle:{','.join(kinds)}", tasks, agent, **more)

    seeds = dict(itertools.zip_longest(o.agents, o.seeds[: len(o.agents)], fillvalue=o.seeds[-1]))

    known = {
        "gated": asked(
            KNOWN, "--agent", "gated", "--agent.no-exit-gate", "--agent.lines", *memory, *answer
        ),
        "rag": asked(KNOWN, *rag, start=AT_ONCE),
        "full_context": asked(KNOWN, "--agent", "full_context", *spoken, start=AT_ONCE, places=2),
        "rag_hybrid": asked(KNOWN, *rag, "--agent.mode", "hybrid", start=AT_ONCE),
        "fold": asked(KNOWN, *memory, *answer),
    }
    return {name: replace(known[name], seeds=seeds[name]) for name in o.agents}


def parts(o: argparse.Namespace, asked: str) -> Iterator[tuple[str, str, int]]:
    """Yield the evaluations of an agent, the longest first: a name, the tasks, how many of each."""
    if o.longest:
        yield "longest", f"{asked}@{o.longest}", o.longest_tasks
    for times in sorted(o.lengths, reverse=True):
        yield f"{times}x", f"{asked}@{times * o.tokens}", o.n if times <= 8 else o.far
    if o.control and asked.startswith("chronicle"):
        yield "shuffled", f"{asked}@{2 * o.tokens}#shuffled", o.n


async def in_turn(o: argparse.Namespace, log: Path, *command: object, places: int = 1) -> None:
    """Run one command when places on the GPU are free: a program takes about 13 GiB of it."""
    async with contextlib.AsyncExitStack() as taken:
        for _ in range(places):
            await taken.enter_async_context(o.places)
        await run(log, *command)


async def measure(o: argparse.Namespace, folder: Path, asked: str, *arguments: object) -> None:
    """Evaluate at every length and the control, side by side, each part whole or not at all."""

    async def part(name: str, sets: str, n: int) -> None:
        out = folder / name
        if (out / "scores.jsonl").exists():
            return
        await in_turn(
            o, folder / f"{name}.log", *RECOLLECT, "eval", "--tasks", sets, "--data",
            o.data or "data", "--n", n, "--temperature", 0, "--top-p", 1, "--max-answer-tokens",
            256 + o.memory, "--metrics", "boxed_exact_match", "--concurrency", o.concurrency,
            "--cache-gib", o.cache_gib, "--drafts", o.drafts, "--out", out, "--retry-failed",
            *arguments,
        )  # fmt: skip
        await run(folder / f"{name}-scores.log", *TABLE, out, o.tokens)

    async with asyncio.TaskGroup() as group:
        for own in parts(o, asked):
            group.create_task(part(*own))


async def train(o: argparse.Namespace, name: str, agent: Trained, seed: int) -> None:
    """Train one agent with one seed."""
    folder = o.out / f"{name}-{seed}"
    if (folder / "done").exists():
        return
    await in_turn(
        o, folder / "train.log", *RECOLLECT, "train", "chronicle", *agent.tasks, *agent.agent,
        "--model.path", o.out / agent.start, "--model.lora.rank", o.rank, "--seed", seed,
        "--model.drafts", o.drafts, "--steps", o.steps, "--optim.lr", o.lr, "--rollout.tasks",
        o.tasks, "--rollout.n", o.group, "--updates-per-step", o.updates, "--optim.warmup-steps", 8,
        "--negative-weight", o.negative_weight,
        "--rollout.curriculum", *o.curriculum, "--rollout.curriculum-steps", o.curriculum_steps,
        "--val.tasks", o.val, "--val.lengths", 1, "--val.length-tasks", 1, "--test-freq", 10,
        "--save-freq", 5, "--keep", 1, "--model.cache-gib", agent.places * o.cache_gib,
        "--folder", folder, "--token-budget", 1 << 15, *o.more, places=agent.places,
    )  # fmt: skip


async def measure_run(o: argparse.Namespace, name: str, agent: Trained, seed: int) -> None:
    """Measure a trained agent on tasks of its seed, and drop its weights."""
    folder = o.out / f"{name}-{seed}"
    if (folder / "done").exists():
        return
    own = ("--agents", folder / "chronicle", "--no-closed-book", "--first-seed", seed)
    await measure(o, folder, agent.asked, *own)
    for heavy in ("model", "checkpoints"):
        shutil.rmtree(folder / "chronicle" / heavy, ignore_errors=True)
    (folder / "done").touch()


async def untrained(
    o: argparse.Namespace,
    name: str,
    model: Path,
    asked: str,
    *agents: str,
    seed: int = 0,
    closed_book: bool = True,
) -> None:
    """Measure weights that no reward has changed: as they come, or after a warm-up."""
    limits = ("--chunk-size", 256 + o.memory, "--max-memory-tokens", o.memory)
    sets = [own for own in AS_TRAINED if own.partition(".")[0] in agents]
    same = ("--set", *sets) if sets else ()
    book = ("--closed-book",) if closed_book else ("--no-closed-book",)
    agent = ("--agents", *agents, "--model", model, *limits, "--first-seed", seed, *book, *same)
    await measure(o, o.out / f"{name}-{seed}", asked, *agent)


async def warm_up(o: argparse.Namespace, name: str, model: Path, *arguments: object) -> None:
    """Teach the form of a memory, unless that was done."""
    if not (o.out / name / "config.json").exists():
        await run(
            o.out / f"{name}.log", *WARM_UP, "--model", model, "--out", o.out / name, "--memory",
            o.memory, "--answer", o.answer, *arguments,
        )  # fmt: skip


async def warm_ups(o: argparse.Namespace) -> None:
    """Teach the forms that are used: of chronicles, and from there of baselines and BABILong."""
    await warm_up(o, "warm", o.model, "--tasks", o.warm_up, "--lr", o.warm_lr)
    starts = {agent.start for agent in trained_agents(o).values()}
    if AT_ONCE in starts or "bounds" in o.parts:
        agents = ("--agents", "rag", "full_context", "--shares", 1, 0.25)
        tasks = ("--tasks", 8 * o.warm_up // 3, "--lr", o.warm_lr / 2)
        await warm_up(o, AT_ONCE, o.out / "warm", *agents, *tasks)
    if "babilong" in o.parts:
        agents = ("--agents", *(f"babilong_{kind}" for kind in BABILONG), "--shares", 1, 1, 1)
        tasks = ("--tasks", 3 * o.warm_up // 16, "--lr", o.warm_lr / 2, "--data", o.data)
        await warm_up(o, "warm-babilong", o.out / "warm", *agents, *tasks)


async def babilong(o: argparse.Namespace) -> None:
    """Measure BABILong, with as many tasks as all seeds of an agent have, and more far away."""
    sizes = {"n": 3 * o.n, "far": 2 * o.far, "longest_tasks": 6 * o.longest_tasks}
    books = argparse.Namespace(**vars(o) | sizes | {"lengths": (1, 32)})
    asked = f"babilong:{','.join(BABILONG)}"
    await untrained(books, "babilong", o.out / "warm-babilong", asked, "gated")


async def everything(o: argparse.Namespace) -> None:
    """Do all that is missing: the warm-ups, then every agent and seed, side by side on the GPU."""
    await warm_ups(o)
    o.places = asyncio.Semaphore(o.at_once)
    trained = trained_agents(o)
    async with asyncio.TaskGroup() as measured:
        if "trained" in o.parts:
            await train_all(o, trained, measured)
        if "babilong" in o.parts:
            measured.create_task(babilong(o))
            await asyncio.sleep(0)
        asked = f"chronicle:{','.join(KNOWN)}"
        if "warmed" in o.parts:  # with what every seed of a trained agent is asked
            for name, seed in seeded(trained):
                folder = f"{name}{chronicle_table.WARMED_FOLDER}"
                known = argparse.Namespace(**vars(o) | {"longest": 0})
                start = o.out / trained[name].start
                own = untrained(known, folder, start, asked, name, seed=seed, closed_book=False)
                measured.create_task(own)
                await asyncio.sleep(0)
        # What comes out of weights that know no form is long, and worth little beyond 1x.
        near = argparse.Namespace(**vars(o) | {"lengths": (1,), "longest": 0, "control": False})
        if "bounds" in o.parts:
            measured.create_task(untrained(near, "bounds", o.out / AT_ONCE, asked, "oracle"))
        if "before" in o.parts:
            measured.create_task(untrained(near, "before", o.model, asked, *trained))


def seeded(trained: dict[str, Trained]) -> Iterator[tuple[str, int]]:
    """Yield every run: an agent and a seed."""
    for name, agent in trained.items():
        yield from ((name, seed) for seed in range(agent.seeds))


async def train_all(
    o: argparse.Namespace, trained: dict[str, Trained], measured: asyncio.TaskGroup
) -> None:
    """Train one agent after the other, all seeds side by side, and measure those before beside it.

    Updates of one program hold up every single token of another, so that agents take turns.
    """
    before: list[tuple[argparse.Namespace, str, Trained, int]] = []
    for name in (*trained, ""):
        runs = [(o, own, trained[own], seed) for own, seed in seeded(trained) if own == name]
        async with asyncio.TaskGroup() as group:
            for own in runs:
                group.create_task(train(*own))
            await asyncio.sleep(0)
            for own in before:
                measured.create_task(measure_run(*own))
        before = runs


async def show(o: argparse.Namespace) -> None:
    """Say every 20 seconds how far the training runs are."""
    while True:
        await asyncio.sleep(20)
        said = []
        for path in sorted(o.out.glob("*/chronicle/metrics.jsonl")):
            rows = [json.loads(line) for line in path.read_text().splitlines() if line]
            steps = [row for row in rows if "reward/mean" in row]
            if steps and not (path.parents[1] / "done").exists():
                last = steps[-1]
                said.append(f"{path.parts[-3]} {last['step']}: {last['reward/mean']:.2f}")
        print("; ".join(said) or "no step yet", flush=True)


async def in_time(o: argparse.Namespace) -> bool:
    """Work until all is done or the time is up; tell whether all is done."""
    try:
        async with asyncio.timeout(60 * o.minutes if o.minutes else None):
            shown = asyncio.create_task(show(o))
            try:
                await everything(o)
            finally:
                shown.cancel()
    except TimeoutError:
        return False
    return True


def said(failed: BaseExceptionGroup[BaseException]) -> Iterator[str]:
    """Yield what went wrong, also in tasks that others had started."""
    for error in failed.exceptions:
        yield from said(error) if isinstance(error, BaseExceptionGroup) else (str(error),)


def parse(description: str | None = __doc__) -> argparse.Namespace:
    """Read the command line; the defaults are the plan."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="holds babilong/, to measure it too")
    parser.add_argument("--minutes", type=float, help="stop after this time, and pack")
    parser.add_argument("--agents", nargs="+", default=AGENTS[:3], choices=AGENTS)
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
    options, more = parser.parse_known_args()
    options.more = more
    if not options.data:
        options.parts = [part for part in options.parts if part != "babilong"]
    return options


def main() -> None:
    """Run what is missing, pack, and print what is known."""
    o = parse()
    o.out.mkdir(parents=True, exist_ok=True)
    unpack(o.out)
    done = False
    try:
        with shared_gpu(o.out), contextlib.suppress(KeyboardInterrupt):
            done = asyncio.run(in_time(o))
    except* RuntimeError as failed:
        print("\n".join(said(failed)))
    finally:
        parts = pack(o.out, o.rank > 0)
        size = sum(part.stat().st_size for part in parts)
        print(f"{len(parts)} files, {size / 1e6:.1f} MB, in {o.out / 'carry'}")
        print(chronicle_table.markdown(o.out))
        print(chronicle_page.short(o.out), chronicle_page.losses(o.out), sep="\n\n")
        print(f"with curves and films: {chronicle_page.write(o.out, o.out / 'page')}")
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()

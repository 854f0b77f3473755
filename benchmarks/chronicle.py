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
import json
import shutil
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path

from benchmarks import chronicle_page, chronicle_table
from benchmarks.chronicle_carry import pack, unpack
from benchmarks.chronicle_plan import (
    AS_TRAINED,
    BABILONG,
    BASELINE_WARM_UP,
    EVALUATED_AS,
    KNOWN,
    Trained,
    parse,
    parts,
    seeded,
    trained_agents,
    turns,
)
from benchmarks.squad import RECOLLECT, run, shared_gpu

WARM_UP = (sys.executable, "-m", "benchmarks.chronicle_warm_up")
PERFECT = (sys.executable, "-m", "benchmarks.chronicle_perfect")
TABLE = (sys.executable, "-m", "benchmarks.chronicle_table")
Run = tuple[str, int]
"""An agent and a seed."""


async def apart(o: argparse.Namespace, work: Coroutine[None, None, None]) -> bool:
    """Do a part of the plan; if it fails, say so, and leave the others alone."""
    worked = True
    try:
        await work
    except* (RuntimeError, OSError) as failed:
        worked, o.failed = False, True
        print("\n".join(said(failed)), flush=True)
    return worked


async def measure(
    o: argparse.Namespace, folder: Path, asked: str, memory: bool, *arguments: object
) -> None:
    """Evaluate at every length and the control, side by side, each part whole or not at all."""

    async def part(name: str, sets: str, n: int) -> None:
        out = folder / name
        if (out / "scores.jsonl").exists():
            return
        async with o.places:
            await run(
                folder / f"{name}.log", *RECOLLECT, "eval", "--tasks", sets, "--data",
                o.data or "data", "--n", n, "--temperature", 0, "--top-p", 1,
                "--max-answer-tokens", 256 + o.memory, "--metrics", "boxed_exact_match",
                "--concurrency", o.concurrency, "--cache-gib", o.cache_gib, "--drafts", o.drafts,
                "--out", out, "--retry-failed", *arguments,
            )  # fmt: skip
        await run(folder / f"{name}-scores.log", *TABLE, out, o.tokens)

    ended = await asyncio.gather(
        *(part(*own) for own in parts(o, asked, memory)), return_exceptions=True
    )
    if failed := [error for error in ended if isinstance(error, Exception)]:
        raise ExceptionGroup("some parts failed", failed)


async def train(o: argparse.Namespace, name: str, agent: Trained, seed: int) -> None:
    """Train one agent with one seed."""
    folder = o.out / f"{name}-{seed}"
    if (folder / "done").exists():
        return
    places = min(agent.places, o.kept)
    async with contextlib.AsyncExitStack() as taken:
        async with o.turn:  # two that have one place each would wait for ever
            for _ in range(places):
                await taken.enter_async_context(o.training)
        await run(
            folder / "train.log", *RECOLLECT, "train", "chronicle", *agent.tasks, *agent.agent,
            "--model.path", o.out / agent.start, "--model.lora.rank", o.rank, "--seed", seed,
            "--model.drafts", o.drafts, "--steps", o.steps, "--optim.lr", o.lr, "--rollout.tasks",
            o.tasks, "--rollout.n", o.group, "--updates-per-step", o.updates,
            "--optim.warmup-steps", 8, "--negative-weight", o.negative_weight,
            "--rollout.curriculum", *o.curriculum, "--rollout.curriculum-steps", o.curriculum_steps,
            "--val.tasks", o.val, "--val.lengths", 1, "--val.length-tasks", 1, "--test-freq", 10,
            "--save-freq", 5, "--keep", 1, "--model.cache-gib", places * o.cache_gib,
            "--folder", folder, "--token-budget", 1 << 15, *o.more,
        )  # fmt: skip


async def measure_run(o: argparse.Namespace, name: str, agent: Trained, seed: int) -> None:
    """Measure a trained agent on tasks of its seed, and drop its weights."""
    folder = o.out / f"{name}-{seed}"
    if (folder / "done").exists():
        return
    own = ("--agents", folder / "chronicle", "--no-closed-book", "--first-seed", seed)
    await measure(o, folder, agent.asked, name in chronicle_table.MEMORIES, *own)
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
    named = {own: EVALUATED_AS.get(own, own) for own in agents}
    sets = [f"{named[own]}.{field}={value}".lower()
            for own in agents for field, value in AS_TRAINED.get(own, {}).items()]  # fmt: skip
    sets += [f"{own}.max_answer_tokens={o.answer}"
             for own in agents if own in chronicle_table.MEMORIES]  # fmt: skip
    same = ("--set", *sets) if sets else ()
    book = ("--closed-book",) if closed_book else ("--no-closed-book",)
    chosen = ("--agents", *named.values(), "--model", model, "--first-seed", seed)
    agent = (*chosen, *limits, *book, *same)
    memory = any(own in chronicle_table.MEMORIES for own in agents)
    await measure(o, o.out / f"{name}-{seed}", asked, memory, *agent)


async def warmed(o: argparse.Namespace, name: str, agent: Trained, seed: int) -> None:
    """Measure an agent before reward, with what that seed of it is asked after."""
    folder = f"{name}{chronicle_table.WARMED_FOLDER}"
    known = argparse.Namespace(**vars(o) | {"longest": 0})
    start = o.out / agent.start
    await untrained(known, folder, start, agent.asked, name, seed=seed, closed_book=False)


async def warm_up(o: argparse.Namespace, name: str, model: Path, *arguments: object) -> None:
    """Teach the form of a memory, unless that was done."""
    if not (o.out / name / "config.json").exists():
        await run(
            o.out / f"{name}.log", *WARM_UP, "--model", model, "--out", o.out / name, "--memory",
            o.memory, "--answer", o.answer, *arguments,
        )  # fmt: skip


async def other_warm_ups(o: argparse.Namespace) -> None:
    """Teach the forms of baselines and of BABILong, each from the warm-up for chronicles."""
    starts = {agent.start for agent in trained_agents(o).values()}
    if BASELINE_WARM_UP in starts or "bounds" in o.parts:
        agents = ("--agents", "rag", "full_context", "rag_window", "--shares", 1, 0.25, 0.125)
        tasks = ("--tasks", 8 * o.warm_up // 3, "--lr", o.warm_lr / 2)
        await warm_up(o, BASELINE_WARM_UP, o.out / "warm", *agents, *tasks)
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


async def perfect(o: argparse.Namespace, seed: int) -> None:
    """Measure what a reader without mistakes could answer; needs no place on the GPU."""
    sizes = ("--tokens", o.tokens, "--memory", o.memory, "--n", o.n, "--far", o.far)
    lengths = ("--lengths", *o.lengths, "--seeds", seed)
    log = o.out / f"perfect-{seed}" / "perfect.log"
    await run(log, *PERFECT, "--model", o.model, "--out", o.out, *lengths, *sizes)


def divide(o: argparse.Namespace, wanted: int) -> None:
    """Divide the GPU, of which a program takes about 13 GiB, into places.

    Those kept for training never wait for programs that measure, unless there is but one. They are
    as many as wanted, but a third is left for measuring.
    """
    o.kept = min(wanted, max(1, 2 * o.at_once // 3))
    o.turn, o.training = asyncio.Lock(), asyncio.Semaphore(o.kept)
    left = o.at_once - o.kept
    o.places = asyncio.Semaphore(left) if left > 0 else o.training


async def everything(o: argparse.Namespace) -> None:
    """Do all that is missing: the warm-ups, then every agent and seed, side by side on the GPU."""
    known = trained_agents(o)
    trained = {name: agent for name, agent in known.items() if name not in o.not_trained}
    most = max((sum(trained[n].seeds * trained[n].places for n in own) for own in turns(trained)),
               default=0)  # fmt: skip
    divide(o, most if "trained" in o.parts else 0)
    seeds = max(agent.seeds for agent in known.values()) if "perfect" in o.parts else 0
    # Outside of the group: what fails without a GPU does not stop what needs one.
    readers = [asyncio.create_task(perfect(o, seed)) for seed in range(seeds)]
    await warm_up(o, "warm", o.model, "--tasks", o.warm_up, "--lr", o.warm_lr)
    first, last = before_reward(known)
    async with asyncio.TaskGroup() as measured:
        for own in first if "warmed" in o.parts else ():
            measured.create_task(apart(o, warmed(o, own[0], known[own[0]], own[1])))
        async with o.training if o.kept else o.places:
            await other_warm_ups(o)
        if "babilong" in o.parts:
            measured.create_task(apart(o, babilong(o)))
            await asyncio.sleep(0)
        if "trained" in o.parts:
            await train_all(o, trained, measured)
            for _ in range(o.kept if o.places is not o.training else 0):
                o.places.release()
        asked = f"chronicle:{','.join(KNOWN)}"
        # What comes out of weights that know no form is long, and worth little beyond 1x.
        near = argparse.Namespace(**vars(o) | {"lengths": (1,), "longest": 0, "control": False})
        if "bounds" in o.parts:
            taught = o.out / BASELINE_WARM_UP
            measured.create_task(apart(o, untrained(near, "bounds", taught, asked, "oracle")))
        if "before" in o.parts:
            plain = [name for name in known if name not in EVALUATED_AS]
            measured.create_task(apart(o, untrained(near, "before", o.model, asked, *plain)))
        for own in last if "warmed" in o.parts else ():
            measured.create_task(apart(o, warmed(o, own[0], known[own[0]], own[1])))
    await asyncio.gather(*readers)


def before_reward(known: dict[str, Trained]) -> tuple[list[Run], list[Run]]:
    """Return the agents and seeds to measure before reward: memories, then baselines."""
    runs = list(seeded(known))
    return ([own for own in runs if own[0] in chronicle_table.MEMORIES],
            [own for own in runs if own[0] not in chronicle_table.MEMORIES])  # fmt: skip


async def train_all(
    o: argparse.Namespace, trained: dict[str, Trained], measured: asyncio.TaskGroup
) -> None:
    """Train turn after turn, all seeds side by side, and measure each beside what is trained next.

    The first seed of every agent of a turn begins before the second of any.
    """
    for turn in turns(trained):
        own = [run for run in seeded(trained) if run[0] in turn]
        own.sort(key=lambda run: run[1])

        async def both(name: str, seed: int) -> None:
            if await apart(o, train(o, name, trained[name], seed)):
                measured.create_task(apart(o, measure_run(o, name, trained[name], seed)))

        await asyncio.gather(*(both(*run) for run in own))
        await asyncio.sleep(0)


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


def main() -> None:
    """Run what is missing, pack, and print what is known."""
    o = parse(__doc__)
    o.out.mkdir(parents=True, exist_ok=True)
    unpack(o.out)
    done, o.failed = False, False
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
    sys.exit(0 if done and not o.failed else 1)


if __name__ == "__main__":
    main()

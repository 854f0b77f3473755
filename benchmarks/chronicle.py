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
import io
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import chronicle_table
from benchmarks.squad import RECOLLECT, run, shared_gpu

TEACHER = Path(__file__).with_name("chronicle_teacher.py")
PART = 15_000_000
"""Bytes of one file of what is carried to another machine."""
KEPT = ("scores.jsonl", "metrics.jsonl", "config.json", "warm.safetensors")
KNOWN = ("overwrite", "count", "two-hop")
EVERY = (*KNOWN, "blind")
BABILONG = ("qa1", "qa2", "qa3")


@dataclass(frozen=True)
class Trained:
    """An agent that is trained: what it is asked, and its settings for `recollect train`."""

    asked: str
    """As `recollect eval` names it, without a length."""
    tasks: tuple[str, ...]
    agent: tuple[str, ...]


def trained_agents(o: argparse.Namespace) -> dict[str, Trained]:
    """Return every agent of the plan; all see as many tokens at a time."""
    fold = ("--agent.max-memory-tokens", str(o.memory))
    blind = ("--agent.max-memory-tokens", str(o.blind_memory))
    rag = ("--agent", "rag", "--agent.order", "text", "--agent.chunk-size", "32",
           "--agent.max-context-tokens", str(256 + o.memory))  # fmt: skip

    def asked(kinds: tuple[str, ...], agent: tuple[str, ...]) -> Trained:
        tasks = ("--tasks.kinds", *kinds, "--tasks.tokens", str(o.tokens))
        return Trained(f"chronicle:{','.join(kinds)}", tasks, agent)

    known = {
        "fold": asked(KNOWN, fold),
        "full_context": asked(EVERY, ("--agent", "full_context")),
        "rag": asked(EVERY, rag),
        "fold_blind": asked(("blind",), blind),
        "gated": asked(KNOWN, ("--agent", "gated", "--no-agent.exit-gate", *fold)),
        "rag_hybrid": asked(EVERY, (*rag, "--agent.mode", "hybrid")),
    }
    chosen = {name: known[name] for name in o.agents}
    for kind in BABILONG if o.data else ():
        tasks = ("--tasks", f"babilong:{kind}@{o.tokens}", "--tasks.folder", f"{o.data}/babilong")
        chosen[f"babilong_{kind}"] = Trained(f"babilong:{kind}", tasks, fold)
    return chosen


def lengths(o: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Yield every length to measure at: its name, its tokens, and how many tasks."""
    for times in o.lengths:
        yield f"{times}x", times * o.tokens, o.n if times <= 8 else o.far
    if o.longest:
        yield "longest", o.longest, o.longest_tasks


async def measure(o: argparse.Namespace, folder: Path, asked: str, *arguments: object) -> None:
    """Evaluate at every length, each one whole or not at all; then the control."""
    wanted = [(name, tokens, n, "") for name, tokens, n in lengths(o)]
    if asked.startswith("chronicle"):
        wanted.append(("shuffled", 2 * o.tokens, o.n, "#shuffled"))
    for name, tokens, n, position in wanted:
        out = folder / name
        if (out / "scores.jsonl").exists():
            continue
        await run(
            folder / f"{name}.log", *RECOLLECT, "eval", "--tasks",
            f"{asked}@{tokens}{position}", "--data", o.data or "data", "--n", n, "--temperature", 0,
            "--top-p", 1, "--max-answer-tokens", o.answer, "--metrics", "boxed_exact_match",
            "--concurrency", o.concurrency, "--cache-gib", o.cache_gib, "--out", out, *arguments,
        )  # fmt: skip
        chronicle_table.write_scores(out)


async def one_run(o: argparse.Namespace, name: str, agent: Trained, seed: int) -> None:
    """Train one agent with one seed, measure it, and drop its weights."""
    folder = o.out / f"{name}-{seed}"
    if (folder / "done").exists():
        return
    await run(
        folder / "train.log", *RECOLLECT, "train", "chronicle", "--model.path", o.out / "warm",
        "--model.lora.rank", o.rank, *agent.tasks, *agent.agent,
        "--agent.max-answer-tokens", o.answer, "--seed", seed, "--steps", o.steps,
        "--optim.lr", o.lr, "--rollout.tasks", o.tasks, "--rollout.n", o.group,
        "--rollout.curriculum", *o.curriculum, "--rollout.curriculum-steps", o.curriculum_steps,
        "--val.tasks", o.val, "--val.lengths", 1, "--val.length-tasks", 1, "--test-freq", o.steps,
        "--save-freq", 5, "--keep", 1, "--model.cache-gib", o.cache_gib, "--folder", folder,
        *o.more,
    )  # fmt: skip
    await measure(o, folder, agent.asked, "--agents", folder / "chronicle", "--no-closed-book")
    for heavy in ("model", "checkpoints"):
        shutil.rmtree(folder / "chronicle" / heavy, ignore_errors=True)
    (folder / "done").touch()


async def untrained(o: argparse.Namespace, name: str, model: Path) -> None:
    """Measure weights that no reward has changed: as they come, or after the warm-up."""
    agents = ("fold", "full_context", "rag", "oracle")
    asked = f"chronicle:{','.join(EVERY)}"
    limits = ("--chunk-size", 256 + o.memory, "--max-memory-tokens", o.memory)
    pages = ("--set", "fold.chunk_size=none")  # as in training: a page at a time
    await measure(o, o.out / name, asked, "--agents", *agents, "--model", model, *limits, *pages)


async def everything(o: argparse.Namespace) -> None:
    """Do all that is missing, in the order of what the headline needs."""
    if not (o.out / "warm" / "config.json").exists():
        await run(
            o.out / "warm.log", sys.executable, TEACHER, "--model", o.model, "--out",
            o.out / "warm", "--rank", o.warm_rank, "--tasks", o.warm_up, "--memory", o.memory,
            "--blind-memory", o.blind_memory, "--answer", o.answer, "--lr", o.warm_lr,
            "--agents", *dict.fromkeys(name.removesuffix("_hybrid") for name in o.agents),
        )  # fmt: skip
    for name, agent in trained_agents(o).items():
        async with asyncio.TaskGroup() as group:
            for seed in range(o.seeds):
                group.create_task(one_run(o, name, agent, seed))
    await untrained(o, "warmed", o.out / "warm")
    await untrained(o, "before", o.model)


def pack(out: Path) -> list[Path]:
    """Write what another machine needs to continue: adapters, checkpoints under way, scores."""
    carry = out / "carry"
    shutil.rmtree(carry, ignore_errors=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for path in sorted(out.rglob("*")):
            inside = path.relative_to(out)
            wanted = path.name in KEPT or path.name == "done" or "checkpoints" in inside.parts
            if path.is_file() and wanted and inside.parts[0] != "warm":
                archive.add(path, str(inside))
    data = buffer.getvalue()
    carry.mkdir(parents=True)
    parts = [carry / f"part-{i:03d}" for i in range(-(-len(data) // PART))]
    for i, part in enumerate(parts):
        part.write_bytes(data[i * PART : (i + 1) * PART])
    return parts


def unpack(out: Path) -> None:
    """Take what was carried here, unless the work is here already."""
    parts = sorted((out / "carry").glob("part-*"))
    if parts and not (out / "warm.safetensors").exists():
        data = io.BytesIO(b"".join(part.read_bytes() for part in parts))
        with tarfile.open(fileobj=data, mode="r:gz") as archive:
            archive.extractall(out, filter="data")


async def in_time(o: argparse.Namespace) -> bool:
    """Work until all is done or the time is up; tell whether all is done."""
    try:
        async with asyncio.timeout(60 * o.minutes if o.minutes else None):
            await everything(o)
    except TimeoutError:
        return False
    return True


def parse() -> argparse.Namespace:
    """Read the command line; the defaults are the plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="holds babilong/, to train and measure it too")
    parser.add_argument("--minutes", type=float, help="stop after this time, and pack")
    names = ("fold", "full_context", "rag", "fold_blind", "gated", "rag_hybrid")
    parser.add_argument("--agents", nargs="+", default=names, choices=names)
    numbers = {
        "seeds": 3, "steps": 100, "tasks": 16, "group": 16, "tokens": 4096, "n": 256, "far": 128,
        "longest": 1_000_000, "longest-tasks": 16, "warm-up": 2048, "rank": 4, "warm-rank": 32,
        "memory": 160, "blind-memory": 1024, "answer": 24, "val": 128, "curriculum-steps": 60,
        "concurrency": 512,
    }  # fmt: skip
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lengths", type=int, nargs="+", default=(1, 2, 4, 8, 16, 32))
    parser.add_argument("--curriculum", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--warm-lr", type=float, default=5e-4)
    parser.add_argument("--cache-gib", type=float, default=12.0)
    options, more = parser.parse_known_args()
    options.more = more
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
        print("\n".join(str(error) for error in failed.exceptions))
    finally:
        parts = pack(o.out)
        size = sum(part.stat().st_size for part in parts)
        print(f"{len(parts)} files, {size / 1e6:.1f} MB, in {o.out / 'carry'}")
        print(chronicle_table.markdown(o.out))
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()

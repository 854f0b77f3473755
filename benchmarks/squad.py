"""A small model learns to fold SQuAD: before, after a warm-up, after reinforcement learning.

Every seed is a warm-up, a training run and an evaluation at up to 32 times the training length,
beside full context and BM25; seeds run at the same time, sharing the GPU. The same command goes on
where it was stopped. docs/results/squad.md says what came out.

    python scripts/convert_smollm2.py --out models/smollm2
    python scripts/split_squad.py dev-v1.1.json.gz --out squad
    recollect data squad --input squad --output data/squad
    python benchmarks/squad.py --model models/smollm2 --data data --out runs/squad
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from recollect.evaluation import results

LENGTHS = (4, 8, 16, 32, 64, 128)
AGENTS = ("fold", "full_context", "rag")
SCORES = ("boxed_match", "answer_match")
"""What training rewards, and what leads the family: the answer need not be in a box."""
RECOLLECT = (sys.executable, "-m", "recollect")
WARM_UP = Path(__file__).parents[1] / "scripts" / "warm_up_fold.py"


async def run(log: Path, *command: object) -> None:
    """Run one command, to its end or ours; Ctrl-C lets it keep what it has."""
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with log.open("a") as file:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdout=file, stderr=subprocess.STDOUT
        )
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
                await process.wait()
    if status:
        raise RuntimeError(f"a command failed with status {status}, see {log}")
    print(f"{log.parent.name:20}{log.stem:14}{time.perf_counter() - started:6.0f} s", flush=True)


async def one_seed(options: argparse.Namespace, seed: int) -> None:
    """Warm up, train, and measure at every length."""
    folder = options.out / f"seed{seed}"
    warm, data = folder / "warm", options.data / "squad"
    if not warm.exists():
        half = folder / "warming"
        await run(
            folder / "warm.log", sys.executable, WARM_UP, "--model", options.model, "--data", data,
            "--out", half, "--tasks", options.warm_up, "--seed", seed,
        )  # fmt: skip
        half.rename(warm)
    await run(
        folder / "train.log", *RECOLLECT, "train", "squad", "--model.path", warm,
        "--tasks.folder", data, "--seed", seed, "--steps", options.steps, "--folder", folder,
        "--model.cache-gib", options.cache_gib, "--val.tasks", options.n, "--val.lengths",
        *options.more,
    )  # fmt: skip
    await evaluate(options, folder / "squad" / "model", folder)


async def evaluate(options: argparse.Namespace, model: Path, folder: Path) -> None:
    """Measure every way of reading with one model: many at the training length, fewer beyond."""
    for name, lengths, n in (("short", LENGTHS[:1], options.n), ("long", LENGTHS[1:], options.far)):
        tasks = "squad@" + ",".join(f"{length}docs" for length in lengths)
        await run(
            folder / f"{name}.log", *RECOLLECT, "eval", "--tasks", tasks, "--data", options.data,
            "--model", model, "--agents", *AGENTS, "--n", n, "--temperature", 0,
            "--chunk-size", 256, "--max-memory-tokens", 80, "--max-answer-tokens", 64,
            "--no-closed-book",
            "--concurrency", 512, "--cache-gib", options.cache_gib, "--out", folder / name,
            "--metrics", *SCORES,
        )  # fmt: skip


@contextlib.contextmanager
def shared_gpu(folder: Path) -> Iterator[None]:
    """Let processes work on the GPU at the same time, not in turns, where its driver can."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not control:
        yield
        return
    for name in ("PIPE", "LOG"):
        own = folder / f"mps-{name.lower()}"
        own.mkdir(parents=True, exist_ok=True)
        os.environ[f"CUDA_MPS_{name}_DIRECTORY"] = str(own.resolve())
    subprocess.run([control, "-d"], check=False)  # one that a killed run left behind will do
    try:
        yield
    finally:
        subprocess.run([control], input=b"quit\n", check=False)


def steps(folder: Path) -> list[dict[str, float]]:
    """Return what was written down about every step of training."""
    return [json.loads(line) for line in (folder / "squad" / "metrics.jsonl").open()]


def curve(folder: Path) -> dict[int, tuple[float, float, float]]:
    """Return held-out accuracy by step, with its interval."""
    return {
        int(row["step"]): (row["val/accuracy"], row["val/low"], row["val/high"])
        for row in steps(folder)
        if "val/accuracy" in row
    }


def show_training(folder: Path) -> None:
    """Print rewards by tens of steps, what a step takes, and how far sampler and trainer differ."""
    rows = [row for row in steps(folder) if "reward/mean" in row]
    rewards = [row["reward/mean"] for row in rows]
    tens = (statistics.mean(rewards[i : i + 10]) for i in range(0, len(rewards), 10))
    rollout, update = (
        statistics.median(row[f"time/{part}"] for row in rows) for part in ("rollout", "update")
    )
    print(
        f"{folder.name}: reward by tens of steps {' '.join(f'{mean:.3f}' for mean in tens)};"
        f" rollout {rollout:.1f} s, update {update:.1f} s;"
        f" mismatch at most {max(row.get('train/mismatch', 0.0) for row in rows):.0e}"
    )


def cells(folder: Path) -> Iterator[results.Cell]:
    """Return what was measured with one model."""
    for name in ("short", "long"):
        yield from results.load(folder / name).cells


def show(options: argparse.Namespace) -> None:
    """Print one table of training, one of lengths."""
    seeds = range(options.seeds)
    curves = {seed: curve(options.out / f"seed{seed}") for seed in seeds}
    print("\nheld-out accuracy (in a box, exact), greedy, 95% interval")
    for step in sorted({step for found in curves.values() for step in found}):
        shown = [figure(*curves[seed][step]) for seed in seeds if step in curves[seed]]
        print(f"step {step:4}  " + "  ".join(shown))
    for seed in seeds:
        show_training(options.out / f"seed{seed}")
    models = {"before": options.out / "before"} | {
        f"seed {seed}": options.out / f"seed{seed}" for seed in seeds
    }
    print(f"\n{' | '.join(SCORES)}, 95% interval by article of the latter")
    table: dict[tuple[str, str], dict[str, str]] = {}
    for name, folder in models.items():
        for cell in cells(folder):
            boxed, match = (cell.scores[m] for m in SCORES)
            said = f"{boxed.mean:.3f} | {figure(match.mean, match.low, match.high)}"
            table.setdefault((cell.task, cell.agent), {})[name] = said
    print(f"{'':14}{'':14}" + "".join(f"{name:30}" for name in models))
    for (task, agent), row in table.items():
        print(f"{task:14}{agent:14}" + "".join(f"{row.get(name, ''):30}" for name in models))


def figure(mean: float, low: float, high: float) -> str:
    """Write a mean with its interval."""
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


async def everything(options: argparse.Namespace) -> None:
    """Measure the model as it is, and every seed; the first that fails ends all."""
    async with asyncio.TaskGroup() as group:
        group.create_task(evaluate(options, options.model, options.out / "before"))
        for seed in range(options.seeds):
            group.create_task(one_seed(options, seed))


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds squad")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=1200, help="questions of the warm-up")
    parser.add_argument("--n", type=int, default=954, help="held-out questions")
    parser.add_argument("--far", type=int, default=128, help="of them, at more than 4 documents")
    parser.add_argument("--cache-gib", type=float, default=8.0)
    options, more = parser.parse_known_args()
    options.more = more  # settings for recollect train
    try:
        with shared_gpu(options.out):
            asyncio.run(everything(options))
    except* RuntimeError as failed:
        sys.exit("\n".join(str(error) for error in failed.exceptions))
    show(options)


if __name__ == "__main__":
    main()

"""The cluster engine on one GPU: real weights through verl, Ray and vLLM, beside the embedded one.

Runs share the GPU: the same fold on the same tasks in both engines, with vLLM and with our own
sampler as verl's rollout server; a curator with tools; memory alone against a model that vLLM
serves; and a run that is killed and resumed. Prints one table, a line a run.

    python benchmarks/cluster_gpu.py --out runs/cluster-demo
    python scripts/warm_up_fold.py --model models/smollm2 --data data/squad --out models/warm
    python benchmarks/cluster_gpu.py --model models/warm --data data/squad --out runs/cluster
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recollect.config.presets import DEMO_MODEL
from recollect.engines.verl.start_times import read_parts

RECOLLECT = (sys.executable, "-m", "recollect")
RUNS = ("embedded", "vllm", "own", "curator", "memory", "killed")
VERL = "actor_rollout_ref.rollout"
CACHE = 2 << 30
"""Bytes of a vLLM's cache: measured, it would be off by what other runs take and give back."""


def fold(options: argparse.Namespace, name: str, steps: int) -> list[str]:
    """Return the command of a fold, the same for every engine: over SQuAD, or short diaries."""
    own = ["short_diary", "--model.device", "auto"]
    if options.model:
        own = ["squad", "--model.path", str(options.model), "--tasks.folder", str(options.data),
               "--rollout.n", "8", "--updates-per-step", "1",
               "--optim.warmup-steps", "2"]  # fmt: skip
    return [
        *RECOLLECT, "train", *own, "--name", name, "--folder", str(options.out),
        "--steps", str(steps), "--test-freq", str(steps), "--save-freq", "2",
        "--val.tasks", str(options.n), "--val.lengths",
    ]  # fmt: skip


def on_verl(share: float, *more: str) -> list[str]:
    """Return what follows a command to run it on one GPU through verl."""
    return ["--engine", "verl", "--", "trainer.n_gpus_per_node=1", "trainer.nnodes=1",
            f"{VERL}.gpu_memory_utilization={share}", f"{VERL}.agent.num_workers=2",
            f"+{VERL}.engine_kwargs.vllm.kv_cache_memory_bytes={CACHE}",
            "+ray_kwargs.ray_init.include_dashboard=False", *more]  # fmt: skip


async def run(options: argparse.Namespace, name: str, command: Sequence[str]) -> int:
    """Run a command to its end; return its status."""
    log, started = options.out / f"{name}.log", time.perf_counter()
    with log.open("a") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        if name == "killed" and not (options.out / name / "was_killed").exists():
            await kill_after_checkpoint(process, options.out / name)
            return await run(options, name, command)
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:  # we are asked to end
                os.killpg(process.pid, signal.SIGKILL)
    seconds = time.perf_counter() - started
    print(f"{name}: status {status}, {seconds:.0f} s", flush=True)
    return status


async def kill_after_checkpoint(process: asyncio.subprocess.Process, folder: Path) -> None:
    """Send SIGKILL to a run and all that it started once it has written a checkpoint."""
    latest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    while process.returncode is None and not latest.exists():
        await asyncio.sleep(0.2)
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        (folder / "was_killed").write_text(latest.read_text())
        await asyncio.sleep(10)  # Ray's workers end a moment later
        print(f"killed: SIGKILL after step {latest.read_text().strip()}", flush=True)


async def serve(options: argparse.Namespace, port: int) -> asyncio.subprocess.Process:
    """Serve the fixed model with vLLM, and wait until it answers."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model",
               str(options.model or DEMO_MODEL), "--port", str(port),
               "--gpu-memory-utilization", "0.02", "--kv-cache-memory-bytes", str(CACHE),
               "--enforce-eager"]  # fmt: skip
    with (options.out / "serve.log").open("a") as file:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    while process.returncode is None:
        try:
            await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{port}/v1/models", timeout=2
            )
            return process
        except OSError:
            await asyncio.sleep(1)
    raise RuntimeError(f"vLLM ended with {process.returncode}, see {options.out / 'serve.log'}")


async def one(options: argparse.Namespace, name: str) -> int:
    """Run one of the runs; return its status."""
    share, steps = options.share, options.steps
    if name == "embedded":
        return await run(options, name, fold(options, name, steps))
    if name == "vllm":
        return await run(options, name, [*fold(options, name, steps), *on_verl(share)])
    if name == "own":
        more = on_verl(share, f"{VERL}.name=recollect")
        return await run(options, name, [*fold(options, name, 3), *more])
    if name == "killed":
        return await run(options, name, [*fold(options, name, 4), *on_verl(share)])
    if name == "curator":
        command = [*RECOLLECT, "train", "curator", "--name", name, "--folder", str(options.out),
                   "--steps", "6", "--test-freq", "6", "--val.tasks", str(options.n)]  # fmt: skip
        return await run(options, name, [*command, *on_verl(share)])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = await serve(options, port)
    try:
        command = [*fold(options, name, 3), "--models.answer", f"http://127.0.0.1:{port}/v1"]
        return await run(options, name, [*command, *on_verl(share)])
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        await server.wait()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Read a run's metrics."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def line(options: argparse.Namespace, name: str) -> str:
    """Say in one line what a run came to."""
    rows = rows_of(options.out / name)
    steps = [row for row in rows if row.get("step")]
    if not steps:
        return f"{name:10} no step, see {options.out / name}.log"
    rewards = [row["reward/mean"] for row in steps]
    third = max(1, len(rewards) // 3)
    accuracy = [f"{row['val/accuracy']:.3f}" for row in rows if "val/accuracy" in row]
    names = ("train/log_ratio", "train/mismatch")
    mismatch = max(abs(row.get(key) or 0.0) for row in steps for key in names)
    moved = sum((row.get("train/grad_norm") or 0) > 0 for row in steps)
    failed = sum(row.get("episodes/failed") or 0 for row in rows)
    seconds = statistics.median(row["time/rollout"] + row["time/update"] for row in steps)
    return (
        f"{name:10}{len(steps):6}{statistics.mean(rewards[:third]):9.3f}"
        f"{statistics.mean(rewards[-third:]):9.3f}  {' to '.join(accuracy):16}{mismatch:12.1e}"
        f"{moved:9}{failed:8.0f}{seconds:9.1f}"
    )


def starts(options: argparse.Namespace) -> str:
    """Lay out where each run's start went, in seconds."""
    found = {name: dict(read_parts(options.out / name)) for name in options.only}
    found = {name: parts for name, parts in found.items() if parts}
    names = list(dict.fromkeys(part for parts in found.values() for part in parts))
    lines = [
        f"| seconds to the first rollout | {' | '.join(found)} |",
        "|" + "---|" * (len(found) + 1),
    ]
    for part in names:
        own = (f"{parts[part]:.1f}" if part in parts else "" for parts in found.values())
        lines.append(f"| {part} | {' | '.join(own)} |")
    whole = (f"{sum(parts.values()):.1f}" for parts in found.values())
    return "\n".join([*lines, f"| in all | {' | '.join(whole)} |"])


async def main() -> int:
    """Run what is asked for, at the same time, and print the table; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="a warm model; without it that of short_diary")
    parser.add_argument("--data", type=Path, help="of SQuAD, for that model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=RUNS)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--n", type=int, default=256, help="held-out tasks")
    parser.add_argument("--share", type=float, default=0.12, help="of the GPU for each vLLM")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    statuses = await asyncio.gather(*(one(options, name) for name in options.only))
    print(
        f"{'':10}{'steps':>6}{'reward':>9}{'later':>9}  {'held-out':16}{'mismatch':>12}"
        f"{'updates':>9}{'failed':>8}{'s/step':>9}"
    )
    for name in options.only:
        print(line(options, name))
    print(starts(options))
    for name in options.only:
        if seconds := sum(dict(read_parts(options.out / name)).values()):
            print(f"figure | seconds to the first rollout, {name} | {seconds:.0f} | at most 90")
    return int(any(statuses))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # all runs end as well
    sys.exit(asyncio.run(main()))

"""Whole training steps in MemAgent's setting on one GPU: rollout, update and sync, by phase.

`recollect train` itself, on random weights and made-up words of fixed lengths: tasks of six chunks
of 5,000 tokens, 16 episodes each, a memory of 500 tokens, an answer of 200. The reward is a coin
that falls as the answer says, so that there is something to learn from. A run is killed once its
steps are measured, because a checkpoint of a 7B takes 90 GB.

    python scripts/make_random_model.py --shape Qwen2.5-7B --out models/random-7b
    python -m benchmarks.whole_loop --model models/random-7b --out runs/loop
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from recollect import Question, Task
from recollect.types import Episode

PUBLISHED = 2400 * 32 / 128
"""GPU seconds of a prompt: MemAgent reports 2,400 s a step on 32 GPUs for 128 prompts of its 7B."""
WAYS = {
    "chunk_first": ["--agent.order", "chunk_first"],
    "memory_first": ["--agent.order", "memory_first"],
    "ahead": ["--agent.order", "chunk_first", "--rollout.ahead", "1"],
    "vllm": ["--agent.order", "chunk_first", "--rollout.sampler", "vllm", "--rollout.sleep"],
}


@dataclass(frozen=True)
class Words:
    """Texts of random words, a token each."""

    name = "words"
    metric = "sub_exact_match"
    chunks: int = 6
    words: int = 5000
    vocabulary: int = 100_000

    def size(self, split: str) -> None:
        """Say that there is no end of them."""

    def longer(self, times: int) -> Words:
        """Return the same with more chunks."""
        return replace(self, chunks=self.chunks * times)

    def task(self, index: int, seed: int = 0, split: str = "train") -> Task:
        """Make one text; nobody can answer its question."""
        rng = Random(f"{split} {seed} {index}")
        text = lambda: " ".join(f"w{rng.randrange(self.vocabulary)}" for _ in range(self.words))  # noqa: E731
        chunks = tuple(text() for _ in range(self.chunks))
        question = Question(" ".join(f"w{i}" for i in range(20)), ("none",))
        return Task(f"words-{split}-{index}", chunks, (question,), "words")


def coin(episode: Episode, _memory: object) -> float:
    """Pay 1 or 0, as the letters of the answer add up to."""
    return float(sum(map(ord, episode.answers[0])) % 2)


def command(options: argparse.Namespace, way: str) -> list[str]:
    """Return the command of a run that nobody waits for the end of."""
    never = "1000000"
    return [
        sys.executable, "-m", "recollect", "train", "hotpotqa", "--name", way,
        "--folder", str(options.out), "--resume", "never", "--steps", never,
        "--model.path", str(options.model), "--model.weights", options.weights,
        "--model.recompute", str(options.recompute), "--model.cache-gib", str(options.cache_gib),
        "--optim.offload", "--token-budget", str(options.token_budget), "--loss.kl-coef", "0",
        "--tasks", "benchmarks.whole_loop:Words", "--tasks.chunks", str(options.chunks),
        "--tasks.words", str(options.words), "--reward", "benchmarks.whole_loop:coin",
        "--agent.chunk-size", "None", "--agent.max-memory-tokens", str(options.memory),
        "--agent.max-answer-tokens", str(options.answer), "--rollout.tasks", str(options.tasks),
        "--rollout.n", str(options.group), "--rollout.keep-groups", "0",
        "--val.no-before-training", "--test-freq", never, "--save-freq", never,
        *WAYS[way], *options.more,
    ]  # fmt: skip


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Read the steps that a run has finished so far."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def measured(options: argparse.Namespace, way: str) -> list[dict[str, Any]]:
    """Run until the steps are there, then kill it; return them."""
    metrics = options.out / way / "metrics.jsonl"
    if metrics.exists():
        raise SystemExit(f"{metrics.parent} has a run already; name another --out")
    with (options.out / f"{way}.log").open("w") as log:
        process = subprocess.Popen(
            command(options, way), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        started = time.monotonic()
        while len(rows := rows_of(metrics)) < options.steps and process.poll() is None:
            if time.monotonic() - started > 60 * options.minutes:
                break
            time.sleep(0.5)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return rows


def table(options: argparse.Namespace, found: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Lay out all steps; the first of a run also records graphs and chooses kernels."""
    lines = [
        "| run | step | rollout, s | update, s | sync, s | whole, s | new tokens/s in a rollout"
        " | GPU seconds per prompt | of MemAgent's 600 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for way, rows in found.items():
        for row in rows:
            times = [row.get(f"time/{phase}", 0.0) for phase in ("rollout", "update", "sync")]
            whole = sum(times)
            rate = row["tokens/sampled"] / times[0] if times[0] else 0.0
            shown = " | ".join(f"{t:.1f}" for t in (*times, whole))
            prompt = whole / options.tasks
            lines.append(
                f"| {way} | {row['step']} | {shown} | {rate:,.0f} | {prompt:.1f}"
                f" | {PUBLISHED / prompt:.1f}x less |"
            )
        if len(rows) < options.steps:
            lines.append(f"| {way} | ended after {len(rows)} steps | | | | | | | |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """Read the command line; what it does not know goes to `recollect train`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS)[:3])
    parser.add_argument("--weights", default="bfloat16")
    numbers = {"steps": 2, "tasks": 8, "group": 16, "chunks": 6, "words": 5000, "memory": 500,
               "answer": 200, "token_budget": 22_000}  # fmt: skip
    for name, value in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--recompute", type=float, default=0.5)
    parser.add_argument("--cache-gib", type=float, default=30.0)
    parser.add_argument("--minutes", type=float, default=15.0, help="the most that a run may take")
    options, more = parser.parse_known_args()
    options.more = more
    return options


def main() -> int:
    """Measure every way and print one table."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    found = {way: measured(options, way) for way in options.ways}
    print(table(options, found))
    return int(any(len(rows) < options.steps for rows in found.values()))


if __name__ == "__main__":
    sys.exit(main())

"""Whole training steps in MemAgent's setting on one GPU: rollout, reward, update and sync.

`recollect train` itself, on random weights and made-up words of fixed lengths: tasks of six chunks
of 5,000 tokens, 16 episodes each, a memory of 500 tokens, an answer of 200, one optimiser step for
8 tasks as in MemAgent. The reward is a coin that falls as the answer says, so that there is
something to learn from. All weights are trained; AdamW's averages and the float32 originals are on
the host. What the GPU must hold is printed first, and decides how many layers recompute. A step's
line is printed when the step is done. A run is killed once its steps are measured, because a
checkpoint of a 7B takes 90 GB.

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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.loop_memory import Room, chosen_recompute, need_of
from recollect import Question, Task
from recollect.engines.verl.launch.shapes import Shape, find_shape
from recollect.rewards.base import Score
from recollect.types import Episode

PUBLISHED = 2400 * 32 / 128
"""GPU seconds of a prompt: MemAgent reports 2,400 s a step on 32 GPUs for 128 prompts of its 7B."""
WAYS = {
    "chunk_first": ["--agent.order", "chunk_first"],
    "memory_first": ["--agent.order", "memory_first"],
    "ahead": ["--agent.order", "chunk_first", "--rollout.ahead", "1"],
    "vllm": ["--agent.order", "chunk_first", "--rollout.sampler", "vllm"],
}
CONTROLS = 7
"""Tokens of a model of `scripts/make_random_model.py` that are no words."""


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


def coin(episode: Episode, _memory: object) -> Score:
    """Pay 1 or 0, as the letters of the answer add up to; say how long it took."""
    started = time.perf_counter()
    paid = float(sum(map(ord, episode.answers[0])) % 2)
    return Score(paid, {"reward_seconds": time.perf_counter() - started})


def command(options: argparse.Namespace, way: str, shape: Shape) -> list[str]:
    """Return the command of a run that nobody waits for the end of."""
    never = "1000000"
    return [
        sys.executable, "-m", "recollect", "train", "hotpotqa", "--name", way,
        "--folder", str(options.out), "--resume", "never", "--steps", never,
        "--model.path", str(options.model), "--model.weights", options.weights,
        "--model.recompute", str(options.recompute), "--model.cache-gib", str(options.cache_gib),
        *(["--model.compile"] if options.compile else []), "--optim.offload",
        "--token-budget", str(options.token_budget), "--loss.kl-coef", "0",
        "--updates-per-step", str(max(1, options.tasks // 8)),
        "--tasks", "benchmarks.whole_loop:Words", "--tasks.chunks", str(options.chunks),
        "--tasks.words", str(options.words),
        "--tasks.vocabulary", str(min(100_000, shape.vocabulary - CONTROLS)),
        "--reward", "benchmarks.whole_loop:coin",
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


def measured(options: argparse.Namespace, way: str, shape: Shape) -> Iterator[dict[str, Any]]:
    """Run until the steps are there, then kill it; yield each when it is done."""
    metrics = options.out / way / "metrics.jsonl"
    if metrics.exists():
        raise SystemExit(f"{metrics.parent} has a run already; name another --out")
    given = command(options, way, shape)
    with (options.out / f"{way}.log").open("w") as log:
        log.write(" ".join(given) + "\n")
        log.flush()
        process = subprocess.Popen(
            given, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        started, seen = time.monotonic(), 0
        try:
            while seen < options.steps:
                ended = process.poll() is not None
                for row in rows_of(metrics)[seen : options.steps]:
                    seen += 1
                    yield row | {"after": time.monotonic() - started}
                if ended or time.monotonic() - started > 60 * options.minutes:
                    break
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


HEAD = (
    "| run | step | start, s | rollout, s | reward, s | update, s | sync, s | whole, s"
    " | new tokens/s in a rollout | GPU seconds per prompt | MemAgent's 600 |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)
PHASES = ("rollout", "update", "sync")


def line(options: argparse.Namespace, way: str, row: dict[str, Any], start: str) -> str:
    """Lay out one step. The reward is part of the rollout: episodes end one by one."""
    rollout, update, sync = (row.get(f"time/{phase}", 0.0) for phase in PHASES)
    reward = row.get("score/reward_seconds", 0.0) * options.tasks * options.group
    whole = rollout + update + sync
    # Ahead, most of a rollout runs beside an update, and what is left of it says nothing.
    rate = f"{row['tokens/sampled'] / rollout:,.0f}" if rollout and way != "ahead" else "-"
    prompt = whole / options.tasks
    return (
        f"| {way} | {row['step']} | {start} | {rollout:.1f} | {reward:.6f} | {update:.1f}"
        f" | {sync:.1f} | {whole:.1f} | {rate} | {prompt:.1f} | {PUBLISHED / prompt:.1f}x |"
    )


def run_way(options: argparse.Namespace, way: str, shape: Shape) -> bool:
    """Measure one way, and print each of its steps when it is done; tell whether all were."""
    done, spent = 0, 0.0
    for row in measured(options, way, shape):
        # The start is what no step accounts for, until the first one.
        spent = sum(row.get(f"time/{phase}", 0.0) for phase in PHASES)
        start = f"{max(0.0, row['after'] - spent):.0f}" if not done else ""
        print(line(options, way, row, start), flush=True)
        done += 1
    if done == options.steps:
        prompt = spent / options.tasks
        held = f"MemAgent's {PUBLISHED:g}: {PUBLISHED / prompt:.1f}x fewer"
        print(f"figure | GPU seconds per prompt, {way} | {prompt:.1f} | {held}", flush=True)
        return True
    log = options.out / f"{way}.log"
    last = [text for text in log.read_text(errors="replace").splitlines() if text.strip()][-12:]
    print(f"| {way} | ended after {done} steps: {log} |" + " |" * 9, flush=True)
    print("\n".join(last), file=sys.stderr, flush=True)
    return False


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
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--recompute", type=float, help="share of layers; by default what fits")
    parser.add_argument("--gpu-gib", type=float, help="of the GPU; by default what it has")
    parser.add_argument("--host-gib", type=float, help="likewise; a virtual machine may grow")
    parser.add_argument("--cache-gib", type=float, default=30.0)
    parser.add_argument("--minutes", type=float, default=15.0, help="the most that a run may take")
    options, more = parser.parse_known_args()
    options.more = more
    return options


def planned(options: argparse.Namespace, shape: Shape) -> list[str]:
    """Choose what recomputes, the same in every way so that they compare; return what fits."""
    room = Room.here(options.gpu_gib, options.host_gib)
    if options.recompute is None:
        options.recompute = chosen_recompute(options, shape, room)
    needs = [(way, need_of(options, shape, way)) for way in options.ways]
    print(f"{shape.parameters / 1e9:.2f}B weights; {options.recompute:.0%} of layers recompute")
    for way, need in needs:
        print(f"{way:14}{need.text(room)}", flush=True)
    return [way for way, need in needs if not need.lacks(room)]


def main() -> int:
    """Measure every way that fits, and print a table line by line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the run under way ends as well
    options = parse()
    shape = find_shape(str(options.model))
    if shape is None:
        raise SystemExit(f"{options.model} has no config.json; scripts/make_random_model.py does")
    options.out.mkdir(parents=True, exist_ok=True)
    fitting = planned(options, shape)
    print(HEAD, flush=True)
    done = [run_way(options, way, shape) for way in fitting]
    return int(not all(done) or len(done) < len(options.ways))


if __name__ == "__main__":
    sys.exit(main())

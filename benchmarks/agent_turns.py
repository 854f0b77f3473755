"""What agents and chats cost in one Python thread: a fold whose model replies at once.

Processor time of a turn: rendering, chat, memory, decoding and the reward, with nothing of a
sampler. In turns, as Python's garbage collector looks by itself and as a rollout lets it.

    python scripts/convert_smollm2.py --out models/smollm2     # of which the tokenizer is used
    python -m benchmarks.agent_turns --model models/smollm2
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import recollect.rollout
from benchmarks.rollout import WORDS, make_tasks
from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer, Tokenizer
from recollect.concurrency.garbage import rarely_collected
from recollect.metrics import METRICS
from recollect.models.tokenizer import load_tokenizer
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.train.rollouts import keep_imports
from recollect.types import Completion, Sampling


class AtOnce:
    """Reply with some common words."""

    def __init__(self, tokenizer: Tokenizer, new: int) -> None:
        rng, words = random.Random(0), WORDS.split()
        said = [tokenizer.encode(" ".join(rng.choices(words, k=new)))[:new] for _ in range(200)]
        self.replies = [Completion(tuple(ids), (-0.5,) * len(ids), "length") for ids in said]

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Continue a prompt."""
        await asyncio.sleep(0)
        return self.replies[sampling.seed % len(self.replies)]


def milliseconds(tokenizer: Tokenizer, options: argparse.Namespace, seed: int) -> float:
    """Return the processor time of a turn, whose chunks were encoded before."""
    tasks = make_tasks(options.tasks, 6, 900, seed)
    for task in tasks:
        for chunk in task.chunks:
            tokenizer.encode(chunk)
    speaker = Model(AtOnce(tokenizer, 103), Renderer(tokenizer), True, Sampling(), 8192)
    models = {"memory": speaker, "answer": speaker}
    agent, reward = FoldAgent(None, 128, 128), METRICS["sub_exact_match"]
    rollout = Rollout(agent, models, AnswerReward(reward), options.tasks * options.group)
    began = time.process_time()
    groups = asyncio.run(rollout.groups(tasks, options.group, (0, "bench")))
    seconds = time.process_time() - began
    return 1000 * seconds / sum(len(e.contexts) for group in groups for e in group)


def main() -> None:
    """Measure in turns, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.model)
    keep_imports()
    ways: dict[str, Any] = {"by itself": nullcontext, "rarely": rarely_collected}
    times: dict[str, list[float]] = {name: [] for name in ways}
    milliseconds(tokenizer, options, 0)
    for seed in range(options.rounds):
        for name, way in ways.items():
            recollect.rollout.rarely_collected = way
            times[name].append(milliseconds(tokenizer, options, seed))
    found = {name: statistics.median(own) for name, own in times.items()}
    for name, ms in found.items():
        print(f"the collector looks {name:10} {ms:.3f} ms a turn, {1000 / ms:,.0f} turns a second")
    print(f"ratio {found['by itself'] / found['rarely']:.2f}x")


if __name__ == "__main__":
    main()

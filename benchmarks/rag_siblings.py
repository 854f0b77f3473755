"""What an episode of RAG costs in one Python thread, alone and among siblings that share its text.

    python scripts/convert_smollm2.py --out models/smollm2     # of which the tokenizer is used
    python -m benchmarks.rag_siblings --model models/smollm2

Processor time of an episode whose model replies at once: reading, indexing and searching chronicles
by whole sentences, the prompt and the reward; medians of some rounds in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from benchmarks.agent_turns import AtOnce
from recollect.agents.rag import RagAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer, Tokenizer
from recollect.models.tokenizer import load_tokenizer
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.tasks.made.chronicle import Chronicle
from recollect.types import Sampling

AGENT = RagAgent("bm25", None, 20, 672, 64, sentences=True, neighbours=1)


def milliseconds(tokenizer: Tokenizer, tokens: int, tasks: int, group: int, seed: int) -> float:
    """Return the processor time of an episode."""
    family = Chronicle(tokens=tokens)
    speaker = Model(AtOnce(tokenizer, 48), Renderer(tokenizer), True, Sampling(), 8192)
    rollout = Rollout(
        AGENT, {"memory": speaker, "answer": speaker}, AnswerReward("boxed_match"), tasks * group
    )
    asked = [family.task((seed * 100 + group) * tasks + i) for i in range(tasks)]
    began = time.process_time()
    asyncio.run(rollout.groups(asked, group, (seed,)))
    return 1000 * (time.process_time() - began) / (tasks * group)


def main() -> None:
    """Measure every length and group in turns, and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=int, nargs="+", default=(4096, 16384))
    parser.add_argument("--groups", type=int, nargs="+", default=(1, 8))
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    o = parser.parse_args()
    tokenizer = load_tokenizer(o.model)
    heads = " | ".join(f"group of {n}" for n in o.groups)
    print(f"| tokens of a text | {heads} | first / last |\n{'|---' * (len(o.groups) + 2)}|")
    for tokens in o.tokens:
        found: dict[int, list[float]] = {group: [] for group in o.groups}
        for seed in range(o.rounds + 1):  # the first warms up
            for group, own in found.items():
                own.append(milliseconds(tokenizer, tokens, o.tasks, group, seed))
        means = [statistics.median(own[1:]) for own in found.values()]
        shown = " | ".join(f"{mean:.1f} ms" for mean in means)
        print(f"| {tokens:,} | {shown} | {means[0] / means[-1]:.1f}x |", flush=True)


if __name__ == "__main__":
    main()

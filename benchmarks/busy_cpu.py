"""A small model's tokens on CPUs that other programs use too: how long its threads wait busily.

Threads that wait for one that was put aside by the system hold up everything else that could run.
`recollect` lets them wait for a moment only (`SPINS` in recollect/__main__.py); beside it the
library's own choice. Every number is of a process of its own.

    python benchmarks/busy_cpu.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from recollect.__main__ import SPINS

BUSY = "while True: pass"


def one(tokens: int) -> None:
    """Print milliseconds of a token, one after the other, of SmolLM2-135M's shape."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536,
                         num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                         tie_word_embeddings=True)  # fmt: skip
    network = LlamaForCausalLM(config).eval()
    with torch.inference_mode():
        for count in (2, tokens):
            began = time.perf_counter()
            for _ in range(count):
                network(torch.tensor([[7]]), use_cache=False)
    print(1000 * (time.perf_counter() - began) / tokens)


def measured(spins: str, others: int, tokens: int) -> float:
    """Measure one setting beside some programs that never rest."""
    decide = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    env = {name: value for name, value in os.environ.items() if name not in decide}
    env |= {"GOMP_SPINCOUNT": spins} if spins else {}
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(others)]
    try:
        words = [sys.executable, __file__, "--one", "--tokens", str(tokens)]
        return float(subprocess.run(words, env=env, stdout=-1, text=True, check=True).stdout)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    """Measure in turns, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.tokens)
        return
    print(f"{'busy programs beside':24}{'its own choice':>18}{'ours':>10}{'ratio':>8}")
    for others in (0, 1, os.cpu_count() or 1):
        times: dict[str, list[float]] = {"": [], SPINS: []}
        for _ in range(options.rounds):
            for spins, found in times.items():
                found.append(measured(spins, others, options.tokens))
        theirs, ours = (statistics.median(found) for found in times.values())
        print(f"{others:<24}{theirs:>12.1f} ms{ours:>10.1f} ms{theirs / ours:>7.2f}x", flush=True)


if __name__ == "__main__":
    main()

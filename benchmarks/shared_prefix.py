"""One update on G siblings of a common prefix: the trie beside one row per sample.

Both run in one process, turn by turn, on the same weights and samples; gradients are compared.

    python benchmarks/shared_prefix.py [--shape small|smollm2] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from grpo_step import SHAPES, make_model

from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.models.model import LoadedModel, load_model
from recollect.train.trainer import Trainer
from recollect.types import Sample


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument(
        "--rest", type=int, default=64, help="tokens after the prefix, half trained"
    )
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), options.shape)
        config = ModelConfig(folder, device=options.device, threads=options.threads)
        model = load_model(config)
    print(
        f"shape {options.shape}, {options.device}, G = {options.group}, rest {options.rest} tokens"
    )
    print(
        f"{'prefix':>8}{'tokens':>16}{'rows, s':>10}{'trie, s':>10}{'ratio':>8}"
        f"{'gradient off by':>18}"
    )
    for times in (0, 1, 2, 5, 10):
        samples = siblings(options, times * options.rest)
        seconds: dict[bool, list[float]] = {False: [], True: []}
        gradients: dict[bool, list[torch.Tensor]] = {}
        packed: dict[bool, int] = {}
        for repeat in range(options.repeats + 1):
            for share in (False, True):
                taken, packed[share], gradients[share] = backward(model, samples, share)
                if repeat:
                    seconds[share].append(taken)
        rows, trie = (statistics.median(seconds[share]) for share in (False, True))
        tokens = f"{packed[False]} -> {packed[True]}"
        off = distance(gradients[True], gradients[False])
        print(f"{times:>7}x{tokens:>16}{rows:10.3f}{trie:10.3f}{rows / trie:7.2f}x{off:18.1e}")


def siblings(options: argparse.Namespace, prefix: int) -> list[Sample]:
    """Make G samples that share their first tokens; the second half of the rest is trained."""
    rng = np.random.default_rng(prefix)
    size = SHAPES[options.shape]["vocab_size"]
    common = rng.integers(4, size, prefix)
    samples = []
    for number in range(options.group):
        ids = np.concatenate([common, rng.integers(4, size, options.rest)])
        trained = np.arange(len(ids)) >= len(ids) - options.rest // 2
        advantages = np.where(trained, number % 2 - 0.5, 0).astype(np.float32)
        logprobs = np.where(trained, -np.log(size), 0).astype(np.float32)
        samples.append(Sample(ids, trained, advantages, logprobs, 0, number))
    return samples


def backward(
    model: LoadedModel, samples: list[Sample], share: bool
) -> tuple[float, int, list[torch.Tensor]]:
    """Compute one gradient; return seconds, tokens computed and the gradient."""
    optim = OptimConfig(lr=0.0, weight_decay=0.0)
    trainer = Trainer(model, LossConfig(kl_coef=0.0), optim, token_budget=1 << 20, share=share)
    kept: list[torch.Tensor] = []

    def keep(*_: object) -> None:
        kept.extend(p.grad.clone() for p in model.trainable_parameters() if p.grad is not None)

    trainer.optimiser.adam.register_step_pre_hook(keep)
    wait(model)
    started = time.perf_counter()
    metrics = trainer.update(samples)
    wait(model)
    return time.perf_counter() - started, int(metrics["tokens/packed"]), kept


def wait(model: LoadedModel) -> None:
    """Let the device finish."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def distance(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """Return the largest relative error over the parameters."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    main()

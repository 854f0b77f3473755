"""Does the embedded engine hold together on this device? Sampler against trainer, LoRA, KL.

    python benchmarks/gpu_check.py [--device cuda]

Prints one line per check and ends with status 1 if any failed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from grpo_step import SHAPES, make_model

from recollect.config.engine import LoraConfig, LossConfig, ModelConfig, OptimConfig
from recollect.models.model import LoadedModel, load_model
from recollect.sampler.dense import LocalPolicy
from recollect.samples import make_sample
from recollect.train.trainer import Trainer
from recollect.types import Context, Sample, Sampling, Turn

CASES = {
    "all weights": dict(),
    "LoRA": dict(lora=LoraConfig(rank=8)),
    "recomputation": dict(recompute=1.0),
}


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {options.device}, shape {options.shape}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), options.shape)
        for name, settings in CASES.items():
            model = load_model(ModelConfig(folder, device=options.device, **settings))
            failed |= not check(name, model, options.shape)
    sys.exit(int(failed))


def check(name: str, model: LoadedModel, shape: str) -> bool:
    """Sample, compare with the trainer's logprobs, and see an update do what it should."""
    loss = LossConfig(kl_coef=0.001)
    trainer = Trainer(model, loss, OptimConfig(lr=1e-4, warmup_steps=0), token_budget=8192)
    started = time.perf_counter()
    samples = asyncio.run(rollout(LocalPolicy(model), shape))
    first = trainer.update(samples)
    second = trainer.update(samples)
    # bf16 differs between decoding and one pass over the row; more than this is a mistake.
    limit = 1e-3 if model.device.type == "cuda" else 1e-8
    fine = first["train/mismatch"] < limit and not second["train/updates_skipped"]
    fine = fine and second["train/pg_loss"] < first["train/pg_loss"] and second["train/kl"] > 0
    print(
        f"{name:14} mismatch {first['train/mismatch']:.1e} (largest ratio"
        f" {first['train/mismatch_ratio_max']:.3f}), loss {first['train/pg_loss']:.4f} ->"
        f" {second['train/pg_loss']:.4f}, kl {second['train/kl']:.1e},"
        f" {time.perf_counter() - started:.1f} s: {'ok' if fine else 'FAILED'}"
    )
    print(f"figure | mismatch, {name} | {first['train/mismatch']:.1e} | at most {limit:g}")
    return fine


async def rollout(policy: LocalPolicy, shape: str) -> list[Sample]:
    """Continue 4 prompts 16 times each; tokens of the vocabulary's lower half are rewarded."""
    size = SHAPES[shape]["vocab_size"]
    rng = np.random.default_rng(0)
    prompts = [rng.integers(4, size, 600 if i % 2 else 40).tolist() for i in range(4)]
    jobs = [policy.sample(prompts[i // 16], Sampling(max_tokens=32, seed=i)) for i in range(64)]
    replies = await asyncio.gather(*jobs)
    scores = np.array([np.mean(np.array(r.token_ids) < size // 2) for r in replies])
    samples = []
    for i, reply in enumerate(replies):
        prompt = prompts[i // 16]
        turn = Turn(len(prompt), reply.token_ids, reply.logprobs, reply.stop_reason)
        context = Context("answer", ids=[*prompt, *reply.token_ids], turns=[turn])
        group = scores[i // 16 * 16 : i // 16 * 16 + 16]
        samples.append(make_sample(context, float(scores[i] - group.mean()) * 10, i // 16, i))
    return samples


if __name__ == "__main__":
    main()

"""The warm-up of benchmarks/chronicle.py: episodes of a teacher, learned by likelihood.

    python -m benchmarks.chronicle_warm_up --model models/smollm2 --out runs/chronicle/warm

One model for all memories, from training tasks that no run uses. From that model, the same command
with --agents rag full_context makes one for baselines, which answer in one turn, and with --agents
babilong_qa1 babilong_qa2 babilong_qa3 one that reads BABILong. With a --rank it trains adapters,
and keeps them beside the merged model in a few megabytes; where these are there already, only the
model is written again.
"""

from __future__ import annotations

import argparse
import math
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from safetensors.torch import load_file, save_file

from benchmarks.chronicle_lessons import Lesson, keep, kept, prepare
from recollect.config.engine import LoraConfig, LossConfig, ModelConfig, OptimConfig
from recollect.models.model import LoadedModel, load_model
from recollect.train import saved_model
from recollect.train.predictions import by_sample
from recollect.train.trainer import Trainer
from recollect.types import Sample


def warm_up(
    model: LoadedModel, taught: list[Sample], asked: list[Lesson], o: argparse.Namespace
) -> None:
    """Train by likelihood: an advantage of 1 and no clipping; the rate falls at the end."""
    loss = LossConfig("cispo", clip_low=0.0, clip_high=0.0, kl_coef=0.0)
    optim = OptimConfig(o.lr, warmup_steps=20, weight_decay=0.0)
    trainer = Trainer(model, loss, optim, token_budget=o.token_budget)
    began = perf_counter()
    for at in range(0, len(taught), o.batch):
        left = (len(taught) - at) / len(taught)
        trainer.optimiser.config = replace(optim, lr=o.lr * min(1.0, 2 * left))
        metrics = trainer.update(taught[at : at + o.batch])
        if at // o.batch % 100 == 0:  # as many are asked as are learned from in ten batches
            said = f"{at:6} lessons, {perf_counter() - began:.0f} s"
            loss_now = f"loss {metrics['train/entropy']:.3f}"
            print(f"{said}, {loss_now}; {known(trainer, asked)}", flush=True)
    print(f"{len(taught)} lessons, {perf_counter() - began:.0f} s; {known(trainer, asked)}")


def known(trainer: Trainer, asked: list[Lesson]) -> str:
    """Say of every sort of held-out lesson how many a greedy reader would reply to as taught.

    At least: where each token has more than half of the probability.
    """
    model = trainer.model
    logprobs = by_sample(
        [sample for _, sample in asked],
        trainer.token_budget,
        model.device,
        True,
        lambda predicted: predicted.logprobs(model, 1.0),
    )
    right = defaultdict(list)
    for (what, _), own in zip(asked, logprobs, strict=True):
        right[what].append(bool(own.min() > math.log(0.5)))
    return ", ".join(f"{what} {sum(own) / len(own):.3f}" for what, own in sorted(right.items()))


def main() -> None:
    """Play, train, save; or only merge adapters that are there."""
    o = parse()
    adapter = o.out.with_suffix(".safetensors")
    torch.manual_seed(o.seed)
    lora = LoraConfig(o.rank, alpha=o.alpha)
    model = load_model(ModelConfig(str(o.model), o.device, lora))
    trained = {n: p for n, p in model.network.named_parameters() if p.requires_grad}
    if o.rank and adapter.exists():
        with torch.no_grad():
            for name, tensor in load_file(adapter).items():
                trained[name].copy_(tensor)
    else:
        files = [o.out.with_name(f"{o.out.name}-{name}.npz") for name in ("lessons", "held-out")]
        if not all(file.exists() for file in files):
            for file, own in zip(files, prepare(o), strict=True):
                keep(file, own)
        found, asked = (kept(file) for file in files)
        taught = [sample for _, sample in found]
        print(f"{len(taught)} lessons, {sum(len(s.token_ids) for s in taught)} tokens", flush=True)
        if o.only_lessons:
            return
        warm_up(model, taught, asked, o)
        adapter.parent.mkdir(parents=True, exist_ok=True)
        if o.rank:
            save_file({n: p.detach().bfloat16().contiguous() for n, p in trained.items()}, adapter)
    saved_model.export(o.out, model)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--agents", nargs="+", default=("gated",))
    parser.add_argument("--shares", nargs="+", type=float, default=(1.0,),
                        help="how many of the tasks each agent plays")  # fmt: skip
    parser.add_argument("--unchanged", nargs=2, type=float, default=(0.3, 0.2),
                        help="share of the pages that change nothing: near, elsewhere")  # fmt: skip
    numbers = {
        "tasks": 2304, "batch": 64, "rank": 0, "alpha": 32, "memory": 416, "blind-memory": 1024,
        "answer": 384, "token-budget": 1 << 15, "seed": 0, "processes": os.cpu_count() or 1,
    }  # fmt: skip
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--data", type=Path, default=Path("data"), help="holds babilong/")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only-lessons", action="store_true", help="make them, train nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()

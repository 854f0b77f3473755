"""Where a recipe stops scaling: MemAgent's 7B on 1 to 64 nodes, by phase, from measured rates.

python benchmarks/scale.py [--model Qwen2.5-14B] [--shared] [--tasks 512]
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import tyro

from recollect.engines.verl.launch.memory import GIB, demand
from recollect.engines.verl.launch.scale import Rates, RecipeStep, simulate
from recollect.engines.verl.launch.shapes import KNOWN

PHASES = ("prefill", "decode", "reference", "update", "exchange", "sync", "fixed")


@dataclass(frozen=True)
class Options:
    """What is simulated."""

    model: str = "Qwen2.5-7B"
    nodes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    tasks: int = 128
    mini_batches: int = 16
    shared: bool = False
    """Siblings share what they read (chunk before memory)."""
    gpu_gib: float = 141.0
    """Of an H200, like the rates."""
    steps: int = 400
    """For what a whole run costs."""


def main(options: Options) -> None:
    """Print the table of docs/cluster.md."""
    shape = KNOWN[options.model]
    work = RecipeStep(tasks=options.tasks, mini_batches=options.mini_batches, shared=options.shared)
    keys = {
        "trainer.n_gpus_per_node": 8,
        "actor_rollout_ref.actor.fsdp_config.fsdp_size": 8,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    }
    need = demand(shape, keys, options.gpu_gib * GIB)
    print(f"{options.model}: {shape.parameters / 1e9:.2f}B weights")
    print(
        f"a step: {work.episodes:,} episodes, {work.episodes * work.contexts:,} contexts,"
        f" {work.prefilled / 1e6:.1f}M tokens read, {work.episodes * work.written / 1e6:.2f}M"
        f" sampled, {work.tokens / 1e6:.1f}M trained on, {work.mini_batches} optimiser steps"
    )
    print(
        f"a GPU: {need.update / GIB:.0f} GiB for an update, {need.sampling / GIB:.0f} GiB while"
        f" sampling, a cache of {need.cached_tokens:,} tokens"
    )
    for field in dataclasses.fields(Rates):
        print(f"  {field.name:14s} {field.default:g}")
    print(
        "\n| nodes x 8 | "
        + " | ".join(PHASES)
        + f" | step, s | against 1 node | {options.steps} steps | GPU hours |"
    )
    print("|" + "---|" * (len(PHASES) + 5))
    first = simulate(shape, work, options.nodes[0], cache_tokens=need.cached_tokens)
    for nodes in options.nodes:
        step = simulate(shape, work, nodes, cache_tokens=need.cached_tokens)
        times = " | ".join(f"{getattr(step, name):.1f}" for name in PHASES)
        share = first.gpu_seconds / step.gpu_seconds
        hours = options.steps * step.seconds / 3600
        print(
            f"| {nodes} | {times} | {step.seconds:.0f} | {share:.0%} | {hours:.1f} h |"
            f" {hours * step.gpus:,.0f} |"
        )


if __name__ == "__main__":
    main(tyro.cli(Options))

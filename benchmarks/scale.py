"""Where a recipe stops scaling: MemAgent's 7B on 1 to 64 nodes, by phase, from measured rates.

It prints which of its numbers were measured, with the command of each, and which are assumed.
Another measurement is given as a flag: `--rates.vllm-fold 9000`.

    python benchmarks/scale.py [--model Qwen2.5-14B] [--shared] [--tasks 512] [--rates.sampler ...]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import tyro

from recollect.engines.verl.launch.memory import GIB, demand
from recollect.engines.verl.launch.rates import FOLD, LONE, RACED_1_5B, Rates, Source, sources
from recollect.engines.verl.launch.scale import RecipeStep, Step, simulate
from recollect.engines.verl.launch.shapes import KNOWN

PHASES = ("prefill", "decode", "reference", "update", "exchange", "sync", "fixed")
PUBLISHED = 600
"""GPU seconds per prompt: MemAgent reports 2,400 s a step on 32 GPUs for 128 prompts of its 7B."""

WHOLE = (
    "As a whole `python -m benchmarks.whole_loop` measured 60 s, 161 s and 27.5, with a cache of"
    " 20 GiB and layers that were not compiled."
)


@dataclass(frozen=True)
class Options:
    """What is simulated."""

    model: str = "Qwen2.5-7B"
    nodes: tuple[int, ...] = (1, 4, 16, 64)
    tasks: int = 128
    mini_batches: int = 16
    shared: bool = False
    """Siblings share what they read (chunk before memory)."""
    gpu_gib: float = 139.0
    """Of an H200, like the rates."""
    steps: int = 400
    """For what a whole run costs."""
    rates: Rates = field(default_factory=Rates)


def origins(options: Options, work: RecipeStep) -> Iterator[str]:
    """List what was measured with its command, then what is assumed with its reason."""
    numbers, usual = sources(options.rates), {s.name: s.value for s in sources(Rates())}
    given = [s for s in numbers if s.value != usual[s.name]]
    split = {
        "measured on one H200": ("command", [s for s in numbers if s.measured]),
        "assumed": ("reason", [s for s in (*numbers, *sources(work)) if not s.measured]),
    }
    for title, (origin, found) in split.items():
        yield f"\n| {title} | | {origin} |"
        yield "|---|---|---|"
        for source in found:
            why = "given on the command line" if source in given else _origin(source)
            yield f"| {source.what} | {_amount(source)} | {why} |"
    if options.model != "Qwen2.5-7B":
        yield f"| {options.model} | by its weights | the rates were measured with a 7B |"


def _amount(source: Source) -> str:
    if source.unit == "B/s":
        return f"{source.value / 1e9:,g} GB/s"
    return f"{source.value:,g} {source.unit}"


def _origin(source: Source) -> str:
    return f"`{source.origin}`" if source.measured else source.origin


def derived(rates: Rates) -> Iterator[str]:
    """Say what follows from the measured numbers, and how well it predicts another model."""
    small, shape = KNOWN["Qwen2.5-1.5B"], KNOWN["Qwen2.5-7B"]
    fold, lone = RACED_1_5B[rates.sampler]
    share, each = rates.decoding()
    yield (
        f"\nSo a GPU reads {rates.forward(shape):,.0f} tokens/s and trains on"
        f" {rates.train(shape):,.0f}; {rates.sampler} decodes at {share:.0%} of the bandwidth, and"
        f" each sequence adds {1e6 * each:.0f} µs to every token."
    )
    yield (
        f"For the 1.5B this predicts {rates.foretold(FOLD, small):,.0f} and"
        f" {rates.foretold(LONE, small):,.0f} new tokens/s in the race's fold and lone shapes; the"
        f" race measured {fold:,} and {lone:,}."
    )


def lines(options: Options) -> Iterator[str]:
    """Yield what docs/cluster.md shows."""
    shape = KNOWN[options.model]
    work = RecipeStep(tasks=options.tasks, mini_batches=options.mini_batches, shared=options.shared)
    keys = {
        "trainer.n_gpus_per_node": 8,
        "actor_rollout_ref.actor.fsdp_config.fsdp_size": 8,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    }
    need = demand(shape, keys, options.gpu_gib * GIB)
    yield (
        f"{options.model}, {shape.parameters / 1e9:.2f}B weights."
        f" A step: {work.episodes:,} episodes,"
        f" {work.episodes * work.contexts:,} contexts, {work.prefilled / 1e6:.1f}M tokens read,"
        f" {work.episodes * work.written / 1e6:.2f}M sampled, {work.tokens / 1e6:.1f}M trained on,"
        f" {work.mini_batches} optimiser steps."
    )
    yield (
        f"A GPU: {need.update / GIB:.0f} GiB for an update, {need.sampling / GIB:.0f} GiB while"
        f" sampling, a cache of {need.cached_tokens:,} tokens."
    )
    yield from origins(options, work)
    yield from derived(options.rates)
    head = " | ".join(PHASES)
    yield (
        f"\n| nodes x 8 | {head} | step, s | against 1 node | {options.steps} steps | GPU hours"
        " | GPU s per prompt |"
    )
    yield "|" + "---|" * (len(PHASES) + 6)
    steps = [
        simulate(shape, work, nodes, cache_tokens=need.cached_tokens, rates=options.rates)
        for nodes in options.nodes
    ]
    for nodes, step in zip(options.nodes, steps, strict=True):
        yield row(options, nodes, step, steps[0])
    yield from alone(options.rates)


def row(options: Options, nodes: int, step: Step, first: Step) -> str:
    """Lay out one number of nodes."""
    times = " | ".join(f"{getattr(step, name):.1f}" for name in PHASES)
    hours = options.steps * step.seconds / 3600
    return (
        f"| {nodes} | {times} | {step.seconds:.0f} | {first.gpu_seconds / step.gpu_seconds:.0%}"
        f" | {hours:.1f} h | {hours * step.gpus:,.0f} | {step.gpu_seconds / options.tasks:.0f} |"
    )


def alone(rates: Rates) -> Iterator[str]:
    """Foretell what `benchmarks/whole_loop.py` measures: the embedded engine on one GPU."""
    shape = KNOWN["Qwen2.5-7B"]
    work = RecipeStep(tasks=8, chunk=5000, longest=500, mini_batches=1, reference=False,
                      shared=True, trie=True)  # fmt: skip
    own = Rates(**{**vars(rates), "sampler": "recollect", "fixed": 0.0})
    step = simulate(shape, work, 1, 1, int(30 * GIB / shape.kv_bytes), own)
    prompt = step.seconds / work.tasks
    yield (
        f"\nThe embedded engine on one GPU, 8 prompts x 16, chunk first, trained as a trie, a cache"
        f" of 30 GiB, no reference: {step.prefill + step.decode:.0f} s of rollout,"
        f" {step.update:.0f} s of update, {prompt:.0f} GPU seconds per prompt (MemAgent published"
        f" {PUBLISHED}). {WHOLE}"
    )


def main(options: Options) -> None:
    """Print it."""
    for line in lines(options):
        print(line)


if __name__ == "__main__":
    main(tyro.cli(Options))

"""One update's gradient on a task of six chunks and sixteen rollouts: the trie beside packed rows.

Random weights in the shape of a known model, on one GPU. Both ways run in one process on the same
samples; both use the same attention kernel, without padding. Effective rates count logical tokens,
those of the rows, whichever way they were computed.

    python benchmarks/train_step.py [--shape 7b|1.5b|smollm2] [--order chunk_first|memory_first]
    python benchmarks/train_step.py --turns 30    # a conversation with tools, a row per turn

A micro-batch has at most the tokens that should fit beside weights and gradients; see what it says.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from recollect.config.engine import LossConfig, OptimConfig
from recollect.models import attention
from recollect.models import model as model_module
from recollect.models.activations import tokens_within
from recollect.models.model import LoadedModel
from recollect.models.trie import levels
from recollect.models.trie.pack import plan_micro_batches
from recollect.train.rows import Row
from recollect.train.trainer import Trainer
from recollect.types import Sample

SHAPES: dict[str, dict[str, Any]] = {
    "7b": dict(
        hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152064,
    ),
    "1.5b": dict(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True,
    ),
    "smollm2": dict(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, vocab_size=49152, tie_word_embeddings=True,
    ),
}  # fmt: skip
TEMPLATE, CHUNK, MEMORY, RESPONSE = 180, 5000, 500, 500
TOOLS, CALL, RESULT = 2000, 60, 120
"""A conversation with tools: what is said first, a reply, and what a tool returns."""


@dataclass(frozen=True)
class Vocabulary:
    """All that the trainer asks of a tokenizer."""

    vocab_size: int


def make_model(options: argparse.Namespace) -> LoadedModel:
    """Make a model with random weights on the GPU."""
    layers = {"num_hidden_layers": options.layers} if options.layers else {}
    config = Qwen2Config(**(SHAPES[options.shape] | layers), max_position_embeddings=1 << 15)
    device = torch.device("cuda")
    with device:
        network: Any = AutoModelForCausalLM.from_config(
            config,
            dtype=getattr(torch, options.weights),
            attn_implementation=attention.NAME,
            trust_remote_code=False,
        )
    network.gradient_checkpointing_enable({"use_reentrant": False})
    network.eval()
    tokenizer: Any = Vocabulary(config.vocab_size)
    return LoadedModel(
        network, tokenizer, device, 1 << 15, options.recompute, compile=options.compile
    )


def task(chunks: int, group: int, vocabulary: int, order: str, seed: int = 0) -> list[Sample]:
    """Make the contexts of one task's rollouts: every chunk, then the answer."""
    rng = np.random.default_rng(seed)
    template = rng.integers(4, vocabulary, TEMPLATE)
    texts = [rng.integers(4, vocabulary, CHUNK) for _ in range(chunks)]
    samples = []
    for episode in range(group):
        memory = rng.integers(4, vocabulary, 0)
        for text in [*texts, rng.integers(4, vocabulary, 0)]:
            parts = [text, memory] if order == "chunk_first" else [memory, text]
            reply = rng.integers(4, vocabulary, RESPONSE)
            ids = np.concatenate([template, *parts, reply])
            trained = np.arange(len(ids)) >= len(ids) - RESPONSE
            advantages = np.where(trained, episode % 2 - 0.5, 0).astype(np.float32)
            logprobs = np.where(trained, -np.log(vocabulary), 0).astype(np.float32)
            samples.append(Sample(ids, trained, advantages, logprobs, 0, episode))
            memory = reply
    return samples


def tool_task(turns: int, group: int, vocabulary: int, seed: int = 0) -> list[Sample]:
    """Make the contexts of one task's conversations, each turn with all that was said before it."""
    rng = np.random.default_rng(seed)
    start = rng.integers(4, vocabulary, TOOLS)
    samples = []
    for episode in range(group):
        said = start
        for _ in range(turns):
            ids = np.concatenate([said, rng.integers(4, vocabulary, CALL)])
            trained = np.arange(len(ids)) >= len(said)
            advantages = np.where(trained, episode % 2 - 0.5, 0).astype(np.float32)
            logprobs = np.where(trained, -np.log(vocabulary), 0).astype(np.float32)
            samples.append(Sample(ids, trained, advantages, logprobs, 0, episode))
            said = np.concatenate([ids, rng.integers(4, vocabulary, RESULT)])
    return samples


def logical_flops(model: LoadedModel, samples: Sequence[Sample]) -> float:
    """Count what rows would cost: 6 per weight and token, the head at trained tokens, attention."""
    config = model.network.config
    embedded = config.vocab_size * config.hidden_size
    total = sum(p.numel() for p in model.network.parameters())
    body = total - embedded * (1 if config.tie_word_embeddings else 2)
    lengths = np.array([len(sample.token_ids) - 1 for sample in samples])
    trained = sum(int(sample.trained.sum()) for sample in samples)
    # Two matrix products over half of the square, forward once and backward twice.
    attended = 6.0 * config.hidden_size * config.num_hidden_layers * float((lengths**2).sum())
    return 6.0 * body * float(lengths.sum()) + 6.0 * embedded * trained + attended


@dataclass(frozen=True)
class Figures:
    """What one way of computing the gradient took."""

    seconds: float
    tokens: int
    gib: float
    """Peak above what was there before: the weights, and gradients if there were any."""


def measure(
    trainer: Trainer, samples: Sequence[Sample], share: bool, budget: int, repeats: int = 1
) -> Figures:
    """Time the gradient of one mini-batch, which is added to what is there."""
    trainer.share, trainer.token_budget = share, budget
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        started = time.perf_counter()
        tokens = gradient(trainer, samples)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        peak = torch.cuda.max_memory_allocated() - before
    return Figures(statistics.median(seconds), tokens, peak / 2**30)


def fitting(
    trainer: Trainer,
    first: Sequence[Sample],
    samples: Sequence[Sample],
    share: bool,
    budget: int,
    repeats: int,
) -> Figures:
    """Measure after a first pass over some samples, in micro-batches halved until they fit."""
    while True:
        try:
            measure(trainer, first, share, budget)
            return measure(trainer, samples, share, budget, repeats)
        except torch.OutOfMemoryError:
            budget //= 2
        trainer.optimiser.drop()
        torch.cuda.empty_cache()
        print(f"{'trie' if share else 'rows'}: out of memory; at most {budget} tokens at once now")


def gradient(trainer: Trainer, samples: Sequence[Sample]) -> int:
    """Add up the gradient of a mini-batch; return the tokens computed."""
    tokens = 0
    weight = 1.0 / sum(int(sample.trained.sum()) for sample in samples)
    plan = plan_micro_batches if trainer.share else plan_rows
    with trainer.model.training():
        for run in plan(samples, trainer.token_budget):
            tokens += trainer._backward([Row(samples[i], weight) for i in run])[2]
    return tokens


def plan_rows(samples: Sequence[Sample], token_budget: int) -> list[list[int]]:
    """Cut samples into runs of at most `token_budget` tokens."""
    runs: list[list[int]] = [[]]
    left = token_budget
    for i, sample in enumerate(samples):
        if len(sample.token_ids) > left and runs[-1]:
            runs.append([])
            left = token_budget
        runs[-1].append(i)
        left -= len(sample.token_ids)
    return runs


@contextmanager
def as_others_do() -> Iterator[None]:
    """Give all rows to one call of FlashAttention, and compute the whole of the last layer."""
    before = levels.LARGE, model_module.sparse_end
    levels.LARGE, model_module.sparse_end = 1 << 62, lambda _network: nullcontext()
    try:
        yield
    finally:
        levels.LARGE, model_module.sparse_end = before


def compare(options: argparse.Namespace) -> None:
    """Print rows beside the trie, for every share of layers that recompute."""
    options.recompute, *more = options.recompute
    model = make_model(options)
    trainer = Trainer(model, LossConfig(kl_coef=0.0), OptimConfig())
    everything = sum(p.numel() for p in model.network.parameters())
    vocabulary = model.tokenizer.vocab_size
    what = (
        f"{options.turns} turns with tools"
        if options.turns
        else f"{options.chunks} x {CHUNK} tokens, {options.order}"
    )
    print(
        f"\n{options.shape}, {model.network.config.num_hidden_layers} layers,"
        f" {everything / 1e9:.2f}B weights, G = {options.group}, {what},"
        f" {options.weights} weights, compiled {options.compile}"
    )
    if options.turns:
        samples = tool_task(options.turns, options.group, vocabulary)
        first = samples[: 2 * options.turns]
    else:
        samples = task(options.chunks, options.group, vocabulary, options.order)
        # The shapes are those of a first chunk, of one with a memory, and of an answer.
        first = task(min(options.chunks, 2), options.group, vocabulary, options.order)
    logical = sum(len(sample.token_ids) - 1 for sample in samples)
    flops = 6.0 * everything * logical, logical_flops(model, samples)
    head = ("recompute", 10), ("tokens", 10), ("seconds", 10), ("GiB", 8), ("6NT TFLOP/s", 14)
    print(f"{'':8}{''.join(f'{name:>{width}}' for name, width in head)}{'strict':>10}")
    # A micro-batch of rows holds the contexts of one chunk, one of tries as many as are asked for.
    row = TEMPLATE + CHUNK + MEMORY + RESPONSE
    trie = row + options.group * (MEMORY + RESPONSE)
    if options.turns:
        row = TOOLS + options.turns * (CALL + RESULT)
        trie = options.group * row
    budgets = {False: (options.rows or options.group) * row, True: options.together * trie}
    if options.order == "memory_first":
        budgets[True] = options.group * row
    ways = [(True, "trie"), (False, "rows")] + [(False, "varlen")] * options.varlen
    for model.recompute in (options.recompute, *more):
        found: dict[str, Figures] = {}
        most = tokens_at_once(model, everything)
        for share, name in ways:
            few = first if share or options.turns else first[: options.group]
            with as_others_do() if name == "varlen" else nullcontext():
                budget = min(budgets[share], most)
                it = fitting(trainer, few, samples, share, budget, options.repeats)
            found[name] = it
            speed, strict = (count / it.seconds / 1e12 for count in flops)
            measured = f"{it.tokens:10}{it.seconds:10.3f}{it.gib:8.1f}{speed:14.0f}{strict:10.0f}"
            print(f"{name:8}{model.recompute:10g}{measured}", flush=True)
        trie_ = found.pop("trie")
        for name, rows in found.items():
            possible, found_ = rows.tokens / trie_.tokens, rows.seconds / trie_.seconds
            saved = f"{found_ / possible:.0%} of the {possible:.2f}x that fewer tokens could save"
            held = f"{name}; {saved}; {trie_.gib / rows.gib:.2f}x the memory"
            print(f"figure | speed, {model.recompute:g} recomputed | {found_:.2f}x | {held}")
        speed, strict = (count / trie_.seconds / 1e12 for count in flops)
        done = f"{speed:,.0f} | {strict:,.0f} strictly counted"
        print(f"figure | effective TFLOP/s, {model.recompute:g} recomputed | {done}", flush=True)


def tokens_at_once(model: LoadedModel, weights: int) -> int:
    """Estimate, and print, how many tokens fit beside the weights and float32 gradients."""
    config = model.network.config
    free = (torch.cuda.mem_get_info()[0] - 4 * weights) / 2**30
    size = config.num_hidden_layers * config.hidden_size
    most = tokens_within(size, model.recompute, free, model.compile)
    print(f"{free:.0f} GiB are left beside weights and gradients: at most {most} tokens at once")
    return most


def scaling(options: argparse.Namespace) -> None:
    """Print the trie's cost against chunks and group."""
    (options.recompute,) = options.recompute
    model, base = make_model(options), None
    trainer = Trainer(model, LossConfig(kl_coef=0.0), OptimConfig())
    print(f"\nseconds of the trie, {options.shape}, {options.order}")
    for chunks, group in [(3, 8), (6, 8), (12, 8), (24, 8), (6, 4), (6, 16), (6, 32)]:
        first, samples = (
            task(count, group, model.tokenizer.vocab_size, options.order) for count in (2, chunks)
        )
        it = fitting(trainer, first, samples, True, 1 << 16, 1)
        base = base or it.seconds / (3 * 8)
        print(
            f"{chunks:4} chunks, G = {group:3}: {it.seconds:8.3f} s,"
            f" {it.seconds / (chunks * group) / base:5.2f} of the first line per chunk and rollout"
        )
    least = it.seconds / (chunks * group) / base
    print(f"figure | cost of a chunk and rollout, G = {group} | {least:.2f} | 3 chunks, G = 8: 1")


def whole_step(options: argparse.Namespace) -> None:
    """Print what a whole update takes: gradient, clipping, AdamW with its averages on the host."""
    (options.recompute,) = options.recompute
    model = make_model(options)
    samples = task(options.chunks, options.group, model.tokenizer.vocab_size, options.order)
    optim = OptimConfig(offload=True)
    row = TEMPLATE + CHUNK + options.group * (MEMORY + RESPONSE) + MEMORY
    trainer = Trainer(model, LossConfig(kl_coef=0.0), optim, token_budget=row)
    for number in range(2):
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        started = time.perf_counter()
        trainer.update(samples)
        torch.cuda.synchronize()
        print(
            f"update {number + 1}: {time.perf_counter() - started:.1f} s,"
            f" peak {torch.cuda.max_memory_allocated() / 2**30:.0f} GiB in all"
        )


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--layers", type=int, help="fewer than the shape has")
    parser.add_argument("--order", choices=["chunk_first", "memory_first"], default="chunk_first")
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--chunks", type=int, default=6)
    parser.add_argument("--turns", type=int, default=0, help="of a conversation with tools instead")
    parser.add_argument("--recompute", type=float, nargs="+", default=[1.0])
    parser.add_argument("--weights", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--rows", type=int, help="rows in a micro-batch; a group if not given")
    parser.add_argument("--varlen", action="store_true", help="also rows as other trainers do them")
    parser.add_argument("--together", type=int, default=1, help="chunks of tries in a micro-batch")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repeats", type=int, default=1)
    modes = {"compare": compare, "scaling": scaling, "whole": whole_step}
    parser.add_argument("--mode", choices=modes, default="compare")
    options = parser.parse_args()
    modes[options.mode](options)


if __name__ == "__main__":
    main()

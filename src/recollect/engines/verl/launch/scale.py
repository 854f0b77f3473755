"""How long a step takes on how many GPUs, on paper: phases from measured rates and sizes.

One step is a batch of tasks with G episodes each, an episode a chain of contexts (every chunk, then
the answer). All GPUs first sample, then compute the reference's log-probabilities, then train; the
weights go back to the samplers. What a phase takes is its work divided by the GPUs, until something
that cannot be divided is longer:

    prefill    tokens read / (GPUs x forward rate)
    decode     steps of the longest chain x the time of one token for all sequences
    reference  tokens / (GPUs x forward rate)
    update     per mini-batch: the fullest GPU's rows / train rate + exchange of gradients
    sync       weights to every sampler, within its node

A GPU that has no episode, or no row of a mini-batch, waits. Knows nothing of verl: it says what
verl's synchronous trainer could do at best with these rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from recollect.engines.verl.launch.rates import Rates, assumed
from recollect.engines.verl.launch.shapes import Shape


@dataclass(frozen=True)
class RecipeStep:
    """One step of a recipe. The defaults are MemAgent's for 7B: 200 documents, batch 128, n 16."""

    tasks: int = 128
    group: int = 16
    chunks: int = 6
    """28,069 tokens on average, 5,000 at a time."""
    chunk: int = 4678
    around: int = 300
    """Question and template."""
    memory: int = assumed(500, "tokens", "a memory on average", "at most 1,024")
    answer: int = assumed(200, "tokens", "an answer on average", "at most 1,024")
    longest: int = assumed(
        1024, "tokens", "what the slowest episode writes into every context", "the others wait"
    )
    mini_batches: int = 16
    reference: bool = True
    """Whether a reference's log-probabilities are computed."""
    shared: bool = False
    """Whether siblings share what they read (chunk before memory): prefilled once per task."""
    trie: bool = False
    """Whether they are trained as a trie too, as the embedded engine does."""

    @property
    def episodes(self) -> int:
        return self.tasks * self.group

    @property
    def contexts(self) -> int:
        """Contexts of one episode."""
        return self.chunks + 1

    @property
    def read(self) -> int:
        """Tokens of the prompts of one episode."""
        return self.chunks * (self.chunk + self.around + self.memory) + self.around + self.memory

    @property
    def written(self) -> int:
        """Tokens that one episode samples."""
        return self.chunks * self.memory + self.answer

    @property
    def tokens(self) -> int:
        """Tokens of all contexts of a step: what is trained on."""
        return self.episodes * (self.read + self.written)

    @property
    def prefilled(self) -> float:
        """Tokens that samplers compute before they write."""
        alone = self.episodes * self.read
        saved = (self.group - 1) * self.tasks * self.chunks * (self.chunk + self.around)
        return alone - saved * self.shared


@dataclass(frozen=True)
class Step:
    """Seconds of one step by phase."""

    gpus: int
    prefill: float
    decode: float
    reference: float
    update: float
    exchange: float
    """Seconds of the update spent waiting for other nodes."""
    sync: float
    fixed: float

    @property
    def seconds(self) -> float:
        parts = (self.prefill, self.decode, self.reference, self.update, self.exchange, self.sync)
        return sum(parts) + self.fixed

    @property
    def gpu_seconds(self) -> float:
        return self.gpus * self.seconds


def simulate(
    shape: Shape,
    work: RecipeStep,
    nodes: int,
    gpus_per_node: int = 8,
    cache_tokens: int = 595_000,
    rates: Rates | None = None,
) -> Step:
    """Estimate one step; `cache_tokens` is what the cache of one GPU's sampler holds."""
    rates = rates or Rates()
    gpus = nodes * gpus_per_node
    rows = work.episodes * work.contexts / work.mini_batches
    row = work.tokens / (work.episodes * work.contexts)
    fullest = math.ceil(rows / gpus)
    gradients = 4 * shape.parameters / gpus_per_node  # a node shares one copy
    around = 2 * gradients * (nodes - 1) / nodes / rates.network
    within = 3 * 4 * shape.parameters * (gpus_per_node - 1) / gpus_per_node / rates.link
    # Weights are gathered and gradients scattered once per micro-batch, beside the computation.
    one = max(fullest * row / rates.train(shape, work.trie), within)
    return Step(
        gpus=gpus,
        prefill=max(
            work.prefilled / (gpus * rates.forward(shape)),
            work.read / rates.forward(shape),  # of one episode, on one GPU
        ),
        decode=_decode(shape, work, gpus, cache_tokens, rates),
        reference=work.reference * work.tokens / (gpus * rates.forward(shape)),
        update=work.mini_batches * one,
        exchange=work.mini_batches * around,
        sync=2 * shape.parameters / rates.sync,
        fixed=rates.fixed,
    )


def _decode(shape: Shape, work: RecipeStep, gpus: int, cache_tokens: int, rates: Rates) -> float:
    """Sample: the average chain with a full GPU, then the slowest one nearly alone."""
    context = work.read / work.contexts + work.memory
    waiting = math.ceil(work.episodes / gpus)
    at_once = max(1, min(waiting, int(cache_tokens / context)))
    full = rates.draw(shape, at_once, context)
    alone = rates.draw(shape, 1, context)
    tail = work.contexts * work.longest - work.written
    return waiting / at_once * work.written * full + tail * alone  # places are filled as they free

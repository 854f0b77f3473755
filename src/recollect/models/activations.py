"""What a token keeps on the GPU from a forward pass to its backward pass: an estimate.

Scaled from what `python benchmarks/train_step.py --weights bfloat16` measured for a 7B whose layers
were compiled, with `--recompute 0` and `1`, by layers and width. Knows nothing of torch.
"""

from __future__ import annotations

TOKENS, SIZE = 21_180, 28 * 3584
"""Tokens at once, and layers x width, of what was measured ..."""
KEPT, RECOMPUTED = 65.0, 9.1
"""... and its GiB above weights and gradients, where no layer or every layer recomputes."""
PLAIN = 2.0
"""Layers that are not compiled keep this many times as much (a 1.5B: 60 GiB beside 30)."""
SPARE = 0.1
"""Share of a GPU for kernels' workspaces, CUDA itself and memory in pieces."""


def per_token(size: int, recompute: float, compiled: bool = True) -> float:
    """Return GiB that a token keeps; `size` is layers x width."""
    kept = KEPT if compiled else PLAIN * KEPT
    return ((1 - recompute) * kept + recompute * RECOMPUTED) / TOKENS * size / SIZE


def tokens_within(size: int, recompute: float, gib: float, compiled: bool = True) -> int:
    """Return how many tokens at once an update can take, with something to spare."""
    return max(1, int(gib * (1 - SPARE) / per_token(size, recompute, compiled)))

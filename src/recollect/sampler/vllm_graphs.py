"""For how many sequences vLLM records CUDA graphs. Knows nothing of torch or vLLM."""

from __future__ import annotations


def graph_sizes(sequences: int) -> list[int]:
    """Return the numbers of sequences for which vLLM records CUDA graphs, up to all of them.

    Its own choice ends at 512, beyond which every kernel is launched by itself; and it has one
    for every eighth number, each of which costs time at the start.
    """
    few = [n for n in (1, 2, 4, 8, 16, 32) if n < sequences]
    return [*few, *range(64, sequences, 64), sequences]

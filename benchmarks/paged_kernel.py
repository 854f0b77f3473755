"""The sampler's kernels on a GPU beside plain torch: how far they are off, for odd shapes too.

    python benchmarks/paged_kernel.py

With TRITON_INTERPRET=1 and `--device cpu` the same runs, slowly, without a GPU.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch

from recollect.models.attention import Heads, masked_attention
from recollect.sampler.paged_kernels import attend_runs, attend_tokens

PAGE, PAGES, TILE = 32, 80, 64


@dataclass(frozen=True)
class Case:
    """One layer's shape."""

    q_heads: int
    heads: int
    width: int
    window: int | None = None
    softcap: float | None = None


CASES = (
    Case(9, 3, 64),
    Case(28, 4, 128),
    Case(4, 4, 32, window=20),
    Case(8, 2, 80, softcap=30.0),
    Case(8, 4, 256, window=100, softcap=50.0),
)


@dataclass(frozen=True)
class Sequences:
    """Keys and values in pages, and the pages of some sequences."""

    keys: torch.Tensor
    values: torch.Tensor
    lengths: list[int]
    owned: list[torch.Tensor]

    @classmethod
    def random(cls, case: Case, lengths: list[int], dtype: torch.dtype, device: str) -> Sequences:
        """Scatter sequences over the pages."""
        shape = (PAGES * PAGE, case.heads, case.width)
        keys, values = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
        owned = [torch.randperm(PAGES, device=device)[: -(-n // PAGE)] for n in lengths]
        return cls(keys, values, lengths, owned)

    @property
    def pages(self) -> torch.Tensor:
        return torch.cat(self.owned).int()

    @property
    def begin(self) -> torch.Tensor:
        counts = torch.tensor([len(own) for own in self.owned])
        return (counts.cumsum(0) - counts).to(self.keys.device)

    def expected(self, case: Case, heads: Heads, number: int, query: torch.Tensor) -> torch.Tensor:
        """Attend with plain torch in float32: the queries are the sequence's last tokens."""
        at = torch.arange(self.lengths[number], device=query.device)
        place = self.owned[number][at // PAGE] * PAGE + at % PAGE
        own = at[-len(query) :, None]
        seen = at <= own
        if case.window:
            seen &= at > own - case.window
        q, k, v = (
            x.float().transpose(0, 1)[None] for x in (query, self.keys[place], self.values[place])
        )
        return masked_attention(heads, q, k, v, seen[None, None])[0].transpose(0, 1)


def off_tokens(case: Case, heads: Heads, rows: int, dtype: torch.dtype, device: str) -> float:
    """Return the largest error of single tokens."""
    lengths = torch.randint(1, 700, (rows,)).tolist()
    some = Sequences.random(case, lengths, dtype, device)
    query = torch.randn(rows, case.q_heads, case.width, device=device).to(dtype)
    before = torch.tensor(lengths, device=device) - 1
    out = attend_tokens(heads, query, some.keys, some.values, some.pages, some.begin, before, PAGE)
    return max(
        float((out[i].float() - some.expected(case, heads, i, query[i : i + 1])[0]).abs().max())
        for i in range(rows)
    )


def off_runs(case: Case, heads: Heads, dtype: torch.dtype, device: str, tile: int) -> float:
    """Return the largest error of runs of tokens, with padding behind them."""
    sizes, lengths = [1, 70, 130, 64], [1, 75, 230, 397]
    if tile < TILE:
        sizes = [1, 10, 16, 7]  # as steps with drafts have them
    some = Sequences.random(case, lengths, dtype, device)
    ends = torch.tensor(sizes).cumsum(0)
    tiles = torch.full((2, 40), -1)
    number = 0
    for run, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True)):
        for first in range(end - size, end, tile):
            tiles[:, number] = torch.tensor([run, first])
            number += 1
    runs = torch.zeros(3, 9, dtype=torch.long, device=device)
    runs[:, :4] = torch.stack([ends.to(device), torch.tensor(lengths, device=device), some.begin])
    total = int(ends[-1])
    query = torch.randn(case.q_heads, total + 5, case.width, device=device).to(dtype)
    query = query.transpose(0, 1)
    tiles = tiles.to(device)[:, :20]
    out = attend_runs(heads, query, some.keys, some.values, some.pages, tiles, runs, PAGE, tile)
    worst = float(out[total:].float().abs().max())  # padding stays zero
    for run, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True)):
        expected = some.expected(case, heads, run, query[end - size : end])
        worst = max(worst, float((out[end - size : end].float() - expected).abs().max()))
    return worst


def main() -> None:
    """Check all cases and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.manual_seed(0)
    whole = options.device == "cuda"  # the interpreter does not know bfloat16, and is slow
    worst: dict[str, float] = {}
    print(f"{'case':58}{'dtype':>10}{'1 row':>10}{'300 rows':>10}{'runs':>10}{'drafts':>10}")
    for case in CASES:
        heads = Heads(0, case.width**-0.5, case.window, case.softcap)
        for dtype in (torch.float32, torch.bfloat16)[: 1 + whole]:
            errors = [
                off_tokens(case, heads, 1, dtype, options.device),
                off_tokens(case, heads, 300 if whole else 3, dtype, options.device),
                off_runs(case, heads, dtype, options.device, TILE),
                off_runs(case, heads, dtype, options.device, 16),
            ]
            name = str(dtype).removeprefix("torch.")
            print(f"{case!s:58}{name:>10}" + "".join(f"{error:10.1e}" for error in errors))
            limit = 1e-5 if dtype == torch.float32 else 0.05
            assert max(errors) < limit, "a kernel is off"
            worst[name] = max(worst.get(name, 0.0), *errors)
    for name, off in worst.items():
        print(f"figure | largest error of {len(CASES)} cases, {name} | {off:.1e} | plain attention")


if __name__ == "__main__":
    main()

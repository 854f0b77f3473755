"""The sampler's kernels on a GPU beside plain torch: how far they are off, for odd shapes too.

Then what a layer's attention takes where siblings begin alike: read for each, and read once; and
what reading prompts takes, beside torch's own attention to the same numbers without pages.

    python benchmarks/paged_kernel.py

With TRITON_INTERPRET=1 and `--device cpu` the same runs, slowly, without a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from recollect.models.attention import Heads, masked_attention
from recollect.sampler.paged_kernels import attend_runs, attend_tokens
from recollect.sampler.prefixes import SharedRows

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
class Siblings:
    """Running sequences of groups, each group with a beginning of its own."""

    name: str
    case: Case
    groups: int
    siblings: int
    shared: int
    own: int


SIBLINGS = (
    Siblings("135M, fold", CASES[0], 64, 16, 896, 160),
    Siblings("135M, whole window", CASES[0], 64, 8, 7040, 160),
    Siblings("7B, chunk first", CASES[1], 8, 16, 5056, 1600),
    Siblings("7B, memory first", CASES[1], 8, 16, 64, 6592),
)


@dataclass(frozen=True)
class Prompts:
    """Prompts read at once, all alike: what is in the cache of each, and what is new."""

    name: str
    case: Case
    count: int
    cached: int
    new: int

    def flops(self) -> float:
        """Count two products over what each new token sees."""
        seen = self.new * (self.cached + (self.new + 1) / 2)
        return 4.0 * self.case.width * self.case.q_heads * self.count * seen


PROMPTS = (
    Prompts("135M, fold", CASES[0], 1024, 896, 103),
    Prompts("7B, long alone", CASES[1], 8, 0, 6000),
    Prompts("7B, a turn with tools", CASES[1], 128, 2000, 70),
    Prompts("7B, chunk first", CASES[1], 16, 5184, 1000),
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


def time_siblings(some: Siblings, device: str) -> tuple[float, float, float]:
    """Return milliseconds of a layer, read for each and read once, and how far these differ."""
    case, rows = some.case, some.groups * some.siblings
    first, rest = some.shared // PAGE, -(-some.own // PAGE)
    count = some.groups * first + rows * rest
    numbers = torch.randperm(count, device=device).int()
    begun = numbers[: some.groups * first].view(some.groups, 1, first)
    begun = begun.expand(-1, some.siblings, -1).reshape(rows, first)
    pages = torch.cat((begun, numbers[some.groups * first :].view(rows, rest)), 1).contiguous()
    begin = torch.arange(rows, device=device) * pages.shape[1]
    lengths = torch.full((rows,), some.shared + some.own - 1, device=device)
    shape = (count * PAGE, case.heads, case.width)
    keys, values = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(2))
    query = torch.randn(rows, case.q_heads, case.width, device=device, dtype=torch.bfloat16)
    common = np.where(np.arange(rows) % some.siblings, some.shared, 0)
    tiles = SharedRows(rows, case.q_heads // case.heads, torch.device(device))
    found = tiles.find(common, lengths.cpu().numpy())
    if found:
        tiles.load(found)
    heads = Heads(0, case.width**-0.5)
    ways = (None, tiles.of(rows) if found else None)
    outs, times = [], []
    for shared in ways:
        run = partial(attend_tokens, heads, query, keys, values, pages.flatten(), begin, lengths,
                      PAGE, shared)  # fmt: skip
        outs.append(run())
        times.append(milliseconds(run))
    return times[0], times[1], float((outs[0].float() - outs[1].float()).abs().max())


def reading(
    some: Prompts, device: str, dtype: torch.dtype
) -> tuple[Callable[[], torch.Tensor], ...]:
    """Return two ways to read prompts, as (N, Hq, D): from pages, and torch's own without pages."""
    case, length = some.case, some.cached + some.new
    held = -(-length // PAGE)
    pages = torch.randperm(some.count * held, device=device).int()
    shape = (some.count * held * PAGE, case.heads, case.width)
    keys, values = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    query = torch.randn(some.count * some.new, case.q_heads, case.width, device=device).to(dtype)
    first = torch.arange(0, some.new, TILE, device=device)
    number = torch.arange(some.count, device=device)
    tiles = torch.stack([number.repeat_interleave(len(first)),
                         (number[:, None] * some.new + first).flatten()])  # fmt: skip
    runs = torch.stack([(number + 1) * some.new, torch.full_like(number, length), number * held])
    heads = Heads(0, case.width**-0.5)
    ours = partial(attend_runs, heads, query, keys, values, pages, tiles, runs, PAGE, TILE)
    at = torch.arange(length, device=device)
    place = pages.view(some.count, held).long()[:, at // PAGE] * PAGE + at % PAGE
    q, k, v = (x.transpose(1, 2).contiguous() for x in (
        query.view(some.count, some.new, case.q_heads, case.width), keys[place], values[place]
    ))  # fmt: skip
    seen = causal_lower_right(some.new, length)

    def theirs() -> torch.Tensor:
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
        return out.transpose(1, 2).reshape(query.shape)

    return ours, theirs


def milliseconds(run: Callable[[], object], times: int = 50) -> float:
    """Return how long one call takes on a GPU, without what the host adds to each."""
    graph = torch.cuda.CUDAGraph()
    run()
    with torch.cuda.graph(graph):
        run()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    began.record()
    for _ in range(times):
        graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return began.elapsed_time(ended) / times


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
    if not whole:
        return
    print(f"\n{'siblings':22}{'for each':>12}{'once':>12}{'ratio':>8}{'apart':>10}")
    for some in SIBLINGS:
        each, once, off = time_siblings(some, options.device)
        print(f"{some.name:22}{each:9.3f} ms{once:9.3f} ms{each / once:7.2f}x{off:10.1e}")
        print(f"figure | attention to siblings, {some.name} | {each / once:.2f}x | read for each")
        assert off < 0.05, "shared keys are off"
    print(f"\n{'reading prompts':22}{'pages':>12}{'torch':>12}{'TFLOP/s':>10}")
    for each in PROMPTS:
        ours, theirs = reading(each, options.device, torch.bfloat16)
        assert (ours().float() - theirs().float()).abs().max() < 0.05, "prompts are off"
        took, beside = milliseconds(ours), milliseconds(theirs)
        rate = each.flops() / took / 1e9
        print(f"{each.name:22}{took:9.3f} ms{beside:9.3f} ms{rate:10.0f}")
        print(
            f"figure | attention of prompts, {each.name} | {took:.3f} ms | torch: {beside:.3f} ms"
        )


if __name__ == "__main__":
    main()

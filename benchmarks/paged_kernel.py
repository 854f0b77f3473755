"""The sampler's kernels on a GPU beside plain torch: first how far they are off (`paged_check`).

Then what a layer's attention takes where siblings begin alike: read for each, and read once; and
what reading prompts takes, beside torch's own attention to the same numbers without pages.

    python -m benchmarks.paged_kernel
    python -m benchmarks.paged_kernel --sweep   # only reading, with the kernel cut in many ways

With TRITON_INTERPRET=1 and `--device cpu` the same runs, slowly, without a GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.paged_check import cases_of, check, off_case
from benchmarks.paged_shapes import PAGE, PROMPTS, SIBLINGS, Prompts, Siblings
from recollect.models.attention import Heads
from recollect.sampler.paged_attention import PagedCache, Program
from recollect.sampler.paged_kernels import attend_tokens
from recollect.sampler.prefixes import SharedRows
from recollect.sampler.prompt_kernels import attend_runs

PLAIN = "torch, without pages"
SWEEP = tuple(
    Program(rows, block, warps, stages)
    for rows, warps, block, most in (
        (128, 8, 64, 4), (128, 8, 128, 3), (128, 4, 64, 3), (64, 4, 64, 4), (64, 4, 128, 3)
    )
    for stages in range(2, most + 1)
)  # fmt: skip


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


@dataclass(frozen=True)
class Reading:
    """Prompts with their numbers in pages; each way to read them returns (N, Hq, D)."""

    some: Prompts
    heads: Heads
    query: torch.Tensor
    cache: PagedCache
    pages: torch.Tensor
    """(count, pages of one) int32"""

    @classmethod
    def random(cls, some: Prompts, device: str, dtype: torch.dtype) -> Reading:
        """Scatter the prompts over the pages."""
        case, held = some.case, -(-some.length // PAGE)
        pages = torch.randperm(some.count * held, device=device).int().view(some.count, held)
        like = torch.empty(case.heads, 1, case.width, dtype=dtype, device=device)
        cache = PagedCache(1, like, some.count * held, PAGE)
        cache.table.normal_()
        shape = (some.count * some.new, case.q_heads, case.width)
        query = torch.randn(shape, dtype=dtype, device=device)
        return cls(some, Heads(0, case.width**-0.5), query, cache, pages)

    def kernel(self, program: Program | None = None) -> Callable[[], torch.Tensor]:
        """Read the pages where they are."""
        some, device = self.some, self.query.device
        tile = some.tile(program or Program.of(some.case.width, self.query.dtype))
        first = torch.arange(0, some.new, tile, device=device)
        number = torch.arange(some.count, device=device)
        tiles = torch.stack([number.repeat_interleave(len(first)),
                             (number[:, None] * some.new + first).flatten()])  # fmt: skip
        runs = torch.stack([(number + 1) * some.new, torch.full_like(number, some.length),
                            number * self.pages.shape[1]])  # fmt: skip
        return partial(
            attend_runs, self.heads, self.query, self.cache.keys(0), self.cache.values(0),
            self.pages.flatten(), tiles, runs, PAGE, tile, program,
        )  # fmt: skip

    def plain(self) -> Callable[[], torch.Tensor]:
        """Let torch attend to the same numbers, which lie ready without pages."""
        some, at = self.some, torch.arange(self.some.length, device=self.query.device)
        place = self.pages.long()[:, at // PAGE] * PAGE + at % PAGE
        query = self.query.unflatten(0, (some.count, some.new))
        q, k, v = (
            x.transpose(1, 2).contiguous()
            for x in (query, self.cache.keys(0)[place], self.cache.values(0)[place])
        )
        seen = causal_lower_right(some.new, some.length)

        def attend() -> torch.Tensor:
            out = scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
            return out.transpose(1, 2).reshape(self.query.shape)

        return attend


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


def compiles(some: Prompts, program: Program) -> bool:
    """Compile a kernel, which other processes then find on the disk; tell whether it fits."""
    from triton.runtime.errors import OutOfResources

    try:
        Reading.random(some, "cuda", torch.bfloat16).kernel(program)()
        torch.cuda.synchronize()
    except OutOfResources:
        return False
    return True


def siblings() -> None:
    """Time attention to what siblings share."""
    print(f"\n{'siblings':22}{'for each':>12}{'once':>12}{'ratio':>8}{'apart':>10}")
    for some in SIBLINGS:
        each, once, off = time_siblings(some, "cuda")
        print(f"{some.name:22}{each:9.3f} ms{once:9.3f} ms{each / once:7.2f}x{off:10.1e}")
        print(f"figure | attention to siblings, {some.name} | {each / once:.2f}x | read for each")
        assert off < 0.05, "shared keys are off"


def cut(program: Program | None) -> str:
    """Name a way to cut the kernel."""
    if program is None:
        return "kernel"
    return (
        f"rows {program.rows} block {program.block} warps {program.warps} stages {program.stages}"
    )


def prompts(some: Prompts, ways: Sequence[Program | None], times: int) -> list[float]:
    """Time reading prompts with the kernel cut in some ways; return how long each takes."""
    one = Reading.random(some, "cuda", torch.bfloat16)
    runs = {PLAIN: one.plain()} | {cut(way): one.kernel(way) for way in ways}
    expected = runs[PLAIN]()
    took: dict[str, float] = {}
    print(f"\n{some.name:46}{'ms':>9}{'TFLOP/s':>9}{'apart':>9}")
    for name, run in runs.items():
        off = float((run() - expected).abs().max())
        took[name] = milliseconds(run, times)
        rate = some.flops() / took[name] / 1e9
        print(f"  {name:44}{took[name]:9.3f}{rate:9.0f}{off:9.1e}", flush=True)
        assert off < 0.05, "prompts are off"
    kernels = [took[cut(way)] for way in ways]
    beside = f"torch: {took[PLAIN]:.3f} ms"
    print(f"figure | attention of prompts, {some.name} | {min(kernels):.3f} ms | {beside}")
    return kernels


def sweep(pool: ProcessPoolExecutor) -> None:
    """Read prompts with the kernel cut in many ways; name the best."""
    cases = cases_of("cuda")
    found = pool.map(off_case, *zip(*cases, strict=True), repeat("cuda"), repeat(False))
    kinds = {(some.case, some.drafts and some.count): some for some in PROMPTS}
    jobs = {(kind, way): pool.submit(compiles, kinds[kind], way) for kind in kinds for way in SWEEP}
    check(cases, found)
    slower: dict[Program, list[float]] = {way: [] for way in SWEEP}
    for some in PROMPTS:
        kind = some.case, some.drafts and some.count
        ways = [way for way in SWEEP if jobs[kind, way].result()]
        took = prompts(some, ways, times=10)
        for way, each in zip(ways, took, strict=True):
            slower[way].append(each / min(took))
        print(f"  best: {cut(ways[int(np.argmin(took))])}", flush=True)
    print(f"\n{'slower than the best, geometric mean':46}{'cases':>9}{'times':>9}")
    means = {way: float(np.exp(np.mean(np.log(some)))) for way, some in slower.items() if some}
    for way in sorted(means, key=lambda way: means[way]):
        print(f"  {cut(way):44}{len(slower[way]):9}{means[way]:9.2f}")


def main() -> None:
    """Check all cases and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    cases = cases_of(options.device)
    asked = *zip(*cases, strict=True), repeat(options.device), repeat(True)
    if options.device != "cuda":
        check(cases, map(off_case, *asked))
        return
    workers = min(16, os.cpu_count() or 1)  # compiling takes longer than all else
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        if options.sweep:
            sweep(pool)
            return
        check(cases, pool.map(off_case, *asked))
    torch.manual_seed(0)
    siblings()
    for some in PROMPTS:
        prompts(some, [None], times=50)


if __name__ == "__main__":
    main()

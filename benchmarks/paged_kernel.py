"""The sampler's kernels on a GPU beside plain torch: how far they are off, for odd shapes too.

Then what a layer's attention takes where siblings begin alike: read for each, and read once; and
what reading prompts takes, beside torch's own attention to the same numbers without pages.

    python benchmarks/paged_kernel.py
    python benchmarks/paged_kernel.py --sweep   # only reading, with the kernel cut in many ways

With TRITON_INTERPRET=1 and `--device cpu` the same runs, slowly, without a GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from recollect.models.attention import Heads, masked_attention
from recollect.sampler.paged_attention import PagedCache, Program
from recollect.sampler.paged_kernels import attend_tokens
from recollect.sampler.prefixes import SharedRows
from recollect.sampler.prompt_kernels import attend_runs

PAGE, PAGES, DRAFT = 32, 80, 16
PLAIN = "torch, without pages"
SWEEP = tuple(
    Program(rows, block, warps, stages)
    for rows, warps, block, most in (
        (128, 8, 64, 4), (128, 8, 128, 3), (128, 4, 64, 3), (64, 4, 64, 4), (64, 4, 128, 3)
    )
    for stages in range(2, most + 1)
)  # fmt: skip


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
    Case(12, 2, 128),
    Case(4, 2, 80),
    Case(4, 4, 32, window=20),
    Case(8, 2, 80, softcap=30.0),
    Case(8, 4, 256, window=100, softcap=50.0),
)
RUNS = ((1, 1), (70, 75), (130, 230), (64, 397), (1, 64), (63, 127), (65, 65), (128, 256),
        (129, 321), (1, 449))  # fmt: skip
"""New tokens and all tokens of sequences, also where blocks end ..."""
DRAFTS = ((1, 1), (10, 75), (16, 230), (7, 397), (16, 64), (1, 65))
"""... and as steps with drafts have them."""


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
    drafts: bool = False

    @property
    def length(self) -> int:
        return self.cached + self.new

    def tile(self, program: Program) -> int:
        """Return how many tokens a program takes."""
        return DRAFT if self.drafts else program.tile(self.case.q_heads // self.case.heads)

    def flops(self) -> float:
        """Count two products over what each new token sees."""
        seen = self.new * (self.cached + (self.new + 1) / 2)
        return 4.0 * self.case.width * self.case.q_heads * self.count * seen


PROMPTS = (
    Prompts("135M, fold", CASES[0], 1024, 896, 103),
    Prompts("1.5B, long alone", CASES[2], 8, 0, 6000),
    Prompts("7B, long alone", CASES[1], 8, 0, 6000),
    Prompts("7B, a turn with tools", CASES[1], 128, 2000, 70),
    Prompts("7B, chunk first", CASES[1], 16, 5184, 1000),
    Prompts("7B, drafts of 8", CASES[1], 8, 6000, 10, drafts=True),
    Prompts("7B, drafts of 128", CASES[1], 128, 2000, 10, drafts=True),
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

    def off(
        self, case: Case, heads: Heads, sizes: list[int], query: torch.Tensor, out: torch.Tensor
    ) -> float:
        """Return how far what the last tokens of each sequence found is off, at most."""
        errors = []
        for run, (q, o) in enumerate(zip(query.split(sizes), out.split(sizes), strict=True)):
            errors.append(float((o.float() - self.expected(case, heads, run, q)).abs().max()))
        return max(errors)


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


def off_runs(
    case: Case, heads: Heads, dtype: torch.dtype, device: str, drafts: bool,
    program: Program | None = None,
) -> float:  # fmt: skip
    """Return the largest error of runs of tokens, with padding behind them."""
    chosen = program or Program.of(case.width, dtype)
    tile = DRAFT if drafts else chosen.tile(case.q_heads // case.heads)
    # Of the last, a whole tile ends one token after a block does.
    sizes, lengths = zip(*(DRAFTS if drafts else (*RUNS, (tile + 1, 130))), strict=True)
    some = Sequences.random(case, list(lengths), dtype, device)
    ends = torch.tensor(sizes).cumsum(0)
    tiles = [
        (run, first)
        for run, (size, end) in enumerate(zip(sizes, ends.tolist(), strict=True))
        for first in range(end - size, end, tile)
    ]
    tiles_T = torch.tensor([*tiles, (-1, -1), (-1, -1)], device=device).T.contiguous()[:, :-1]
    runs = torch.zeros(3, 19, dtype=torch.long, device=device)
    there = [ends.to(device), torch.tensor(lengths, device=device), some.begin]
    runs[:, : len(sizes)] = torch.stack(there)
    total = int(ends[-1])
    query = torch.randn(case.q_heads, total + 5, case.width, device=device).to(dtype)
    query = query.transpose(0, 1)
    out = attend_runs(
        heads, query, some.keys, some.values, some.pages, tiles_T, runs, PAGE, tile, program
    )
    padding = float(out[total:].float().abs().max())  # stays zero
    return max(padding, some.off(case, heads, list(sizes), query[:total], out[:total]))


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


def off_case(case: Case, dtype: torch.dtype, device: str, tokens: bool) -> dict[str, float]:
    """Return the largest error of each kernel; without single tokens, if these are not asked for.

    The kernels for these take longest to compile.
    """
    torch.manual_seed(0)
    heads = Heads(0, case.width**-0.5, case.window, case.softcap)
    errors = {
        name: off_runs(case, heads, dtype, device, drafts)
        for name, drafts in (("runs", False), ("drafts", True))
    }
    if tokens:
        rows = 300 if device == "cuda" else 3  # the interpreter is slow
        errors["1 row"] = off_tokens(case, heads, 1, dtype, device)
        errors["300 rows"] = off_tokens(case, heads, rows, dtype, device)
    return errors


def compiles(some: Prompts, program: Program) -> bool:
    """Compile a kernel, which other processes then find on the disk; tell whether it fits."""
    from triton.runtime.errors import OutOfResources

    try:
        Reading.random(some, "cuda", torch.bfloat16).kernel(program)()
        torch.cuda.synchronize()
    except OutOfResources:
        return False
    return True


def cases_of(device: str) -> list[tuple[Case, torch.dtype]]:
    """Return what is checked; the interpreter does not know bfloat16."""
    types = (torch.bfloat16, torch.float32)[device != "cuda" :]
    return [(case, dtype) for dtype in types for case in CASES]


def check(cases: list[tuple[Case, torch.dtype]], found: Iterable[dict[str, float]]) -> None:
    """Print the errors of all cases, as they are found."""
    worst: dict[str, float] = {}
    for (case, dtype), errors in zip(cases, found, strict=True):
        name = str(dtype).removeprefix("torch.")
        shown = " ".join(f"{kind} {error:.1e}" for kind, error in errors.items())
        print(f"{case!s:60}{name:10}{shown}", flush=True)
        limit = 1e-5 if dtype == torch.float32 else 0.05
        assert max(errors.values()) < limit, "a kernel is off"
        worst[name] = max(worst.get(name, 0.0), *errors.values())
    for name, off in worst.items():
        print(f"figure | largest error of {len(CASES)} cases, {name} | {off:.1e} | plain attention")


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

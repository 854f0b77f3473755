"""How far the sampler's kernels are off plain torch, for odd shapes too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from benchmarks.paged_shapes import CASES, DRAFT, PAGE, Case
from recollect.models.attention import Heads, masked_attention
from recollect.sampler.paged_attention import Program
from recollect.sampler.paged_kernels import attend_tokens
from recollect.sampler.prompt_kernels import attend_runs

PAGES = 80
RUNS = ((1, 1), (70, 75), (130, 230), (64, 397), (1, 64), (63, 127), (65, 65), (128, 256),
        (129, 321), (1, 449))  # fmt: skip
"""New tokens and all tokens of sequences, also where blocks end ..."""
DRAFTS = ((1, 1), (10, 75), (16, 230), (7, 397), (16, 64), (1, 65))
"""... and as steps with drafts have them."""


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

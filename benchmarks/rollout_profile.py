"""Where a sampler's time goes: seconds of the host by what it does, passes, bursts and kernels.

`benchmarks/rollout.py --profile` prints this, for the rollout and for every shape of a race. The
device waits while the host reads, begins and collects; it works while askers run and are admitted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from recollect.sampler.paged import PagedPolicy

METHODS = ("_admit", "_free_gone", "_read", "_begin", "_collect", "_answer")


@contextmanager
def profiled(policy: Any, title: str, kernels: bool) -> Iterator[None]:
    """Print where the time of what is sampled inside goes; a GPU's kernels slow it down."""
    if not isinstance(policy, PagedPolicy):
        yield
        return
    seconds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    recorded = _recorded(policy)
    before = policy._extender.totals.copy()
    _watch(policy, seconds, counts)
    cuda = policy.model.device.type == "cuda"
    seen: Any = nullcontext()
    if kernels and cuda:
        seen = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    started = time.perf_counter()
    try:
        with seen:
            yield
            if cuda:
                torch.cuda.synchronize()
    finally:
        for part in (policy, policy._reader, policy._extender):
            for name in (*METHODS, "read", "burst"):
                part.__dict__.pop(name, None)
    whole = time.perf_counter() - started
    totals = policy._extender.totals - before
    steps = max(1, totals["steps"])
    print(
        f"{title}: {whole:.2f} s", *(f"{name} {s:.2f} s" for name, s in seconds.items()), sep=", "
    )
    print(f"  {counts['passes']} passes over {counts['prompt']:,} prompt tokens, {counts['bursts']}"
          f" bursts of {counts['rows'] / max(1, counts['bursts']):.0f} rows on average, {steps:,}"
          f" steps with {totals['tokens'] / steps:.1f} tokens ({totals['drafted']:,} drafted,"
          f" {totals['accepted']:,} accepted), {_recorded(policy) - recorded} recordings",
          flush=True)  # fmt: skip
    if kernels and cuda:
        print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=25), flush=True)


def profiled_turns(policy: Any, turn: Any) -> Any:
    """Say of every turn of a race where its time went."""

    async def said(prompts: list[list[int]], new: int) -> Any:
        with profiled(policy, f"{len(prompts)} prompts of {len(prompts[0])} tokens", False):
            return await turn(prompts, new)

    return said


def _watch(policy: PagedPolicy, seconds: Counter[str], counts: Counter[str]) -> None:
    for method in METHODS:
        setattr(policy, method, _timed(getattr(policy, method), method, seconds))
    read, burst = policy._reader.read, policy._extender.burst

    def reading(runs: Any) -> Any:
        counts.update(passes=1, prompt=len(runs.ids))
        return read(runs)

    def bursting(plan: Any, rows: Any, *newest: Any) -> Any:
        counts.update(bursts=1, rows=len(rows.ids))
        return burst(plan, rows, *newest)

    vars(policy._reader)["read"] = reading
    vars(policy._extender)["burst"] = bursting


def _timed(called: Any, name: str, seconds: Counter[str]) -> Any:
    def call(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return called(*given)
        finally:
            seconds[name.strip("_").replace("_", " ")] += time.perf_counter() - began

    return call


def _recorded(policy: PagedPolicy) -> int:
    parts = (policy._reader, policy._extender.decoder, policy._extender.drafter)
    graphs = (part._graphs for part in parts if part)
    return sum(len(some._graphs) for some in graphs if some)

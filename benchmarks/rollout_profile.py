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
        for part in (policy, policy._reader, policy._decoder):
            for name in (*METHODS, "read", "burst"):
                part.__dict__.pop(name, None)
    whole = time.perf_counter() - started
    steps = max(1, counts["steps"])
    print(
        f"{title}: {whole:.2f} s", *(f"{name} {s:.2f} s" for name, s in seconds.items()), sep=", "
    )
    print(f"  {counts['passes']} passes over {counts['prompt']:,} prompt tokens, {counts['bursts']}"
          f" bursts, {steps:,} steps of {counts['tokens'] / steps:.0f} rows on average,"
          f" {_recorded(policy) - recorded} recordings", flush=True)  # fmt: skip
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
    read, burst = policy._reader.read, policy._decoder.burst

    def reading(runs: Any) -> Any:
        counts.update(passes=1, prompt=len(runs.ids))
        return read(runs)

    def bursting(rows: Any, *newest: Any) -> Any:
        steps = len(rows.uniform)
        counts.update(bursts=1, steps=steps, tokens=steps * len(rows.ids))
        return burst(rows, *newest)

    vars(policy._reader)["read"] = reading
    vars(policy._decoder)["burst"] = bursting


def _timed(called: Any, name: str, seconds: Counter[str]) -> Any:
    def call(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return called(*given)
        finally:
            seconds[name.strip("_").replace("_", " ")] += time.perf_counter() - began

    return call


def _recorded(policy: PagedPolicy) -> int:
    graphs = (policy._reader._graphs, policy._decoder._graphs)
    return sum(len(some._graphs) for some in graphs if some)

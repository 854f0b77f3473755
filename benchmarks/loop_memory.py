"""What one GPU and its host hold while a model of all trained weights learns: an estimate.

weights       2 bytes each
gradients     4 bytes each, while an update adds them up
sampler       2 bytes each: a copy to sample from, or vLLM's own weights; `ahead` has one more
cache         as set
activations   from what train_step.py measured for a 7B, kept and recomputed
host          12 bytes each: AdamW's two averages and the float32 originals
"""

from __future__ import annotations

import argparse
import subprocess
from dataclasses import dataclass, fields

from recollect.engines.verl.launch.shapes import Shape
from recollect.models.activations import SPARE, per_token

GIB = 2.0**30
H200 = 139.0
"""GiB that an H200 offers."""
GRAPHS = 4.0
"""GiB of vLLM beside its weights and cache."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Need:
    """GiB by part, during an update, which needs the most."""

    weights: float
    gradients: float
    sampler: float
    cache: float
    activations: float
    host: float

    @property
    def gpu(self) -> float:
        """Return the whole of what the GPU holds."""
        return sum(getattr(self, f.name) for f in fields(self) if f.name != "host")

    def fits(self, room: float) -> bool:
        """Tell whether it fits, with something to spare."""
        return self.gpu <= room * (1 - SPARE)

    def text(self, room: float) -> str:
        """Say it in one line."""
        parts = ", ".join(
            f"{f.name} {getattr(self, f.name):.1f}" for f in fields(self) if f.name != "host"
        )
        verdict = "fits" if self.fits(room) else "does not fit: left out"
        return (
            f"{self.gpu:.1f} GiB of {room:.0f} ({parts}); {self.host:.0f} GiB on the host;"
            f" {verdict}"
        )


def need_of(options: argparse.Namespace, shape: Shape, way: str) -> Need:
    """Estimate what a way needs."""
    one = shape.parameters / GIB
    each = 2 if options.weights == "bfloat16" else 4
    sampler = 2 * one + (each * one if way == "ahead" else 0) + (GRAPHS if way == "vllm" else 0)
    host = (12 if each == 2 else 8) * one + (2 * one if way == "vllm" else 0)  # in /dev/shm
    work = options.token_budget * per_token(shape.layers * shape.hidden, options.recompute)
    return Need(each * one, 4 * one, sampler, options.cache_gib, work, host)


def chosen_recompute(options: argparse.Namespace, shape: Shape, room: float) -> float:
    """Return the least share of layers to recompute with which all ways fit; else all of them."""
    for share in SHARES:
        tried = argparse.Namespace(**{**vars(options), "recompute": share})
        if all(need_of(tried, shape, way).fits(room) for way in options.ways):
            return share
    return SHARES[-1]


def gpu_gib() -> float:
    """Ask the driver for the GPU's size; an H200's where there is none."""
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return H200
    return float(said.split()[0]) / 1024

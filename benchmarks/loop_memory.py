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
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from recollect.engines.verl.launch.shapes import Shape
from recollect.models.activations import SPARE, per_token

GIB = 2.0**30
H200 = 139.0
"""GiB that an H200 offers."""
PROGRAMS = 12.0
"""GiB of the host for Python, CUDA and the texts."""
GRAPHS = 4.0
"""GiB of vLLM beside its weights and cache."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Room:
    """GiB that a machine has."""

    gpu: float = H200
    host: float = float("inf")
    shared: float = float("inf")

    @classmethod
    def here(cls, gpu: float | None = None, host: float | None = None) -> Room:
        """Ask this machine; a GPU that is not there counts as an H200."""
        host = host or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
        memory = Path("/dev/shm")
        shared = shutil.disk_usage(memory).free / GIB if memory.is_dir() else 0.0
        return cls(gpu or gpu_gib(), host, shared)


@dataclass(frozen=True)
class Need:
    """GiB by part, during an update, which needs the most."""

    weights: float
    gradients: float
    sampler: float
    cache: float
    activations: float
    host: float
    shared: float = 0.0

    @property
    def gpu(self) -> float:
        """Return the whole of what the GPU holds."""
        return self.weights + self.gradients + self.sampler + self.cache + self.activations

    def lacks(self, room: Room) -> list[str]:
        """Name what is too small for it, with something to spare."""
        found = {
            "the GPU": self.gpu > room.gpu * (1 - SPARE),
            "the host": self.host + self.shared > room.host - PROGRAMS,
            "/dev/shm": self.shared > room.shared,
        }
        return [name for name, lacking in found.items() if lacking]

    def text(self, room: Room) -> str:
        """Say it in one line."""
        names = ("weights", "gradients", "sampler", "cache", "activations")
        parts = ", ".join(f"{name} {getattr(self, name):.1f}" for name in names)
        small = ", ".join(self.lacks(room))
        return (
            f"{self.gpu:.1f} GiB of {room.gpu:.0f} ({parts}); {self.host + self.shared:.0f} of"
            f" {room.host:.0f} on the host, {self.shared:.0f} of {room.shared:.0f} in /dev/shm;"
            f" {f'left out, too small: {small}' if small else 'fits'}"
        )


def need_of(options: argparse.Namespace, shape: Shape, way: str) -> Need:
    """Estimate what a way needs."""
    one = shape.parameters / GIB
    each = 2 if options.weights == "bfloat16" else 4
    sampler = 2 * one + (each * one if way == "ahead" else 0) + (GRAPHS if way == "vllm" else 0)
    host, shared = (12 if each == 2 else 8) * one, 2 * one * (way == "vllm")
    size = shape.layers * shape.hidden
    work = options.token_budget * per_token(size, options.recompute, options.compile)
    return Need(each * one, 4 * one, sampler, options.cache_gib, work, host, shared)


def chosen_recompute(options: argparse.Namespace, shape: Shape, room: Room) -> float:
    """Return the least share of layers to recompute with which all ways fit; else all of them."""
    for share in SHARES:
        tried = argparse.Namespace(**{**vars(options), "recompute": share})
        if not any("the GPU" in need_of(tried, shape, way).lacks(room) for way in options.ways):
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

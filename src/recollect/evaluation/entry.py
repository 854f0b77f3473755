"""What an evaluation's folder says it holds: it is written once, and never mixed with another."""

from __future__ import annotations

import platform
import re
import subprocess
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from recollect import __version__
from recollect.config.modules import is_named, load
from recollect.config.sources import copy_sources, table_of
from recollect.config.stored import own_sources
from recollect.errors import UserError
from recollect.evaluation.folder import read_config, read_texts, write_config
from recollect.evaluation.identity import described
from recollect.evaluation.models import Opened
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.setup import Setup
from recollect.evaluation.texts import check_unchanged

WHEREABOUTS = ("url", "folder", "run", "device")
"""Facts of a model that may change when it is served elsewhere."""
PACKAGES = ("numpy", "torch", "transformers")
"""Whose versions can change a result."""
MODULE = re.compile(r" (\S+) ([0-9a-f]{12})")
CODE = re.compile(rf"(?:{MODULE.pattern})*\Z")
"""How a description ends that names modules; one of a run's agent ends with its models instead."""


def enter(
    folder: Path, setup: Setup, options: EvalOptions, opened: Opened, command: str
) -> dict[str, Any]:
    """Write the settings into the folder; refuse one whose episodes had other settings."""
    made = {
        "split": options.split,
        "temperature": options.temperature,
        "top_p": options.top_p,
        **({"embed": options.embed} if setup.embeds else {}),
        **{
            f"model in role {role}": {k: v for k, v in facts.items() if k not in WHEREABOUTS}
            for role, facts in opened.facts.items()
        },
    }
    settings = {
        name: described(agent) + opened.own_facts.get(name, "")
        for name, agent in setup.agents.items()
    }
    sets = {
        name: {
            "family": str(replace(spec, length=None, documents=None)),
            "primary": setup.primary[name],
            "published": list(getattr(setup.grid.families[name], "scorers", ())),
            "length": spec.length,
            "n": setup.grid.tasks(name),
            "data": setup.data[name],
            "is": setup.own.get(name, ""),
        }
        for name, spec in setup.specs.items()
    }
    config: dict[str, Any] = {
        "identity": made,
        "commands": [command],
        "settings": {**asdict(options), **made},
        "model": {**opened.facts, "temperature": options.temperature, "top_p": options.top_p},
        "agents": settings,
        "sets": sets,
        "versions": versions(),
    }
    scores = [load(m) for m in (*options.metrics, *setup.primary.values()) if is_named(m)]
    found = own_sources(list(setup.agents.values()), list(setup.grid.families.values()), scores)
    config["code"] = table_of(found)
    before = read_config(folder)
    if before is not None:
        _check_same(folder, before, config)
        check_unchanged(read_texts(folder), setup.grid.families, options.split)
        config["agents"] = {**before["agents"], **settings}
        config["sets"] = {**before["sets"], **sets}
        config["commands"] = list(dict.fromkeys([*before["commands"], command]))
    copy_sources(found, folder)
    write_config(folder, config)
    return config


def _check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    differing = [
        f"{name} was {before['identity'].get(name)}, now {value}"
        for name, value in now["identity"].items()
        if before["identity"].get(name) != value
    ]
    differing += [
        f"agent {name} was {_around(before['agents'][name], settings)}"
        for name, settings in now["agents"].items()
        if before["agents"].get(name, settings) != settings
    ]
    differing += [
        f"{name} was measured by {before['sets'][name]['primary']}, now by {own['primary']}"
        for name, own in now["sets"].items()
        if before["sets"].get(name, own)["primary"] != own["primary"]
    ]
    differing += [
        f"the data of {name} have changed"
        for name, own in now["sets"].items()
        if before["sets"].get(name, {}).get("data", own["data"]) != own["data"]
    ]
    differing += [
        f"the tasks {name} were {_around(before['sets'][name]['is'], own['is'])}"
        for name, own in now["sets"].items()
        if before["sets"].get(name, {}).get("is", own["is"]) != own["is"]
    ]
    if differing:
        raise UserError(
            f"{folder} holds episodes made with other settings: {'; '.join(differing)}",
            "choose another folder with --out, or the settings from before",
        )


def _around(before: str, now: str) -> str:
    """Show two texts where they begin to differ: an agent's settings hold whole prompts."""
    settings = CODE.sub("", now)
    if settings == CODE.sub("", before):
        was, code = (set(MODULE.findall(text[len(settings) :])) for text in (before, now))
        edited = sorted({module for module, _hash in was ^ code})
        return f"made of other code: the module {', '.join(edited)} has changed"
    differ = (i for i, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1])
    at = next(differ, min(len(before), len(now)))
    old, new = (text[max(0, at - 40) : at + 60] for text in (before, now))
    return f"...{old}..., now ...{new}..."


def versions() -> dict[str, str]:
    """Return the versions of all that can change a result, and the commit where it is known."""
    found = {"recollect": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    root = Path(__file__).parents[3]
    # Only in a checkout of this project: an installed package may lie in somebody else's.
    if (root / "pyproject.toml").exists() and (commit := commit_of(root)):
        found["commit"] = commit
    return found


def commit_of(root: Path) -> str:
    """Name a checkout's commit, with `-dirty` if files have changed; empty where it is unknown."""

    def git(*arguments: str) -> str:
        # `describe --dirty` would write the index, and get in the way of whoever commits just now.
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return asked.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("describe", "--always", "--abbrev=12") + "-dirty" * bool(changed)
    except (OSError, subprocess.SubprocessError):
        return ""

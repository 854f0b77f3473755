"""The core imports fast, and without a deep-learning library or a web server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAVY = (
    *("torch", "transformers", "peft", "ray", "verl", "vllm", "starlette", "uvicorn"),
    *("openai", "httpx", "bm25s", "pydantic"),
)
CORE = (
    *("types", "errors", "seeds", "concurrency", "metrics", "chat.rendering", "chat.chat"),
    *("rewards.answers", "rollout", "advantages", "samples", "accuracy"),
    *("memory.base", "memory.text", "memory.search", "memory.embeddings.endpoint"),
    *("chat.policy", "policies.scripted", "policies.served", "policies.cached"),
    *("agents.base", "agents.fold", "tasks.made.recall", "tasks.made.ledger"),
    *("runs.run", "runs.episodes", "config.engine", "config.train"),
)
SOURCE = Path(__file__).parent.parent / "src"


def run(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def culprits(names: tuple[str, ...], unwanted: tuple[str, ...] = HEAVY) -> list[str]:
    """Import modules one after another; name those that bring an unwanted one in."""
    lines = ["import sys, importlib", f"for name in {names}:", "    importlib.import_module(name)"]
    lines += [f"    for found in set(sys.modules) & set({unwanted}):", "        print(name)"]
    lines += ["        del sys.modules[found]"]
    return run("\n".join(lines)).split()


def test_no_heavy_import():
    assert culprits(("recollect", *(f"recollect.{name}" for name in CORE))) == []


def test_heavy_imports_would_be_seen():
    assert culprits(("recollect.errors", "csv"), ("csv", "yaml")) == ["csv"]


def seconds(code: str) -> float:
    """Count the processor time of a whole interpreter."""
    before = spent_by_children()
    run(code)
    return spent_by_children() - before


def spent_by_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def costs(code: str, unit: str) -> float:
    """Say how many times as long some code takes as another, both at their best of five.

    Machines differ, and others use them: what is compared runs by turns.
    """
    pairs = [(seconds(code), seconds(unit)) for _ in range(5)]
    best, one = (min(times) for times in zip(*pairs, strict=True))
    return best / one


def test_import_takes_milliseconds():
    assert costs("import recollect", "import numpy") < 0.5


def test_whole_core_imports_quickly():
    """In about 0.4 s; numpy, which it needs, takes more than a third of that."""
    names = ", ".join(f"recollect.{name}" for name in CORE)
    assert costs(f"import {names}", "import numpy") < 4

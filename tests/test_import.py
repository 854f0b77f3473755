"""The core imports fast, and without a deep-learning library or a web server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAVY = (
    *("torch", "transformers", "peft", "ray", "verl", "vllm", "starlette", "uvicorn"),
    *("openai", "httpx", "bm25s"),
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


def quick(code: str, beside: str, limit: float) -> bool:
    """Tell whether some code takes little longer than another, best of five: others use the
    machine."""
    times: list[float] = []
    base = min(seconds(beside) for _ in range(5))
    while len(times) < 5 and min(times, default=limit) >= limit:
        times.append(seconds(code) - base)
    return min(times) < limit


def spent_by_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def test_import_takes_milliseconds():
    assert quick("import recollect", "pass", 0.3)


def test_whole_core_imports_quickly():
    names = ", ".join(f"recollect.{name}" for name in CORE)
    assert quick(f"import {names}", "import numpy", 0.5)

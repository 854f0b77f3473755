"""The doctor of a cluster: what nodes lack or do differently, and what a changed verl means."""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import replace

import pytest

from recollect.cli import main
from recollect.commands.cluster_doctor import examine, judge
from recollect.engines.verl.doctor.nodes import ask_nodes, check_answers
from recollect.engines.verl.doctor.traps import TRAPS, Found
from recollect.engines.verl.doctor.workers import Node, describe, sources, told_apart
from recollect.errors import UserError
from recollect.packaging import install

VERSIONS = {
    "recollect-rl": "0.1.0", "verl": "0.9.1", "ray": "2.60.0", "torch": "2.13.0",
    "transformers": "5.10.4", "tensordict": "0.10.0", "TransferQueue": "0.1.11", "vllm": "0.24.0",
}  # fmt: skip
CODE = {"recollect": "0123456789ab"}
WELL = Node("a", "3.11.7", VERSIONS, loop="MemoryLoop", gpus=8, shared_memory=64 << 30, code=CODE,
            sampler_torch="==2.13.0", cuda="13.0")  # fmt: skip


def status(nodes: list[Node], name: str) -> tuple[str, str, str]:
    found = next(f for f in examine(nodes) if f.name == name and f.status != "ok")
    return found.status, found.found, found.fix


def test_a_cluster_with_everything_is_well():
    assert {f.status for f in examine([WELL, replace(WELL, host="b")])} == {"ok"}


def test_nodes_must_have_the_same():
    other = replace(WELL, host="b", versions={**VERSIONS, "verl": "0.9.2"})
    assert status([WELL, other], "verl") == (
        "bad",
        "a 0.9.1, b 0.9.2",
        "install the same verl on every node",
    )
    without = replace(WELL, host="b", versions={k: v for k, v in VERSIONS.items() if k != "ray"})
    assert "b missing" in status([WELL, without], "ray")[1]


def test_a_version_that_is_the_same_may_have_other_code():
    other = replace(WELL, host="b", code={"recollect": "ba9876543210"})
    assert status([WELL, other], "module recollect") == (
        "bad",
        "not the same code: a 0123456789ab, b ba9876543210",
        "install the same recollect on every node",
    )
    newer = replace(other, versions={**VERSIONS, "recollect-rl": "0.2.0"})
    bad = [f for f in examine([WELL, newer]) if f.status == "bad"]
    assert [f.found for f in bad] == ["a 0.1.0, b 0.2.0"]  # one line says it
    assert status([WELL, replace(WELL, host="b", python="3.12.1")], "Python")[0] == "bad"


def test_the_users_own_modules_are_compared():
    mine = replace(WELL, code={**CODE, "mine": "1"})
    assert {f.status for f in examine([mine, replace(mine, host="b")], ["mine"])} == {"ok"}
    other = replace(mine, host="b", code={**CODE, "mine": "2"})
    found = next(f for f in examine([mine, other], ["mine"]) if f.status == "bad")
    assert (found.name, found.found) == ("module mine", "not the same code: a 1, b 2")
    lacking = next(f for f in examine([mine, replace(WELL, host="b")], ["mine"]) if f.fix)
    assert "b missing" in lacking.found
    nowhere = next(f for f in examine([WELL], ["mine"]) if f.status == "bad")
    assert nowhere.found == "not installed on any node"


def test_nodes_of_one_name_are_told_apart():
    newer = replace(WELL, versions={**VERSIONS, "verl": "0.9.2"})
    nodes = told_apart([WELL, newer], ["10.0.0.1:5", "10.0.0.2:5"])
    assert status(nodes, "verl")[1] == "a (10.0.0.1:5) 0.9.1, a (10.0.0.2:5) 0.9.2"
    assert told_apart([WELL], ["10.0.0.1:5"]) == [WELL]


def test_sources_of_a_module_and_of_a_package(tmp_path, monkeypatch):
    (tmp_path / "own_one.py").write_text("A = 1\n")
    (tmp_path / "own_two").mkdir()
    (tmp_path / "own_two/__init__.py").write_text("")
    (tmp_path / "own_two/part.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = ("own_one", "own_two", "nowhere", "nowhere.at.all")
    before = sources(names)
    assert set(before) == {"own_one", "own_two"} and sources(names) == before
    (tmp_path / "own_two/part.py").write_text("A = 2\n")
    assert {name for name, own in sources(names).items() if own != before[name]} == {"own_two"}


def test_attention_is_the_same_on_every_node():
    (own,) = [f for f in examine([WELL]) if f.name == "attention"]
    assert own.status == "ok" and "rows are packed with torch's own" in own.found
    other = replace(WELL, host="b", versions={**VERSIONS, "flash-attn": "2.8.3"})
    assert status([WELL, other], "attention")[0] == "bad"
    assert "flash-attn 2.8.3" in str(examine([other]))


def test_what_is_missing_or_untested_or_small():
    bare = replace(WELL, versions={k: v for k, v in VERSIONS.items() if k != "vllm"})
    assert status([bare], "sampler")[0] == "bad"
    newer = replace(WELL, versions={**VERSIONS, "verl": "0.10.0"})
    assert (
        status([newer], "verl")[0] == "warning" and "make test-verl" in status([newer], "verl")[2]
    )
    assert status([replace(WELL, gpus=0)], "GPUs")[0] == "warning"
    assert "--shm-size" in status([replace(WELL, shared_memory=64 << 20)], "shared memory")[2]


def test_a_sampler_or_a_torch_that_is_for_other_machines():
    for torch in ("2.13.0+cpu", "2.13.0"):
        fits = replace(WELL, versions={**VERSIONS, "torch": torch})
        assert {f.status for f in examine([fits])} == {"ok"}
    other = replace(WELL, sampler_torch="==2.11.0")
    assert status([other], "sampler") == (
        "bad",
        "a: vllm 0.24.0 is built for torch==2.11.0, not 2.13.0",
        "pip install 'torch==2.11.0', or a sampler for torch 2.13.0",
    )
    for_cpus = replace(WELL, host="b", cuda="")
    assert status([WELL, for_cpus], "GPUs") == (
        "bad",
        "16 on 2 nodes; torch 2.13.0 on b is built for CPUs",
        "pip install vllm==0.24.0, which brings its torch",
    )
    without_gpus = replace(for_cpus, gpus=0)
    assert {f.status for f in examine([WELL, without_gpus])} == {"ok"}


def test_a_plugin_that_is_not_loaded_is_bad_and_says_why():
    broken = replace(WELL, host="b", loop="", problem="ImportError: no recollect")
    bad, found, fix = status([WELL, broken], "plugin")
    assert (bad, found) == ("bad", "b: ImportError: no recollect") and "on b" in fix


def test_traps():
    trap = TRAPS[0]
    assert "still there; episodes bring" in judge(Found(trap, True)).found
    assert "gone" in judge(Found(trap, False)).found
    assert judge(Found(trap, None, "AttributeError: x")).status == "warning"
    assert len({trap.number for trap in TRAPS}) == len(TRAPS)


def test_arguments(capsys):
    assert main(["doctor", "--address", "auto"]) == 2
    assert "add --engine verl" in capsys.readouterr().err
    assert main(["doctor", "--modules", "mine"]) == 2
    assert main(["doctor", "--engine", "verl", "--modules", "my-module"]) == 2
    for args in (["--engine", "verl", "--address"], ["--engine", "verl", "more"]):
        with pytest.raises(SystemExit) as stopped:
            main(["doctor", *args])
        assert stopped.value.code == 2


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed")
def test_without_verl(capsys):
    assert main(["doctor", "--engine", "verl"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    for name in ("verl", "ray", "tensordict", "TransferQueue"):
        assert f"✗ {name} not installed" in said
    assert "✗ sampler neither vllm nor sglang" in said and "✓ torch" in said
    assert f"make verl-env (CPUs), or {install('verl')} vllm==0.24.0 (GPUs)" in said
    assert "ModuleNotFoundError" in describe().problem


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_what_asks_the_nodes_may_fail():
    with pytest.raises(UserError, match=r"Ray on this machine gave no answer \(exit status 1\)"):
        ask_nodes()


def test_an_address_where_nothing_listens_is_refused_at_once():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and not listening
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(UserError, match=f"nothing answers at {address}"):
            ask_nodes(address)
        held.listen()
        check_answers(address)
        check_answers(f"ray://{address}")
    check_answers("auto")


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed")
def test_what_is_listed_and_cannot_be_imported_is_not_ready(monkeypatch, capsys):
    monkeypatch.setattr("recollect.commands.cluster_doctor.here", lambda: WELL)
    assert main(["doctor", "--engine", "verl"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "✗ verl cannot be imported" in said and "Ready" not in said

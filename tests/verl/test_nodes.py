"""Two Ray nodes on one machine: a run over both, one that dies and comes back, other versions."""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import recollect
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from tests.support.cluster import finish, start
from tests.support.nodes import TOKEN, RayNode, answers, can_be_apart, other_environment

pytest.importorskip("verl")

STEPS = 2


def wait(happened: Callable[[], object], why: Callable[[], str], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def head(tmp_path_factory) -> Iterator[RayNode]:
    node = RayNode("node-a", tmp_path_factory.mktemp("head"))
    try:
        wait(lambda: answers(node.address), node.log.read_text, 60)
        yield node
    finally:
        node.stop()


@pytest.fixture(scope="module")
def cluster(head) -> dict[str, str]:
    """What a process of the cluster has in its environment."""
    return {**TOKEN, "RAY_ADDRESS": head.address}


def ask(cluster: dict[str, str], expression: str) -> str:
    """Evaluate something in a process that is connected to the cluster."""
    code = (
        "import ray, time; ray.init(log_to_driver=False, logging_level='error');"
        "from recollect.engines.verl.worker.broker import find_broker;"
        f"print(ray.get({expression}))"
    )
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | paths | cluster,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_doctor_refuses_nodes_that_differ(head, cluster, tmp_path):
    """One line for another version of ours, and one for a module of the user's own."""
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(Path(recollect.__file__).parent, there / "recollect",
                    ignore=shutil.ignore_patterns("*.pyc", "*.safetensors"))  # fmt: skip
    (there / "recollect_rl-9.9.9.dist-info").mkdir()
    (there / "recollect_rl-9.9.9.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: recollect-rl\nVersion: 9.9.9\nRequires-Python: >=3.11\n"
    )
    for place, text in ((here, "A = 1\n"), (there, "A = 2\n")):
        place.mkdir(exist_ok=True)
        (place / "my_agents.py").write_text(text)
    python = other_environment(tmp_path / "environment", there)
    other = RayNode("node-c", tmp_path, head.address, python)
    try:
        wait(lambda: "Ray runtime started" in other.log.read_text(), other.log.read_text, 60)
        command = [sys.executable, "-m", "recollect", "doctor", "--engine", "verl"]
        paths = {"PYTHONPATH": os.pathsep.join([str(here), *sys.path]), "COLUMNS": "200"}
        done = subprocess.run(
            [*command, "--address", head.address, "--modules", "my_agents"],
            env=os.environ | paths | cluster,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        other.stop()
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "✗" in line]
    assert len(lines) == 2 + (torch.version.cuda is None), done.stdout
    ours, theirs, *gpus = lines
    # The GPUs of these nodes are made up: with a torch for CPUs nothing could use them.
    assert all("GPUs" in line and "is built for CPUs" in line for line in gpus)
    assert "recollect-rl" in ours and f" {recollect.__version__}" in ours and " 9.9.9" in ours
    assert "module my_agents" in theirs and "not the same code" in theirs
    if can_be_apart():
        assert all("node-c" in line and socket.gethostname() in line for line in (ours, theirs))


def settings(folder: Path) -> TrainConfig:
    return replace(
        preset("curator"),
        name="nodes",
        folder=folder,
        rollout=RolloutConfig(tasks=2, n=4),
        val=ValidationConfig(tasks=2, n=1, before_training=False),
        steps=STEPS,
        test_freq=STEPS,
        save_freq=1,
    )


def begin(config: TrainConfig, cluster: dict[str, str]) -> tuple[subprocess.Popen[bytes], Path]:
    workers = {"actor_rollout_ref__rollout__agent__num_workers": 2}
    return start(config, cluster=cluster, trainer__nnodes=2, **workers)


def join(head: RayNode, folder: Path) -> RayNode:
    log = folder / "node-b.log"
    log.unlink(missing_ok=True)
    node = RayNode("node-b", folder, head.address)
    wait(lambda: "Ray runtime started" in log.read_text(), log.read_text, 60)
    return node


def bases(shared: Path) -> list[Path]:
    return list(shared.glob(f"recollect-{os.getuid()}-*/*.base"))


@pytest.mark.timeout(900)
def test_a_run_over_two_nodes_one_of_which_dies_and_comes_back(head, cluster, tmp_path):
    config = settings(tmp_path / "runs")
    run = config.folder / config.name
    second = join(head, tmp_path)
    try:
        process, log = begin(config, cluster)
        saved = run / "checkpoints/global_step_1"

        def checkpointed() -> bool:
            assert process.poll() is None, log.read_text()[-4000:]
            latest = run / "checkpoints/latest_checkpointed_iteration.txt"
            logged = run / "metrics.jsonl"  # verl saves before it logs, see docs/cluster.md
            written = logged.exists() and logged.stat().st_size > 0
            return latest.exists() and saved.is_dir() and written

        wait(checkpointed, log.read_text)
        # Both nodes have a training process and a worker, which wrote to the one run folder.
        assert len(list((saved / "actor").glob("model_world_size_2_rank_*.pt"))) == 2
        if can_be_apart():
            own, other = bases(Path("/dev/shm")), bases(second.shared_memory)
            assert own and other  # each node has those that its worker read,
            assert len({path.parent.name for path in own + other}) == 1  # under one name
        second.stop()
        said = finish(process, log, code=2)
        lines = [line for line in said.splitlines() if line.startswith("recollect: ")]
        assert len(lines) == 1 and "lost the node" in lines[0], said[-4000:]
        assert not can_be_apart() or "node-b" in lines[0]
        assert (
            "resumes from the last checkpoint" in said
            and "Traceback" not in said.split(lines[0])[1]
        )
        done = [row["step"] for row in read_metrics(run)]

        second = join(head, tmp_path)
        finish(*begin(config, cluster))
        rows = read_metrics(run)
        assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
        assert len(done) < len(rows) and (run / "model/config.json").exists()
        for step in range(1, STEPS + 1):
            path = run / "episodes" / f"train-{step:06d}.jsonl.gz"
            assert all(episode.ok for episode in read_episodes(path))
        # The workers of both nodes told the one broker of their trials, and left none open.
        told = ask(cluster, f"find_broker().statistics.remote({str(run)!r})")
        counts = ast.literal_eval(told)
        assert counts["trials/opened"] == counts["trials/closed"] > 0 == counts["trials/live"]
    finally:
        second.stop()

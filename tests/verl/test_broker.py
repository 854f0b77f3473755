"""The broker in a real Ray cluster: two workers, one of them killed, and a second run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("ray")

import ray

from recollect.engines.verl.worker import broker as brokers
from recollect.memory.changes import Growth


class Worker:
    """A process that works on trials of one base."""

    def __init__(self, root: str) -> None:
        from pathlib import Path

        from recollect.engines.verl.worker.bases import LazyBases
        from recollect.engines.verl.worker.broker import find_broker
        from recollect.engines.verl.worker.leases import BrokeredStores, BrokerLine
        from recollect.memory.corpus import Corpus
        from recollect.memory.entries import Draft

        self.line = BrokerLine(find_broker(), "run-1")
        make = lambda: {"conv-1": Corpus.build("conv-1", [Draft("Ann likes tea")])}  # noqa: E731
        self.bases = LazyBases(make, "k", Path(root))
        self.stores = BrokeredStores(self.bases, self.line)

    def work(self, text: str, close: bool) -> tuple[str, str, int]:
        trial = self.stores.open("conv-1")
        trial.add(text)
        if close:
            trial.close()
        self.trial = trial
        # A word to the broker is not waited for; those of one process arrive in order.
        ray.get(self.line.broker.runs.remote())
        return trial.namespace, self.line.owner, os.getpid()

    def file(self) -> int:
        return next(self.bases.folder.glob("*.base")).stat().st_ino


@pytest.fixture(scope="module")
def cluster():
    # Workers cannot import a test: its classes travel whole.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=4, include_dashboard=False, namespace="one", log_to_driver=False)
    yield
    ray.shutdown()


def test_the_life_of_a_broker(cluster, tmp_path):
    broker = brokers.open_broker()
    first, second = (ray.remote(Worker).options(num_cpus=0).remote(str(tmp_path)) for _ in range(2))
    closed, _, _ = ray.get(first.work.remote("Ann moved to Oslo", True))
    held, owner, pid = ray.get(second.work.remote("lost", False))
    # One base for both, in the same file.
    assert ray.get(first.file.remote()) == ray.get(second.file.remote())

    # Whoever asks gets the final state, from another process than the one that made it.
    final = ray.get(broker.final.remote("run-1", closed))
    assert [entry["content"] for entry in final.state["entries"]] == ["Ann moved to Oslo"]
    assert final.growth.created == 1
    assert ray.get(broker.live.remote("run-1")) == {held: owner}

    # A worker is lost: once that is known its trials end, and the others' stay.
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(second.file.remote())
    assert ray.get(broker.leave.remote("run-1", owner)) == 1
    numbers = ray.get(broker.statistics.remote("run-1"))
    assert (numbers["trials/live"], numbers["trials/lost"]) == (0, 1)

    # A second run in the same cluster finds it, and has a registry of its own.
    again = brokers.open_broker()
    assert again._actor_id == broker._actor_id
    ray.get(again.open.remote("run-2", closed, "conv-1", "somebody"))
    assert ray.get(again.final.remote("run-2", closed)) is None
    assert ray.get(again.runs.remote()) == ["run-1", "run-2"]
    assert ray.get(again.forget.remote("run-2")) and not ray.get(again.forget.remote("run-2"))
    ray.get(again.close.remote("run-1", "x", "conv-1", {}, Growth()))
    assert len(ray.get(again.finals.remote("run-1", "conv-1"))) == 2


def test_it_outlives_the_job_that_started_it(cluster, tmp_path):
    """Another driver, connected to the same cluster, finds what the first one left."""
    address = ray.get_runtime_context().gcs_address
    broker = brokers.open_broker()
    ray.get(broker.open.remote("run-9", "t", "n", "w"))
    code = (
        "import ray; from recollect.engines.verl.worker.broker import open_broker;"
        f"ray.init(address={address!r}, namespace='two', log_to_driver=False);"
        "print(ray.get(open_broker().live.remote('run-9')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "{'t': 'w'}", done.stderr[-2000:]


def test_an_older_broker_is_replaced(cluster, monkeypatch):
    broker = brokers.open_broker()
    monkeypatch.setattr(brokers, "__version__", "99")
    # The new one is started with this process's code, whose version the old one does not tell.
    new = brokers.open_broker()
    assert new._actor_id != broker._actor_id
    assert ray.get(new.runs.remote()) == []  # it answers, and knows nothing yet
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(broker.runs.remote())


def test_a_run_that_ends_leaves_no_trial_open(cluster):
    broker = brokers.open_broker()
    ray.get(broker.open.remote("run-5", "t", "n", "w"))
    ray.get(broker.open.remote("run-6", "t", "n", "w"))
    assert brokers.end_run("run-5") == 1
    assert ray.get(broker.live.remote("run-5")) == {}
    assert ray.get(broker.live.remote("run-6")) == {"t": "w"}
    assert brokers.end_run("unheard of") == 0


def test_keys_reach_a_worker_through_the_broker_and_end_with_the_run(cluster):
    """Not through Ray's runtime environment, which its dashboard shows."""
    broker = brokers.open_broker()
    ray.get(broker.keep_keys.remote("run-7", {"MY_TEST_KEY": "abc"}))

    @ray.remote
    def worker() -> str | None:
        from recollect.engines.verl.worker.broker import take_keys

        take_keys("run-7")
        return os.environ.get("MY_TEST_KEY")

    assert ray.get(worker.remote()) == "abc"
    assert "MY_TEST_KEY" not in str(ray.get_runtime_context().runtime_env)
    ray.get(broker.end.remote("run-7"))
    assert ray.get(broker.keys.remote("run-7")) == {}

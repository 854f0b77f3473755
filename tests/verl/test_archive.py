"""What travels between the processes of a run: episodes, and mistakes."""

from __future__ import annotations

from collections import Counter

import pytest
import ray

from recollect.engines.verl.runner import mistake
from recollect.engines.verl.worker.archive import find_archive, open_archive
from recollect.engines.verl.worker.training_rows import compact
from recollect.errors import UserError
from recollect.types import Failure
from tests.support.verl_rows import context, episode


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def archive():
    archive = open_archive()
    yield archive
    ray.kill(archive)


def test_episodes_come_in_the_order_of_tasks_and_sessions(archive):
    failed = episode(rollout=0, reward=None, failure=Failure("policy", "E", "no"))
    for uid, own in (("b", episode(context([1], [2]), rollout=1)), ("a", episode()), ("b", failed)):
        ray.get(find_archive().put.remote(uid, compact(own), Counter(timeout=1)))
    taken = ray.get(archive.take.remote(["a", "b", "none"]))
    assert [[e.rollout for e in group] for group in taken.groups] == [[0], [0, 1], []]
    assert taken.groups[1][0].failure == failed.failure
    assert taken.failed_calls == {"timeout": 3}
    assert ray.get(archive.take.remote(["a"])).groups == [[]]  # it was taken


def relay():
    """Start what stands for verl's task runner: what it asks raises, and so does it."""

    class Relay:  # in here, so that it travels whole: workers do not import tests
        def run(self) -> None:
            ray.get(find_archive().take.remote([]))

    return ray.remote(Relay).remote()


def test_a_users_mistake_crosses_processes_as_what_it_is(archive):
    ray.get(archive.stop.remote(RuntimeError("a bug")))
    ray.get(archive.stop.remote(UserError("the server is gone", "start it")))
    with pytest.raises(Exception) as caught:
        ray.get(relay().run.remote())
    found = mistake(caught.value)
    assert found and (found.what, found.fix) == ("the server is gone", "start it")


def test_a_bug_stays_a_bug(archive):
    ray.get(archive.stop.remote(RuntimeError("a bug")))
    with pytest.raises(Exception, match="a bug") as caught:
        ray.get(relay().run.remote())
    assert mistake(caught.value) is None

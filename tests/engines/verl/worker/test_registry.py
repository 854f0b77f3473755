"""The registry of trials: leases, lost workers, final states. A clock that is set by hand."""

from __future__ import annotations

import pytest

from recollect.engines.verl.worker.registry import Registry
from recollect.memory.changes import Growth


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def registry(clock: Clock, **settings) -> Registry:
    return Registry(lease=10.0, clock=clock, **settings)


def test_trials_open_and_close_and_are_counted(clock):
    trials = registry(clock)
    assert trials.open("conv-1-a", "conv-1", "w1") and trials.open("conv-1-b", "conv-1", "w2")
    assert not trials.open("conv-1-a", "conv-1", "w1")  # a call that was sent twice
    trials.close("conv-1-a", "conv-1", {"entries": [1]}, Growth(created=2, tokens=7))
    assert trials.live() == {"conv-1-b": "w2"}
    numbers = trials.statistics()
    assert (numbers["trials/opened"], numbers["trials/closed"], numbers["trials/peak"]) == (2, 1, 2)
    assert (numbers["trials/growth/created"], numbers["trials/growth/tokens"]) == (2, 7)
    assert trials.final("conv-1-a").state == {"entries": [1]}
    assert trials.final("conv-1-b") is None


def test_the_trials_of_a_silent_worker_end(clock):
    trials = registry(clock)
    trials.open("a", "n", "lost")
    trials.open("b", "n", "lost")
    clock.now = 6
    trials.open("c", "n", "well")
    trials.hear("well")
    clock.now = 10.5
    assert trials.live() == {"c": "well"}
    assert trials.statistics()["trials/lost"] == 2
    clock.now = 15.9
    trials.hear("well")
    clock.now = 25
    assert trials.live() == {"c": "well"}  # a word renews all of a worker's trials
    assert trials.expire() == 0


def test_a_worker_that_leaves_takes_its_trials_along(clock):
    trials = registry(clock)
    trials.open("a", "n", "w1")
    trials.open("b", "n", "w2")
    assert trials.leave("w1") == 1 and trials.leave("w1") == 0
    assert trials.live() == {"b": "w2"}
    assert trials.statistics()["trials/workers"] == 1


def test_a_late_close_is_counted_once(clock):
    trials = registry(clock)
    trials.open("a", "n", "slow")
    clock.now = 11
    assert trials.statistics()["trials/lost"] == 1
    for _ in range(2):  # late, and once more
        trials.close("a", "n", {"of": "a"}, Growth(created=2))
    numbers = trials.statistics()
    assert (numbers["trials/opened"], numbers["trials/closed"]) == (1, 1)
    assert (numbers["trials/lost"], numbers["trials/unknown"]) == (0, 0)
    assert numbers["trials/growth/created"] == 2 and trials.final("a").state == {"of": "a"}


def test_the_end_of_a_run_ends_all_of_its_trials(clock):
    trials = registry(clock)
    for i in range(3):
        trials.open(f"t{i}", "n", f"w{i}")
    trials.close("t0", "n", {}, Growth())
    assert trials.end() == 2 and trials.end() == 0
    assert trials.live() == {} and trials.statistics()["trials/workers"] == 0


def test_only_the_latest_states_stay(clock):
    trials = registry(clock, kept=2)
    for name in "abc":
        trials.open(name, "n", "w")
        trials.close(name, "n", {"of": name}, Growth())
    assert trials.final("a") is None
    assert [final.state["of"] for final in trials.finals("n")] == ["b", "c"]
    assert trials.finals("other") == []


def test_a_trial_from_before_a_restart_is_counted_as_such(clock):
    trials = registry(clock)
    trials.close("a", "n", {}, Growth())
    assert trials.statistics()["trials/unknown"] == 1
    assert trials.final("a") is not None


def test_nothing_is_left_after_many_steps(clock):
    trials = registry(clock, kept=10)
    for i in range(1000):
        clock.now += 1
        trials.open(f"t{i}", "n", f"w{i % 7}")
        if i % 3:
            trials.close(f"t{i}", "n", {}, Growth())
    clock.now += 100
    numbers = trials.statistics()
    assert numbers["trials/live"] == numbers["trials/workers"] == 0
    assert numbers["trials/opened"] == numbers["trials/closed"] == 1000
    assert len(trials.finals("n")) == 10

"""Trials: never mixed, never left behind, whatever ends them."""

from __future__ import annotations

import asyncio
import gc
import random
import re
import tracemalloc

import pytest

from recollect.errors import UserError
from recollect.memory.changes import Growth
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.leases import MemoryStoreManager, Trial
from recollect.memory.store import replay
from tests.support import hashing

NAMESPACE = "conv-26-qa159-4f01449a"


def base(n: int = 200) -> Corpus:
    drafts = [Draft(f"fact {i} about topic {i % 7}", {"speaker": f"S{i % 3}"}) for i in range(n)]
    return Corpus.build("conv-26", drafts, hashing.matrix([d.content for d in drafts]))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def manager(**settings) -> MemoryStoreManager:
    return MemoryStoreManager({"conv-26": base()}, hashing.embed, **settings)


def test_a_trial_is_named_after_its_base_and_request():
    trials = manager()
    trial = trials.open(NAMESPACE)
    assert re.fullmatch(r"conv-26-qa159-4f01449a-[0-9a-f]{8}", trial.namespace)
    assert trials.get(trial.namespace) is trial and trial.corpus.name == "conv-26"
    with pytest.raises(UserError, match="conv-99"):
        trials.open("conv-99-qa1-00000000")


def test_the_same_request_gets_the_same_trial_and_another_never_does():
    trials = manager()
    first = trials.open(NAMESPACE, "0123456789abcdef")
    assert trials.open(NAMESPACE, "0123456789abcdef") is first
    alike = trials.open(NAMESPACE, "01234567ffff")
    assert alike is not first and alike.namespace == f"{NAMESPACE}-01234567f"
    assert trials.open(NAMESPACE, "01234567ffff") is alike
    short = trials.open(NAMESPACE, "01234567")
    assert short not in (first, alike) and trials.open(NAMESPACE, "01234567") is short
    assert trials.statistics().live == 3


def test_a_trial_is_closed_however_its_block_ends():
    trials = manager()
    with pytest.raises(ZeroDivisionError), trials.trial(NAMESPACE) as crashed:
        crashed.add("half way")
        raise ZeroDivisionError

    async def stuck() -> None:
        with trials.trial(NAMESPACE) as trial:
            trial.add("half way")
            await asyncio.sleep(60)

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stuck(), 0.01)

    asyncio.run(run())
    seen = trials.statistics()
    assert (seen.opened, seen.closed, seen.expired, seen.live) == (2, 2, 0, 0)
    assert seen.growth == Growth() and seen.total == Growth(2, 0, 0, 4)


def test_a_lease_ends_when_nobody_uses_the_trial():
    clock = Clock()
    trials = manager(lease_seconds=10, clock=clock)
    idle, busy = trials.open(NAMESPACE), trials.open(NAMESPACE)
    clock.now = 8
    busy.add("still here")
    clock.now = 12
    assert trials.statistics().live == 1 and trials.get(busy.namespace) is busy
    with pytest.raises(RuntimeError, match="nobody used it for 10 seconds"):
        idle.add("too late")
    idle.close()
    clock.now = 17
    asyncio.run(busy.search("fact"))
    clock.now = 26
    assert trials.expire() == 0
    clock.now = 27
    assert trials.expire() == 1
    seen = trials.statistics()
    assert (seen.opened, seen.closed, seen.expired, seen.peak) == (2, 2, 2, 2)


def test_counting_does_not_renew_a_lease():
    clock = Clock()
    trials = manager(lease_seconds=10, clock=clock)
    trials.open(NAMESPACE).add("a note")
    clock.now = 9
    assert trials.statistics().growth.created == 1
    clock.now = 10
    assert trials.statistics().live == 0


def test_a_fork_of_a_trial_has_a_lease_of_its_own():
    trials = manager()
    trial = trials.open(NAMESPACE)
    trial.add("before")
    fork = trial.fork()
    assert isinstance(fork, Trial) and fork.namespace.startswith(f"{trial.namespace}-")
    trial.close()
    assert fork.get("memory_201").content == "before" and trials.statistics().live == 1
    assert trials.close(fork.namespace) and not trials.close(fork.namespace)
    assert trials.statistics().live == 0


def test_growth_is_counted_with_the_tokenizer_given():
    trials = manager(count_tokens=len)
    trial = trials.open(NAMESPACE)
    trial.add("12345")
    trial.delete("memory_1")
    growth = trials.statistics().growth
    assert (growth.created, growth.deleted) == (1, 1)
    assert growth.tokens == 5 - len("fact 0 about topic 0") and growth.bytes > 0
    trials.close_all()
    total = trials.statistics().total
    assert total.tokens == growth.tokens and total.bytes == 0


async def live_one(trials: MemoryStoreManager, n: int, gate: asyncio.Semaphore) -> None:
    """Edit a trial among thousands of others, and find exactly its own edits in it."""
    rng, request = random.Random(n), f"{n:08x}"
    async with gate:
        with trials.trial(NAMESPACE, request) as trial:
            mine: dict[str, str] = {}
            gone: set[str] = set()
            for step in range(4):
                text = f"trial {n} wrote secret{n} at step {step}"
                id = f"memory_{rng.randint(1, 200)}"
                match rng.randrange(4):
                    case 0:
                        mine[trial.add(text, label=f"turn {step}").id] = text
                    case 1 if id in trial:
                        mine[trial.update(id, text).id] = text
                    case 2 if id in trial:
                        trial.delete(id)
                        mine.pop(id, None)
                        gone.add(id)
                    case _:
                        hits = await trial.search(f"secret{n}", 3, "bm25")
                        assert {hit.entry.id for hit in hits} <= mine.keys()
                await asyncio.sleep(0)  # let others run between any two steps
            own = {i: e.content for i in mine if (e := trial.get(i))}
            assert own == mine and not any(id in trial for id in gone)
            hits = await trial.search(f"secret{n}", 10, rng.choice(["bm25", "hybrid"]))
            written = {h.entry.id for h in hits if h.entry.provenance.kind != "base"}
            assert written == mine.keys() and all(str(n) in mine[id] for id in written)
            assert replay(trial.corpus, trial.ops).snapshot() == trial.snapshot()


def test_ten_thousand_interleaved_trials_are_isolated_and_leave_nothing():
    trials = manager()

    async def run(count: int) -> None:
        gate = asyncio.Semaphore(2000)
        for start in range(0, count, 2500):
            span = range(start, min(start + 2500, count))
            await asyncio.gather(*(live_one(trials, n, gate) for n in span))

    asyncio.run(run(100))  # what is made once is made now
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    asyncio.run(run(500))
    gc.collect()
    left = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert left < 100_000, f"{left} bytes are left of 500 trials"
    asyncio.run(run(10_000))
    seen = trials.statistics()
    assert (seen.opened, seen.closed, seen.live) == (10_600, 10_600, 0)
    assert seen.peak == 2000 and seen.growth == Growth()
    assert seen.total.created > 5000 and seen.total.updated > 5000 and seen.total.deleted > 5000


def test_opening_costs_the_same_whatever_the_base():
    """Bytes and not seconds: they do not depend on what else the machine does."""
    sizes = []
    for n in (10, 20_000):
        trials = MemoryStoreManager({"conv-26": Corpus.build("conv-26", [Draft("a b")] * n)})
        trials.open(NAMESPACE).close()
        tracemalloc.start()
        for i in range(100):
            trials.open(NAMESPACE, f"{i:08x}")
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert sizes[1] == pytest.approx(sizes[0], rel=0.2)
    assert sizes[0] / 100 < 4000

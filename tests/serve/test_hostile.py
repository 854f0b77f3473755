"""A server under attack, as an honest client sees it: `benchmarks/soak.py` for some seconds.

The bounds leave room for a machine that has other work to do; what an idle one shows is in
docs/serve.md.
"""

from __future__ import annotations

import random
import time

import pytest

from benchmarks.attacks import bodies
from benchmarks.soak import Probe, percentile, soak
from recollect.serve.bodies import JsonShape
from recollect.serve.refusal import Refusal
from recollect.serve.requests import ChatAsked, CompletionAsked, read
from tests.support.tiny import tiny_model
from tests.support.warm import Warm

SECONDS = 8.0
ATTACKS = 10
TRIES = 3
"""Other work on the machine may take its time once or twice; a server that stalls always does."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Probe, Probe]:
    folder = tiny_model(tmp_path_factory.mktemp("attacked"))
    ready = folder / "ready"
    limits = ("--limits.head-seconds", "2", "--limits.connections", "64", "--cache-gib", "0.1")
    places = ("--port", "0", "--ready-file", str(ready), "--threads", "1")
    process = Warm(["serve", str(folder), *places, *limits])
    try:
        while not ready.exists():
            assert process.poll(0.01) is None, process.err.read_text()
        url = ready.read_text().strip()
        for _ in range(TRIES):
            alone, attacked = soak(url, process.pid, SECONDS, attackers=2, window=4096, quiet=1.0)
            assert process.poll() is None
            quick = answers_at_once(attacked) and chats_in_time(alone, attacked)
            if quick and sum(attacked.attacked.values()) > ATTACKS:
                break
    finally:
        process.kill()
    return alone, attacked


def answers_at_once(attacked: Probe) -> bool:
    return percentile(attacked.health, 0.9) < 0.1


def chats_in_time(alone: Probe, attacked: Probe) -> bool:
    quiet, busy = percentile(alone.chats, 0.9), percentile(attacked.chats, 0.5)
    return busy < 2 * quiet + 0.25


def test_health_answers_at_once_whatever_others_send(seen):
    _alone, attacked = seen
    assert len(attacked.health) > 40
    assert answers_at_once(attacked), attacked.health


def test_a_short_chat_takes_at_most_about_twice_as_long(seen):
    alone, attacked = seen
    assert attacked.refused == {} and len(attacked.chats) >= 3
    assert chats_in_time(alone, attacked), (alone.chats, attacked.chats)


def test_the_same_chat_is_answered_the_same_and_nothing_in_the_server_fails(seen):
    alone, attacked = seen
    assert len(alone.said) == 1 and attacked.said == alone.said
    assert sum(attacked.attacked.values()) > ATTACKS
    assert not [status for status in attacked.attacked if status >= 500]


def test_memory_does_not_grow_with_what_was_refused(seen):
    _alone, attacked = seen
    third = len(attacked.memory) // 3
    assert max(attacked.memory[-third:]) < max(attacked.memory[:third]) + 64


# What is refused while its bytes come, before any of it is parsed, for its shape or its length.
UNREAD = {"prompts", "values", "deep", "integers", "integer", "unknown", "text", "15 MB"}


@pytest.mark.parametrize("name", sorted(set(bodies(random.Random(0), 4096)) - UNREAD))
def test_no_body_holds_the_event_loop_up(name):
    """What passes the limits is read in a moment, and an error says little about it."""
    path, body = bodies(random.Random(0), 4096)[name]
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        try:
            read(ChatAsked if "chat" in path else CompletionAsked, body)
        except Refusal as refusal:
            assert len(str(refusal.body)) < 1000
        best = min(best, time.process_time() - started)
    assert best < 0.08


def test_what_is_refused_unread_is_seen_by_its_shape():
    found = bodies(random.Random(0), 4096)
    for name in UNREAD - {"text", "15 MB"}:
        shape = JsonShape()
        shape.feed(found[name][1])
        assert shape.too_much(values=1 << 16), name

"""A server under attack, as an honest client sees it: `benchmarks/soak.py` for some seconds."""

from __future__ import annotations

import pytest

from benchmarks.soak import Probe, percentile, server, soak
from tests.support.tiny import tiny_model

SECONDS = 8.0


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Probe, Probe]:
    folder = tiny_model(tmp_path_factory.mktemp("attacked"))
    limits = ("--limits.head-seconds", "2", "--limits.connections", "64", "--cache-gib", "0.1")
    with server(folder, *limits) as (url, process):
        alone, attacked = soak(url, process.pid, SECONDS, attackers=1, window=4096, quiet=3.0)
        assert process.poll() is None
    return alone, attacked


def test_health_answers_at_once_whatever_others_send(seen):
    _alone, attacked = seen
    assert len(attacked.health) > 40
    assert percentile(attacked.health, 0.9) < 0.1  # the machine may have other work to do


def test_a_short_chat_takes_at_most_about_twice_as_long(seen):
    alone, attacked = seen
    assert attacked.refused == {} and len(attacked.chats) >= 3
    quiet, busy = percentile(alone.chats, 0.9), percentile(attacked.chats, 0.5)
    assert busy < 2 * quiet + 0.25


def test_memory_does_not_grow_with_what_was_refused(seen):
    _alone, attacked = seen
    third = len(attacked.memory) // 3
    assert max(attacked.memory[-third:]) < max(attacked.memory[:third]) + 64

"""Fixtures that several files use."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.world import REAL, World, load, made_up

# How long an example takes is the machine's business, and on a busy one no sign of a mistake.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Nobody here speaks TLS, and to read the certificates of the whole world takes every client of
# another library longer than all that it is asked for.
os.environ.setdefault("SSL_CERT_DIR", str(Path(__file__).parent / "support"))

# Importing every test and what it tests makes millions of objects that all stay. To look through
# them again and again is half of the time this takes, and a third of a second each time later.
gc.disable()


# Those that take longest, most of it in other processes or waiting. One that begins last is waited
# for alone.
FIRST = (
    "test_both_stages_raise_their_score",
    "test_the_reward_rises",
    "test_reward_alone_decides_which_mention_is_kept",
    "test_a_few_seconds_of_every_kind_of_fault",
    "test_an_example_learns[own_agent]",
    "test_reward_teaches_which_program_fits",
    "test_an_agent_of_a_cell_is_trained_evaluated_plotted_and_resumed",
    "test_ten_thousand_interleaved_trials_are_isolated_and_leave_nothing",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; all else stays in its order."""
    items.sort(key=lambda item: FIRST.index(item.name) if item.name in FIRST else len(FIRST))


def pytest_collection_finish() -> None:
    """Collect garbage again, but not among what has been imported, and not all the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    # On ARM it multiplies large matrices well, and takes four times as long for tiny ones. Beside
    # verl it stays: Ray's processes have it as well.
    if (torch := sys.modules.get("torch")) and find_spec("verl") is None:
        torch.backends.mkldnn.enabled = False


@pytest.fixture(scope="module", params=["made up", "locomo"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return conversations with memories: always made-up ones, real ones where they are."""
    folder = tmp_path_factory.mktemp("world")
    if request.param == "made up":
        return made_up(folder)
    if not REAL.exists():
        pytest.skip("LoCoMo is not beside the repository")
    return load(REAL, folder)


@pytest.fixture
def heard() -> Iterator[None]:
    """Undo what a shell does to background processes, which the tests may be."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

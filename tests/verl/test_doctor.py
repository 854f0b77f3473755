"""The doctor on a real Ray, and every trap of the installed verl."""

from __future__ import annotations

import pytest

pytest.importorskip("verl")

from recollect.cli import main
from recollect.engines.verl.doctor import traps


@pytest.fixture(scope="module")
def found():
    return traps.look()


@pytest.mark.parametrize("trap", traps.TRAPS, ids=lambda trap: str(trap.number))
def test_every_trap_of_this_verl_is_known(found, trap):
    """If one of these fails, verl has changed: see whether our way around is still needed."""
    mine = next(one for one in found if one.trap == trap)
    assert mine.there is True, mine.problem


def test_the_plugin_is_loaded_in_a_ray_worker(capsys):
    assert main(["doctor", "--engine", "verl"]) == 0
    text = capsys.readouterr().out
    assert "verl loads MemoryLoop in a Ray worker" in text
    assert "Ready: recollect train PRESET --engine verl" in text

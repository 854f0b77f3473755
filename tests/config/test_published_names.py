"""The fields of a run's agent, reward and tasks are flags of the command line."""

from __future__ import annotations

import dataclasses

import pytest

from recollect.commands.arguments import read_config
from recollect.config.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("part", ["tasks", "agent", "reward"])
def test_every_number_of_a_part_is_a_flag(name, part):
    own = getattr(PRESETS[name], part)
    numbers = {
        spec.name: getattr(own, spec.name) + 1
        for spec in dataclasses.fields(own)
        if type(getattr(own, spec.name)) is int and spec.name != "filler"  # plain wording has none
    }
    words = [f"--{part}.{key.replace('_', '-')}={new}" for key, new in numbers.items()]
    found = getattr(read_config([name, *words], "train", "demo"), part)
    assert type(found) is type(own)
    assert {key: getattr(found, key) for key in numbers} == numbers

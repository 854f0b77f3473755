"""What a run works with: loaded once, and freed when the run is over."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from recollect.commands.train import run_training
from recollect.config.presets import preset
from recollect.config.rollout import ValidationConfig
from recollect.errors import UserError
from recollect.train.rollouts import Rollouts


def test_what_was_imported_is_not_looked_through_again_and_models_can_be_freed():
    config = replace(preset("demo"), val=ValidationConfig(tasks=2))
    gc.unfreeze()
    Rollouts.open(config).roles.close()
    assert not gc.get_freeze_count(), "what else a process holds is not ours to keep"
    with pytest.raises(UserError):
        run_training(replace(config, trackers=("nobody",)))
    opened = Rollouts.open(config)
    kept = gc.get_freeze_count()
    assert kept > 20 * len(gc.get_objects()), "torch and transformers alone have 300,000 objects"
    network = opened.model.network
    network.ring = [network]  # only the collector can free it
    gone = weakref.ref(network)
    opened.roles.close()
    del opened, network
    Rollouts.open(config).roles.close()
    assert 0 < gc.get_freeze_count() <= kept, "nothing is added; what nobody refers to is freed"
    gc.collect()
    assert gone() is None

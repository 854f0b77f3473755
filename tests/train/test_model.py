"""Models that the engine must refuse, because it would get them silently wrong."""

from __future__ import annotations

import pytest

from recollect.errors import UserError
from recollect.train.model import load_model
from recollect.train.settings import ModelConfig
from tests.tiny import tiny_model


def test_layers_that_mix_tokens_outside_attention_are_refused(tmp_path):
    """Sequences stand in one row: a convolution would carry one into the next."""
    folder = tiny_model(tmp_path, "lfm2", layer_types=["conv", "full_attention"])
    with pytest.raises(UserError, match="outside attention"):
        load_model(ModelConfig(path=str(folder)))


def test_attention_alone_is_accepted(tmp_path):
    folder = tiny_model(tmp_path, "lfm2", layer_types=["full_attention", "full_attention"])
    assert load_model(ModelConfig(path=str(folder))).window == 4096

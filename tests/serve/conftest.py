"""One tiny model for all tests of the server."""

from __future__ import annotations

import pytest
import torch

from recollect.models.model import LoadedModel, ModelConfig, load_model
from tests.support.tiny import tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    torch.set_num_threads(1)
    return load_model(ModelConfig(path=str(tiny_model(tmp_path_factory.mktemp("served")))))

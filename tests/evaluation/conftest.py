"""The data of every family, built once: it takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.every_family import build_all


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder from which every family can be opened; nothing writes to it."""
    folder = tmp_path_factory.mktemp("families")
    build_all(folder)
    return folder

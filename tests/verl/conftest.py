"""These tests need verl's own environment (`make test-verl`); elsewhere they are not collected."""

from __future__ import annotations

import importlib.util
import os

from recollect.engines.verl.cpu.keys import ENVIRONMENT
from recollect.engines.verl.environment import PLUGIN

if importlib.util.find_spec("verl") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    # Before anything imports verl: it looks for its platform and for our plugin when it is.
    os.environ |= ENVIRONMENT | {"VERL_USE_EXTERNAL_MODULES": PLUGIN}

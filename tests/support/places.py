"""Where the repository is, and the public data sets that may lie beside it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("RECOLLECT_TEST_DATA", ROOT.parent / "shared" / "data"))
"""A checkout that lies elsewhere names the folder in RECOLLECT_TEST_DATA."""

"""End with 0 if the installed torch is a build that needs CUDA's libraries, else with 1."""

import sys
from importlib.metadata import requires

sys.exit(not any("nvidia-" in need and "extra" not in need for need in requires("torch") or ()))

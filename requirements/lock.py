"""Write the pinned requirement files from a fresh environment: `make lock`.

Each file adds to the one before it, so one environment can grow from demo to test to bench.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).parent
TORCH = ["torch==2.13.0", "transformers==5.17.0"]
BUILD = ["hatchling", "editables"]
# file -> (the command it serves, what to install on top of the previous file)
FILES = {
    "demo.txt": ("make demo", [*TORCH, *BUILD, f"{HERE.parent}[local]"]),
    "test.txt": ("make test", [f"{HERE.parent}[serve,test,check]"]),
    "bench.txt": ("make bench", [f"{HERE.parent}[bench]"]),
}


def freeze(python: Path) -> list[str]:
    """List what is installed, without this package, pip, and the build tag of a local wheel."""
    listing = subprocess.check_output([python, "-m", "pip", "freeze", "--all"], text=True)
    pins = [line.partition("+")[0] for line in listing.splitlines() if " @ " not in line]
    return sorted((pin for pin in pins if not pin.startswith("pip==")), key=str.lower)


def main() -> None:
    """Install step by step and write what each step brought."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        known: set[str] = set()
        previous = ""
        for name, (command, packages) in FILES.items():
            constraints = [f"--constraint={HERE / previous}"] if previous else []
            subprocess.check_call([python, "-m", "pip", "install", *constraints, *packages])
            pins = [pin for pin in freeze(python) if pin not in known]
            lines = [f"# What `{command}` installs, exactly. Made by `make lock`."]
            lines += [f"-r {previous}"] if previous else []
            (HERE / name).write_text("\n".join([*lines, *pins]) + "\n")
            known.update(pins)
            previous = name


if __name__ == "__main__":
    sys.exit(main())

"""`make chaos`: disturb everything at random for some minutes, and count what was lost.

    python -m tests.chaos --minutes 10 --seed 7 [--only FAULT]

The same seed draws the same faults; when they strike depends on the machine.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.suite import FAULTS, Suite, table


def main() -> int:
    """Run the suite; 1 if anything was lost, doubled or changed."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--only", action="append", choices=FAULTS, metavar="FAULT", default=[])
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    base = Path(tempfile.mkdtemp(prefix="chaos-"))
    with Suite(base, given.seed) as suite:
        rows = suite.run(given.minutes * 60, given.only or list(FAULTS))
        print(table(rows), flush=True)
    if any(row.wrong for row in rows):
        print(f"\nseed {given.seed}; the folders of what went wrong are in {base}", file=sys.stderr)
        return 1
    shutil.rmtree(base)
    return 0


if __name__ == "__main__":
    sys.exit(main())

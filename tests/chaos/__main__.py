"""`make chaos`: disturb everything at random for some minutes, and count what was lost.

    python -m tests.chaos --minutes 9 --seed 7 [--only FAULT] [--table docs/reliability.md]

The same seed draws the same faults; when they strike depends on the machine.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tests.chaos.suite import FAULTS, Suite
from tests.chaos.table import Row, put, table

GRACE = 45.0
"""Seconds beyond its time after which the suite itself hangs."""


class OutOfTime(BaseException):
    """The suite did not end in time."""


def main() -> int:
    """Run the suite; 1 if anything was lost, doubled, changed or said wrongly."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--only", action="append", choices=FAULTS, metavar="FAULT", default=[])
    parser.add_argument("--table", type=Path, help="a page that gets the table if all is well")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    base = Path(tempfile.mkdtemp(prefix="chaos-"))
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, given.minutes * 60 + GRACE)
    try:
        with Suite(base, given.seed) as suite:
            rows = suite.run(given.minutes * 60, given.only or list(FAULTS))
            print(table(rows), flush=True)
        wrong = _wrong(rows)
    except OutOfTime:
        wrong = "it did not end in time"
    except AssertionError as error:  # a server that does not end as it should
        wrong = str(error)
    if wrong:
        print(f"\nseed {given.seed}: {wrong}; the folders are in {base}", file=sys.stderr)
        return 1
    shutil.rmtree(base)
    if given.table:
        put(given.table, rows, given.seed, given.minutes)
    return 0


def _late(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTime


def _wrong(rows: list[Row]) -> str:
    counts = {row.fault: row.wrong for row in rows if row.wrong}
    untried = [row.fault for row in rows if not row.tries]
    said = [f"{count} tries of {name!r} went wrong" for name, count in counts.items()]
    return "; ".join(said + [f"{name!r} was not tried" for name in untried])


if __name__ == "__main__":
    sys.exit(main())

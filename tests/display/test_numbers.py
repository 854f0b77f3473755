"""Numbers have one form, on the terminal and in reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recollect.display.numbers import (
    GIB,
    count,
    dollars,
    duration,
    estimate,
    gib,
    interval,
    p_value,
    share,
    signed,
)
from tests.support.places import ROOT


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (count(0), "0"),
        (count(7.25), "7.2"),
        (count(940), "940"),
        (count(20_480), "20,480"),
        (count(999_999), "999,999"),
        (count(999_999.7), "1M"),
        (count(1_750_000), "1.75M"),
        (count(3_141_592), "3.14M"),
        (count(1.2e9), "1.2B"),
        (dollars(0), "$0"),
        (dollars(0.00036), "$0.00036"),
        (dollars(0.02), "$0.02"),
        (dollars(2.8), "$2.80"),
        (dollars(1251.489), "$1,251.49"),
        (p_value(0.0004), "< 0.001"),
        (p_value(0.0449), "0.045"),
        (p_value(1.0), "1.000"),
        (signed(-0.0), "0.000"),
        (signed(0.125), "+0.125"),
        (signed(-0.004), "\u22120.004"),
        (duration(-1), "0.0 s"),
        (duration(3.21), "3.2 s"),
        (duration(9.96), "10 s"),
        (duration(59.6), "1 min 00 s"),
        (duration(125), "2 min 05 s"),
        (duration(5431), "1 h 30 min"),
        (share(0.6640625), "0.664"),
        (interval(0.31, 0.3574), "0.310 to 0.357"),
        (estimate(0.333, 0.31, 0.3574), "0.333 [0.310, 0.357]"),
        (gib(0.02 * GIB), "0.02 GiB"),
        (gib(12.34 * GIB), "12.3 GiB"),
    ],
)
def test_numbers(written: str, expected: str) -> None:
    assert written == expected


def test_no_other_place_writes_shares_in_percent() -> None:
    """A style sheet's percent and a chart's coordinates are no figures for a reader."""
    source = ROOT / "src" / "recollect"
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in sorted(Path(source).rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"\{[^{}]*:(\.\d)?%\}|\{100 \* [^{}]*\}", line) and "<rect" not in line
    ]
    assert found == []

"""Numbers as people read them, in one form everywhere: terminal, report, page. Knows no table.

A score or a share is written as 0.333, never in percent.
"""

from __future__ import annotations

import math

GIB = 1 << 30


def share(value: float) -> str:
    """Write a share of 1, such as a score: 0.333."""
    return f"{value:.3f}"


def interval(low: float, high: float) -> str:
    """Write an interval in a column of its own: 0.310 to 0.357."""
    return f"{share(low)} to {share(high)}"


def estimate(mean: float, low: float, high: float) -> str:
    """Write a score and its interval in a line: 0.333 [0.310, 0.357]."""
    return f"{share(mean)} [{share(low)}, {share(high)}]"


def signed(value: float) -> str:
    """Write a difference of scores: +0.021, \N{MINUS SIGN}0.004."""
    text = f"{value:+.3f}"
    return "0.000" if text in ("-0.000", "+0.000") else text.replace("-", "\N{MINUS SIGN}")


def p_value(p: float) -> str:
    """Write a p-value as far as it means something."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def count(number: float) -> str:
    """Write a count: 7.2, 982, 20,480, 3.14M, 1.2B."""
    for size, unit in ((1e9, "B"), (1e6, "M")):
        if round(number) >= size:
            return f"{number / size:.2f}".rstrip("0").rstrip(".") + unit
    return f"{number:,.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"


def dollars(value: float) -> str:
    """Write an amount of money to the cent, or with three digits that count."""
    if value == 0:
        return "$0"
    digits = max(2, 2 - math.floor(math.log10(abs(value))))
    whole, _, cents = f"{value:,.{digits}f}".partition(".")
    return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"


def duration(seconds: float) -> str:
    """Write a time span: 3.2 s, 48 s, 2 min 05 s, 1 h 30 min."""
    seconds = max(0.0, seconds)
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def gib(size: float) -> str:
    """Write a size in bytes: 0.02 GiB, 12.3 GiB."""
    return f"{size / GIB:.{1 if size >= 10 * GIB else 2}f} GiB"

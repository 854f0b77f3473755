"""Numbers as a report writes them."""

from __future__ import annotations

import math

from recollect.evaluation.results import Estimate


def percent(value: float) -> str:
    """Write a share of 1 in percent, without the sign."""
    return f"{100 * value:.1f}"


def interval(score: Estimate) -> str:
    """Write a score's interval."""
    return f"{percent(score.low)} to {percent(score.high)}"


def scored(score: Estimate) -> str:
    """Write a score with its interval, and how much of it failed."""
    failed = f", {score.n_failed} failed" if score.n_failed else ""
    return f"{percent(score.mean)} ({interval(score)}{failed})"


def signed(value: float) -> str:
    """Write a difference of shares in points."""
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("-0.0", "+0.0") else text.replace("-", "\u2212")


def p_value(p: float) -> str:
    """Write a p-value as far as it means something."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def count(value: float) -> str:
    """Write a count shortly: 940, 7.0K, 28K, 1.75M."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= 0.9995 * size:
            scaled = value / size
            digits = max(0, 2 - math.floor(math.log10(scaled) + 1e-9))
            text = f"{scaled:.{digits}f}"
            return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{letter}"
    return f"{value:.0f}" if value >= 10 or value == round(value) else f"{value:.1f}"


def dollars(value: float) -> str:
    """Write an amount of money to the cent, or with three digits that count."""
    if value == 0:
        return "$0"
    digits = max(2, 2 - math.floor(math.log10(abs(value))))
    whole, _, cents = f"{value:,.{digits}f}".partition(".")
    return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"


def seconds(value: float) -> str:
    """Write a duration."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"

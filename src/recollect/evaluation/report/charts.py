"""Charts as SVG: accuracy against something, with intervals. No scripts, no fonts.

Colours are variables of the page (`--a1`, `--a2`, ...), so a chart follows light and dark. Agents
differ by shape and dash as well: nothing depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from recollect.foreign import for_page

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 34, 46
COLOURS = 10
"""Agents beyond these share colours, not shapes."""
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
_SHAPES = (
    '<circle r="4"/>',
    '<rect x="-3.6" y="-3.6" width="7.2" height="7.2"/>',
    '<path d="M0 -4.8 4.6 3.4 -4.6 3.4Z"/>',
    '<path d="M0 -5 5 0 0 5 -5 0Z"/>',
    '<path d="M0 4.8 4.6 -3.4 -4.6 -3.4Z"/>',
    '<path d="M-1.6 -4.6h3.2v3h3v3.2h-3v3h-3.2v-3h-3v-3.2h3z"/>',
    '<path d="M0 -5 1.5 -1.5 5 0 1.5 1.5 0 5 -1.5 1.5 -5 0 -1.5 -1.5Z"/>',
)

_OWN = (
    *("#0b62b8", "#c44f00", "#00805a", "#b0307e", "#7a5c00"),
    *("#6246c7", "#0083a3", "#c02b2b", "#4f6b10", "#5b6570"),
)
_OWN_STYLE = (
    "text{fill:#444}.title{font-size:14px;font-weight:600}.grid{stroke:#ddd}"
    + "".join(
        f".a{i}{{fill:{own}}}.a{i} .line,.a{i} .whisker{{stroke:{own};fill:none}}"
        for i, own in enumerate(_OWN, 1)
    )
    + ".axis{stroke:#444}.whisker{opacity:.55}"
)
"""For a file without a page around it; colours as on a light page."""


@dataclass(frozen=True)
class Point:
    """A score at a place on the x axis."""

    x: float
    y: float
    low: float
    high: float
    note: str
    """Shown when a pointer rests on it."""


@dataclass(frozen=True)
class Series:
    """One agent's points; `style` is its place among all agents of the report."""

    name: str
    style: int
    points: Sequence[Point]


def mark(style: int) -> str:
    """Draw an agent's mark at the origin, with the dash of its line."""
    colour = style % COLOURS + 1
    return f'<g class="mark a{colour}">{_SHAPES[style % len(_SHAPES)]}</g>'


def chart(
    title: str,
    x_title: str,
    series: Sequence[Series],
    x_text: Callable[[float], str],
    lines: bool = True,
    log: bool = True,
) -> str:
    """Draw scores against x, by default on a log axis; `lines` joins the points of a series."""
    xs = [point.x for one in series for point in one.points]
    place = _log_scale(xs) if log else _even_scale(xs)
    ticks = _ticks(xs) if log else _even_ticks(xs)
    parts = [_frame(title, x_title, ticks, place, x_text)]
    for number, one in enumerate(series):
        # Whiskers of one x stand side by side, so that none hides another.
        some = any(point.low < point.high for point in one.points)
        shift = (number - (len(series) - 1) / 2) * min(4.0, 20 / len(series)) if some else 0.0
        parts.append(_series(one, place, shift, lines))
    label = for_page(f"{title}: accuracy against {x_title}")
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _log_scale(xs: Sequence[float]) -> Callable[[float], float]:
    low, high = math.log(min(xs)), math.log(max(xs))
    pad = max(0.06 * (high - low), 0.25)
    low, high = low - pad, high + pad
    return lambda x: LEFT + (math.log(x) - low) / (high - low) * (WIDTH - LEFT - RIGHT)


def _even_scale(xs: Sequence[float]) -> Callable[[float], float]:
    pad = max(0.04 * (max(xs) - min(xs)), 0.25)
    low, high = min(xs) - pad, max(xs) + pad
    return lambda x: LEFT + (x - low) / (high - low) * (WIDTH - LEFT - RIGHT)


def _even_ticks(xs: Sequence[float]) -> list[float]:
    apart = max(1, math.ceil((max(xs) - min(xs)) / 6))
    first = math.ceil(min(xs) / apart) * apart
    return [float(tick) for tick in range(first, math.floor(max(xs)) + 1, apart)]


def _y(value: float) -> float:
    return TOP + (1 - value) * (HEIGHT - TOP - BOTTOM)


def _ticks(xs: Sequence[float]) -> list[float]:
    """Return the data's own places where they are few and apart, else round numbers between."""
    own = sorted(set(xs))
    if len(own) <= 8 and all(b / a > 1.6 for a, b in pairwise(own)):
        return own
    low, high = min(xs), max(xs)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [s * 10.0**d for d in decades for s in steps]
        ticks = [tick for tick in ticks if 0.8 * low <= tick <= 1.25 * high]
        if len(ticks) <= 7:
            break
    return ticks or own[:: max(1, len(own) - 1)]


def _frame(
    title: str,
    x_title: str,
    ticks: Sequence[float],
    place: Callable[[float], float],
    x_text: Callable[[float], str],
) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<text class="title" x="{LEFT}" y="18">{for_page(title)}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.2f}</text>')
    for tick in ticks:
        x = place(tick)
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom}v5"/>')
        text = for_page(x_text(tick))
        parts.append(f'<text x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{text}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>')
    middle = (LEFT + right) / 2
    parts.append(
        f'<text class="label" x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{for_page(x_title)}</text>"
    )
    return "".join(parts)


def _series(one: Series, place: Callable[[float], float], shift: float, lines: bool) -> str:
    points = sorted(one.points, key=lambda point: point.x)
    spots = [(place(point.x) + shift, _y(point.y), point) for point in points]
    parts = []
    if lines and len(spots) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in spots)
        dash = _DASHES[one.style % len(_DASHES)]
        parts.append(f'<path class="line" stroke-dasharray="{dash or "none"}" d="M{path}"/>')
    for x, y, point in spots:
        parts.append(
            f'<path class="whisker" d="M{x:.1f} {_y(point.low):.1f}V{_y(point.high):.1f}"/>'
        )
        shape = _SHAPES[one.style % len(_SHAPES)]
        parts.append(
            f'<g transform="translate({x:.1f} {y:.1f})"><title>{for_page(point.note)}</title>'
            f"{shape}</g>"
        )
    return f'<g class="a{one.style % COLOURS + 1}">{"".join(parts)}</g>'


def standalone(charts: Sequence[str], names: Sequence[str]) -> str:
    """Put charts side by side into a file of their own, with colours and a legend."""
    wide, high = WIDTH * len(charts), HEIGHT + 24
    inside = [
        svg.replace("<svg ", f'<svg x="{WIDTH * i}" width="{WIDTH}" height="{HEIGHT}" ', 1)
        for i, svg in enumerate(charts)
    ]
    apart = max(150, 30 + 7 * max(map(len, names), default=0))
    legend = "".join(
        f'<g transform="translate({LEFT + apart * i} {HEIGHT + 10})">{mark(i)}'
        f'<text x="10" y="4">{for_page(name)}</text></g>'
        for i, name in enumerate(names)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}"'
        f' font-family="sans-serif" font-size="12"><style>{_OWN_STYLE}</style>'
        f'<rect width="{wide}" height="{high}" fill="#fff"/>{"".join(inside)}{legend}</svg>\n'
    )


def bar(low: float, mean: float, high: float) -> str:
    """Draw a score between 0 and 1: its interval as a band, its mean as a stroke."""
    wide = 100 * (high - low)
    return (
        '<svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" y="4" width="100" height="4"/>'
        f'<rect class="band" y="2" height="8" x="{100 * low:.1f}" width="{wide:.1f}"/>'
        f'<rect class="mean" x="{min(98.0, max(0.0, 100 * mean - 1)):.1f}" width="2" height="12"/>'
        "</svg>"
    )

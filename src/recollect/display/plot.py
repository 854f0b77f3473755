"""Curves of a run as a picture: a notebook shows it by itself, and any browser opens it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recollect.foreign import for_page

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 260, 56, 40
COLOURS = ("#3b6fd4", "#c8553d", "#3a8f5c", "#8a5cb8")


@dataclass(frozen=True)
class Plot:
    """Curves by name, each a list of steps and a list of values."""

    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]

    def _repr_svg_(self) -> str:
        """Draw the curves; notebooks call this."""
        finite = {name: _finite(*curve) for name, curve in self.curves.items()}
        points = [point for curve in finite.values() for point in curve]
        (x0, x1), (y0, y1) = _span([x for x, _ in points]), _span([y for _, y in points])

        def at(x: float, y: float) -> str:
            right = LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - 12)
            down = HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - BOTTOM - 28)
            return f"{right:.1f},{down:.1f}"

        drawn = []
        for i, (name, curve) in enumerate(finite.items()):
            line, colour = " ".join(at(x, y) for x, y in curve), COLOURS[i % len(COLOURS)]
            drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
            dots = (at(x, y).split(",") for x, y in curve)
            drawn += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in dots]
            label = for_page(name)
            drawn.append(f'<text x="{LEFT + 150 * i}" y="14" fill="{colour}">{label}</text>')
        return _framed("".join(drawn), (x0, x1), (y0, y1))

    def save(self, path: str | Path) -> None:
        """Write the picture as an SVG file."""
        Path(path).write_text(self._repr_svg_(), "utf-8")


def _finite(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None and math.isfinite(y)]


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis, which are never the same."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _framed(drawn: str, xs: tuple[float, float], ys: tuple[float, float]) -> str:
    base = HEIGHT - BOTTOM
    axes = f'<path d="M{LEFT} 24V{base}H{WIDTH - 12}" fill="none" stroke="#888"/>'
    texts = [
        (LEFT - 6, base, "end", f"{ys[0]:.3g}"),
        (LEFT - 6, 32, "end", f"{ys[1]:.3g}"),
        (LEFT, base + 16, "start", f"{xs[0]:g}"),
        (WIDTH - 12, base + 16, "end", f"{xs[1]:g}"),
        ((WIDTH + LEFT) // 2, base + 32, "middle", "step"),
    ]
    numbers = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{side}" fill="#888">{text}</text>'
        for x, y, side, text in texts
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' font-family="sans-serif" font-size="12" role="img">{axes}{numbers}{drawn}</svg>'
    )

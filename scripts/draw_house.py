"""Draw the house: every folder of the package on its floor, and who imports whom.

    python scripts/draw_house.py          writes docs/images/house.svg
    python scripts/draw_house.py --check  exits with 1 if the picture is out of date

Floors come from the import contract in pyproject.toml and arrows from the imports themselves. An
arrow that others imply (A to B to C says A to C) is left out. Needs the standard library alone.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "recollect"
PICTURE = ROOT / "docs" / "images" / "house.svg"
ABOUT = {
    "cli": "the command line",
    "commands": "what a person starts",
    "evaluation": "agents side by side",
    "serve": "an OpenAI server",
    "endpoint": "any length of chat",
    "view": "the viewer",
    "engines": "verl on Ray",
    "display": "what a person sees",
    "train": "the training loop",
    "sampler": "drawing tokens",
    "models": "weights and tries",
    "config": "settings, presets",
    "rollout": "episodes at once",
    "samples": "contexts to rows",
    "accuracy": "held-out scores",
    "runs": "the run folder",
    "rewards": "what is paid for",
    "agents": "ways of reading",
    "advantages": "group comparison",
    "forks": "from the middle",
    "tasks": "texts, questions",
    "memory": "what is kept",
    "policies": "who answers",
    "chat": "contexts, tools",
    "metrics": "scoring answers",
    "files": "safe writing",
    "concurrency": "many at once",
    "seeds": "every draw",
    "bounds": "allowed ranges",
    "foreign": "text from outside",
    "deadline": "time limits",
    "distribution": "name, version",
    "types": "the vocabulary",
    "errors": "for people",
}
BANDS = (  # title, the first floor that belongs to it, fill, line
    ("start and see", "cli", "#eef2ff", "#6366f1"),
    ("learn", "engines", "#fdf2f8", "#db2777"),
    ("set up and record", "config", "#fff7ed", "#ea580c"),
    ("read, remember, answer", "rewards", "#ecfdf5", "#059669"),
    ("vocabulary and tools", "metrics", "#f8fafc", "#64748b"),
)
WIDTH, LEFT, TOP = 1180, 176, 92
BOX_WIDTH, BOX_HEIGHT, FLOOR, GAP = 136, 40, 70, 40


def floors() -> list[list[str]]:
    """Read the floors from the contract, highest first, with the folders and modules that exist."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = contract["contracts"][0]["layers"]
    named = [[part.strip().strip("()") for part in layer.split(":")] for layer in layers]
    there = [[name for name in floor if _exists(name)] for floor in named]
    return [floor for floor in there if floor and floor != ["__main__"]]


def _exists(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def arrows(rooms: set[str]) -> dict[str, set[str]]:
    """Find who imports whom, from room to room."""
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in rooms:
            imported = {name.split(".")[1] for name in imports(path) if name.count(".")}
            found[room] |= (imported & rooms) - {room}
    return found


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports from the package, but for what only a type checker reads."""
    stack: list[ast.AST] = [ast.parse(path.read_text())]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("recollect."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recollect"):
            module = str(node.module)
            yield from (f"{module}.{a.name}" for a in node.names)
        stack += ast.iter_child_nodes(node)


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out arrows that longer ways imply."""

    def below(room: str, seen: set[str]) -> set[str]:
        for other in graph[room] - seen:
            seen.add(other)
            below(other, seen)
        return seen

    reach = {room: below(room, set()) for room in graph}
    return {
        room: {o for o in others if not any(o in reach[m] for m in others - {o})}
        for room, others in graph.items()
    }


def places(plan: list[list[str]], graph: dict[str, set[str]]) -> dict[str, tuple[float, float]]:
    """Put every room on its floor, below those that use it, so that arrows cross little."""
    found: dict[str, tuple[float, float]] = {}
    middle = LEFT + (WIDTH - LEFT - 24) / 2
    for level, floor in enumerate(plan):
        users = {r: [found[o][0] for o in found if r in graph[o]] for r in floor}
        mean = {r: sum(x) / len(x) if x else middle for r, x in users.items()}
        ordered = sorted(floor, key=lambda r: (mean[r], r))
        step = BOX_WIDTH + GAP
        # A floor hangs a little to the side of the one above it, so that arrows show.
        shift = 0 if len(ordered) > 3 else (46 if level % 2 else -46)
        start = middle + shift - step * (len(ordered) - 1) / 2
        for i, room in enumerate(ordered):
            found[room] = (start + i * step, TOP + level * FLOOR)
    return found


def draw() -> str:
    """Return the picture."""
    plan = floors()
    rooms = {room for floor in plan for room in floor}
    graph = arrows(rooms)
    shown = reduced(graph)
    at = places(plan, shown)
    height = TOP + FLOOR * len(plan) + 44
    total = sum(map(len, graph.values()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" font-family="Inter, Helvetica, Arial, sans-serif">',
        "<title>The folders of recollect, floor by floor, and who imports whom</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6"'
        ' markerHeight="6" orient="auto"><path d="M0 0.8 L7 4 L0 7.2 Z" fill="#94a3b8"/></marker>'
        "</defs>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(24, 40, "The house", 24, "#0f172a", weight=700),
        _text(
            24, 63, f"{len(rooms)} rooms on {len(plan)} floors; imports point only downwards", 13
        ),
        *_bands(plan),
        *(_arrow(at[room], at[other]) for room in sorted(shown) for other in sorted(shown[room])),
        *(_room(room, *at[room], _line(plan, room)) for room in sorted(rooms)),
        _text(
            24,
            height - 18,
            f"{sum(map(len, shown.values()))} arrows of {total}: the others follow from these."
            "  Made by scripts/draw_house.py from the imports.",
            12,
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _first_floors(plan: list[list[str]]) -> list[int]:
    firsts = [next((i for i, f in enumerate(plan) if band[1] in f), None) for band in BANDS]
    if None in firsts:
        missing = BANDS[firsts.index(None)][1]
        raise SystemExit(f"scripts/draw_house.py: BANDS names {missing}, which is on no floor")
    return [first for first in firsts if first is not None]


def _bands(plan: list[list[str]]) -> Iterator[str]:
    firsts = _first_floors(plan)
    ends = [*firsts[1:], len(plan)]
    for (title, _first, fill, line), start, end in zip(BANDS, firsts, ends, strict=True):
        top = TOP + start * FLOOR - (FLOOR - BOX_HEIGHT) / 2 + 3
        tall = (end - start) * FLOOR - 6
        yield (
            f'<rect x="12" y="{top:g}" width="{WIDTH - 24}" height="{tall:g}" rx="12"'
            f' fill="{fill}"/>'
        )
        yield f'<rect x="12" y="{top:g}" width="4" height="{tall:g}" rx="2" fill="{line}"/>'
        words = title.split(", ") if ", " in title else [title]
        for i, word in enumerate(words):
            comma = "," if i + 1 < len(words) else ""
            yield _text(30, top + 26 + i * 17, word + comma, 13, line, weight=600)
        if title == "learn":
            yield _text(30, top + 46, "torch may be imported", 11)
            yield _text(30, top + 61, "in this band and above", 11)


def _line(plan: list[list[str]], room: str) -> str:
    if room == "display":  # on the floor of the engines, but for people
        return BANDS[0][3]
    floor = next(i for i, names in enumerate(plan) if room in names)
    band = max(i for i, first in enumerate(_first_floors(plan)) if first <= floor)
    return BANDS[band][3]


def _room(room: str, x: float, y: float, line: str) -> str:
    name = f"{room}/" if (PACKAGE / room).is_dir() else room
    about = ABOUT.get(room, "")
    box = (
        f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
        f' rx="8" fill="#ffffff" stroke="{line}" stroke-width="1.4"/>'
    )
    title_y = y + (17 if about else 25)
    texts = [_text(x, title_y, name, 13.5, "#0f172a", weight=600, anchor="middle")]
    if about:
        texts.append(_text(x, y + 32, about, 11, anchor="middle"))
    return box + "".join(texts)


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    if start[1] == end[1]:  # neighbours on one floor
        side = BOX_WIDTH / 2 if end[0] > start[0] else -BOX_WIDTH / 2
        y = start[1] + BOX_HEIGHT / 2
        return _curve(f"M{start[0] + side:g} {y:g} L{end[0] - side:g} {y:g}")
    x1, y1 = start[0], start[1] + BOX_HEIGHT
    x2, y2 = end[0], end[1] - 2
    bend = max(18.0, (y2 - y1) * 0.45)
    return _curve(f"M{x1:g} {y1:g} C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}")


def _curve(path: str) -> str:
    return (
        f'<path d="{path}" fill="none" stroke="#94a3b8" stroke-width="1.2" opacity="0.75"'
        ' marker-end="url(#tip)"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    fill: str = "#475569",
    weight: int = 400,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}" font-weight="{weight}"'
        f' text-anchor="{anchor}">{escape(text)}</text>'
    )


def main() -> int:
    """Write the picture, or check that it is up to date."""
    picture = draw()
    if "--check" in sys.argv[1:]:
        return 0 if PICTURE.exists() and PICTURE.read_text() == picture else 1
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture)
    print(PICTURE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Record `make demo` as a picture: run it in a terminal of its own, and draw the last screen.

    python scripts/record_demo.py                    writes docs/images/demo.svg; minutes
    python scripts/record_demo.py -- --steps 3       the same with settings of `recollect train`

The picture is what a person sees at the end: the page of the run, rollouts and the report card.
It is drawn with the reader's own fonts: nothing in it is loaded from elsewhere.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "demo.svg"
WIDTH, HEIGHT = 96, 50
PROMPT = "\x1b[1;32m$\x1b[0m make demo\n"
SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|(\r\n|\n|\r)")
THEME = TerminalTheme(
    (24, 27, 38),
    (214, 219, 233),
    [
        *((59, 66, 97), (247, 118, 142), (158, 206, 106), (224, 175, 104)),
        *((122, 162, 247), (187, 154, 247), (125, 207, 255), (192, 202, 245)),
    ],
    [
        *((115, 122, 162), (255, 143, 163), (185, 242, 124), (255, 199, 119)),
        *((141, 176, 255), (199, 169, 255), (148, 226, 255), (255, 255, 255)),
    ],
)
FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>make demo, as it ends in a terminal</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
 font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}"
 height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""
"""Rich's picture of a terminal without the fonts that it loads from a server."""


def screen(output: str) -> list[str]:
    """Replay what a program wrote, and return the lines that remain, with their colours.

    Knows what rich's live pages use: colours, moves up, erased lines and returns.
    """
    lines, row, place = [""], 0, 0
    style = ""  # colours last until they are reset, also across lines

    def put(text: str) -> None:
        while len(lines) <= row:
            lines.append("")
        lines[row] += text

    for found in SEQUENCE.finditer(output):
        if text := output[place : found.start()]:
            put(style + text)
        place = found.end()
        numbers, kind, newline = found.groups()
        if newline:
            row += "\n" in newline
            put("")
        elif kind == "m":
            style = "" if numbers in ("", "0") else style + found[0]
            put(found[0])
        elif kind == "A":
            row = max(0, row - int(numbers or 1))
        elif kind == "K" and numbers in ("2", ""):
            lines[row] = ""
    put(output[place:])
    return lines


def record(arguments: list[str], folder: Path) -> str:
    """Run the demo in a terminal and return everything it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment = {**os.environ, **colours, "PYTHONPATH": str(ROOT / "src")}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "recollect", "train", "demo", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # how Linux tells that the other side has closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    if process.wait():
        raise SystemExit(f"the demo ended with status {process.returncode}:\n{written.decode()}")
    return written.decode().replace(f"{ROOT}/", "")


def draw(lines: list[str]) -> str:
    """Draw lines of a terminal as SVG."""
    while lines and not Text.from_ansi(lines[-1]).plain.strip():
        lines = lines[:-1]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in lines:
        shown = Text.from_ansi(line)
        shown.rstrip()
        console.print(shown, no_wrap=True, overflow="crop", crop=True)
    drawn = console.export_svg(
        title="make demo", theme=THEME, code_format=FORMAT, unique_id="demo", font_aspect_ratio=0.6
    )
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def main() -> None:
    """Record and draw."""
    arguments = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        lines = screen(PROMPT + record(arguments, Path(folder)))
    PICTURE.write_text(draw(lines))
    print(PICTURE.relative_to(ROOT), f"{PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

"""`recollect view` and `recollect compare`: look at runs and evaluations, and compare two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from recollect.errors import UserError
from recollect.files import make_folder
from recollect.foreign import one_line, shown
from recollect.view.comparison import Side, compare
from recollect.view.sources import open_sources

SHOWN = 12
"""Tasks that are listed for either side."""


@dataclass(frozen=True)
class ViewOptions:
    """Look at training runs and evaluations in a page on this machine."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = ()
    """Runs, evaluations, or folders of them; runs/ and evaluations/ if none is named."""
    export: Path | None = None
    """Write one HTML file that opens from disk, and serve nothing."""
    episodes: int = 200
    """Episodes of every folder whose films an exported file holds, wrong answers first."""
    host: str = "127.0.0.1"
    """Where to listen; beyond this machine it takes --api-key-env."""
    port: int = 8765
    """0 takes a free one."""
    api_key_env: str = ""
    """The environment variable with the key that the page asks for."""
    trust: bool = False
    """Import the modules that came with a folder: its own metrics, tasks and agents."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise UserError(f"port {self.port} does not exist", "set --port to 0 .. 65535")
        if self.episodes < 0:
            raise UserError(f"episodes is {self.episodes}", "set --episodes to 0 or more")


def run_view(options: ViewOptions) -> int:
    """Serve the page until a signal says to stop, or write it into a file."""
    from recollect.view.answers import Answers

    found = options.folders or tuple(p for p in (Path("runs"), Path("evaluations")) if p.is_dir())
    if not found:
        raise UserError(
            "there is nothing to look at: no folder was named, and there is no runs/ here",
            "type recollect view FOLDER",
        )
    if options.export and options.export.exists() and not options.export.is_file():
        what = "a folder" if options.export.is_dir() else "no file"
        raise UserError(f"{options.export} is {what}", "name a file, such as --export page.html")
    answers = Answers(open_sources(found, options.trust), options.trust)
    if options.export:
        from recollect.view.export import export

        make_folder(options.export.parent)
        size = export(answers, options.export, options.episodes)
        print(shown(one_line(f"wrote {options.export} ({size / 1e6:.1f} MB)")))
        return 0
    from recollect.serve.listening import bind, find_key
    from recollect.view.server import serve_until_stopped

    key = find_key(options.host, options.api_key_env)
    with bind(options.host, options.port) as listener:
        return serve_until_stopped(answers, listener, key)


@dataclass(frozen=True)
class CompareOptions:
    """Compare two evaluations, two agents or two checkpoints on the tasks that both have."""

    first: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """A run or an evaluation; RUN@20 is its step 20, EVALUATION@fold its agent fold."""
    second: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B")]
    """The other one."""
    trust: bool = False
    """Import the modules that came with a folder: its own metrics."""


def run_compare(options: CompareOptions, console: Console) -> int:
    """Print who won where, with the paired test."""
    sides = [_side(name, options.trust) for name in (options.first, options.second)]
    found = compare(*sides)
    first, second = found["names"]
    lines = [
        f"{first} minus {second}: {found['difference']:+.3f}"
        f" [{found['low']:+.3f}, {found['high']:+.3f}], {_shown_p(found['p'])}",
        f"{found['n']} answers to the same questions in {found['clusters']} clusters; without a"
        f" partner: {found['unpaired'][0]} and {found['unpaired'][1]}",
        f"both right {found['both']}, only the first {found['first']}, only the second"
        f" {found['second']}, neither {found['neither']}",
    ]
    for line in lines:
        console.print(one_line(line), markup=False, highlight=False, soft_wrap=True)
    for title, won in (("Won by the first", 0), ("Won by the second", 1)):
        rows = [row for row in found["rows"] if row["scores"][won] > row["scores"][1 - won]]
        if rows:
            console.print()
            console.print(_table(f"{title}: {len(rows)}", rows[:SHOWN]))
    return 0


def _shown_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _side(name: str, trust: bool) -> Side:
    path, choice = Path(name).expanduser(), ""
    if not path.exists() and "@" in name:
        left, _, choice = name.rpartition("@")
        path = Path(left).expanduser()
    found = open_sources([path], trust)
    if len(found) != 1:
        names = ", ".join(str(source.folder) for source in found)
        raise UserError(f"{path} holds {len(found)} folders", f"name one of {names}")
    found[0].refresh()
    return Side(found[0], choice)


def _table(title: str, rows: list[dict[str, object]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("task", "question", "accepted", "first", "second"):
        table.add_column(name, overflow="fold")
    for row in rows:
        answers = row["answers"]
        assert isinstance(answers, list)
        texts = (row["task"], row["question"], row["gold"], *answers)
        table.add_row(*(one_line(str(text), 60) for text in texts))
    return table

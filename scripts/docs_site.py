"""Hooks of mkdocs: pages that are not files of docs/, and the navigation.

The reference has an entry for every name of `import recollect`; the house rules and other pages of
the repository's root are copied. Patterns in the navigation become the pages that exist. Needs no
mkdocs until `on_files` is called, so that a test can check the rest without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
COPIED = {
    "CONTRIBUTING.md": "contributing.md",
    "AGENTS.md": "house-rules.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
}
"""Pages of the root and what the site calls them; the README is the site's start page already."""
TITLES = {
    "commands": "Train and evaluate",
    "config": "Settings",
    "types": "Vocabulary",
    "agents": "Agents",
    "chat": "Chats and tools",
    "memory": "Memories",
    "rewards": "Rewards",
    "tasks": "Task families",
    "models": "Models",
    "rollout": "Episodes",
}
"""Pages of the reference, in order, by the folder or module of a name."""
ELSEWHERE = {"policies": "models", "accuracy": "commands", "errors": "types"}
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#:]+)(#[^)\s]*)?\)")


def reference() -> dict[str, str]:
    """Return the pages of the reference, by path: every public name once, by where it lives."""
    import recollect

    pages: dict[str, list[str]] = {folder: [] for folder in TITLES}
    for name in recollect.__all__:
        if name != "__version__":
            home = "recollect.commands.api.train" if name == "train" else f"{_home(name)}.{name}"
            folder = home.split(".")[1]
            pages[ELSEWHERE.get(folder, folder)].append(f"::: {home}\n")
    return {
        f"reference/{number:02}-{folder}.md": "\n".join([f"# {TITLES[folder]}\n", *entries])
        for number, (folder, entries) in enumerate(pages.items(), 1)
    }


def _home(name: str) -> str:
    import recollect

    return str(recollect._MODULES[name])


def copied() -> dict[str, str]:
    """Return the pages of the repository's root that the site shows, by their path on the site."""
    return {to: (ROOT / name).read_text() for name, to in COPIED.items() if to != "index.md"}


def pages() -> list[str]:
    """List all pages of the site."""
    written = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    return [*written, *copied(), *reference()]


def fill(nav: list[Any], known: Iterable[str]) -> list[Any]:
    """Replace patterns in a navigation by the pages that match and are not named elsewhere."""
    named = set(_paths(nav))
    left = [page for page in known if page not in named]

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            [(title, inside)] = entry.items()
            if isinstance(inside, list):
                return [{title: [page for one in inside for page in expand(one)]}]
            return [{title: inside}] if "*" not in inside else [{title: p} for p in expand(inside)]
        if "*" not in entry:
            return [entry]
        found = [page for page in left if fnmatch(page, entry) and _as_deep(page, entry)]
        left[:] = [page for page in left if page not in found]
        return found

    return [page for entry in nav for page in expand(entry)]


def _as_deep(page: str, pattern: str) -> bool:
    return page.count("/") == pattern.count("/")


def _paths(nav: Any) -> Iterable[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for inside in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(inside)


def relink(markdown: str, page: str) -> str:
    """Point links to the root's pages at their copies; name other files of the repository."""

    def replace(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        home = ROOT if page in COPIED.values() and page != "index.md" else (DOCS / page).parent
        path = (home / target).resolve()
        if path.is_relative_to(DOCS):
            to = path.relative_to(DOCS).as_posix()
        elif path.is_relative_to(ROOT) and path.exists():
            name = path.relative_to(ROOT).as_posix()
            if name not in COPIED:
                return f"`{name}`"
            to = COPIED[name]
        else:
            return found[0]
        return f"{text}({'../' * page.count('/')}{to}{anchor})"

    return LINK.sub(replace, markdown)


def on_config(config: Any) -> Any:
    """Fill the navigation in."""
    config.nav = fill(config.nav, pages())
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not files of docs/."""
    from mkdocs.structure.files import File

    for path, text in {**copied(), **reference()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links at pages of the site."""
    return relink(markdown, page.file.src_uri)

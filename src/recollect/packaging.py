"""What this package is called where it is installed, and what its metadata say it needs.

The import name and the command are `recollect`; on PyPI that name belongs to another project, so
the distribution is called `recollect-rl`.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "recollect-rl"
VLLM = "vllm==0.24.0"
"""The vLLM for NVIDIA's GPUs that the verl of our extra names, and its torch with it."""
PACKAGE = Path(__file__).parent


def install(extras: str = "", again: bool = False) -> str:
    """Return the command that installs this package from where it is, with extras.

    `extras` are such as `local,serve`; `again` replaces the package, and nothing that it needs.
    """
    wanted = f"[{extras}]" if extras else ""
    flags = "--force-reinstall --no-deps " if again else ""
    source = _source()
    if source == NAME:
        return f"pip install {flags}" + (f"'{NAME}{wanted}'" if wanted else NAME)
    if isinstance(source, str):
        return f"pip install {flags}{shlex.quote(f'{NAME}{wanted} @ {source}')}"
    folder = "." if _is_current(source.folder) else str(source.folder)
    flags += "-e " if source.editable else ""
    return f"pip install {flags}{shlex.quote(folder + wanted)}"


def _is_current(folder: Path) -> bool:
    try:
        return folder == Path.cwd()
    except OSError:  # the current folder has been removed
        return False


@dataclass(frozen=True)
class Checkout:
    """A folder from which this package was installed, or from which it runs."""

    folder: Path
    editable: bool


@cache
def _source() -> Checkout | str:
    """Return where this package was installed from: a folder, a URL, or an index by its name."""
    from importlib import metadata
    from urllib.parse import unquote, urlsplit

    try:
        # What pip writes about installations that are not from an index (PEP 610).
        said = json.loads(metadata.distribution(NAME).read_text("direct_url.json") or "{}")
        url, editable = str(said.get("url", "")), bool(said.get("dir_info", {}).get("editable"))
    except metadata.PackageNotFoundError:  # it runs from its sources
        url, editable, said = PACKAGE.parents[1].as_uri(), True, {}
    except (ValueError, AttributeError):  # damaged
        return NAME
    if url.startswith("file:"):
        folder = Path(unquote(urlsplit(url).path))
        return Checkout(folder, editable) if (folder / "pyproject.toml").is_file() else NAME
    kept = said.get("vcs_info", {})
    return f"{kept['vcs']}+{url}@{kept['commit_id']}" if kept else url or NAME


def version() -> str:
    """Return the version of this package."""
    return str(_described().get("version", "0+unknown"))


def python_range() -> str:
    """Return the versions of Python that this package works with, such as `>=3.11,<3.13`."""
    return str(_described().get("requires-python", ""))


def ranges(extra: str = "") -> dict[str, str]:
    """Return what the core or one extra requires: version ranges by plain names."""
    described = _described()
    extras = described.get("optional-dependencies", {})
    listed = extras.get(extra, ()) if extra else described.get("dependencies", ())
    return dict(_split(line) for line in listed)


def strangers() -> dict[str, bool]:
    """Name the other installed distributions that bring a package `recollect`.

    True says that their files lie among ours, so that one has overwritten the other.
    """
    from importlib import metadata  # slow to import, and seldom needed

    found = {}
    for dist in metadata.distributions():
        try:
            name = str(dist.metadata["Name"])
        except ValueError:  # of bytes that are no text
            continue
        if plain(name) == NAME:
            continue
        top = _listed(dist, "top_level.txt").split()
        record = re.search(r"^recollect/", _listed(dist, "RECORD"), re.MULTILINE)
        if "recollect" in top or record or plain(name) == "recollect":
            there = Path(str(dist.locate_file("recollect")))
            found[f"{name} {dist.version}"] = bool(record) and there.resolve() == PACKAGE.resolve()
    return found


def _listed(dist: Distribution, name: str) -> str:
    """Return a file of a distribution; nothing where it is missing or no text."""
    try:
        return dist.read_text(name) or ""
    except (OSError, ValueError):
        return ""


def _split(requirement: str) -> tuple[str, str]:
    found = re.match(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*(.*)", requirement)
    assert found is not None, requirement
    bounds = [bound.strip() for bound in found[2].split(",")]
    # The metadata list bounds in alphabetical order; people read the lower one first.
    return plain(found[1]), ",".join(sorted(bounds, key=lambda bound: not bound.startswith(">")))


def plain(name: str) -> str:
    """Return a distribution's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _described() -> dict[str, Any]:
    """Return what the metadata say, in the form of pyproject.toml's [project].

    A package that runs from its sources without being installed has only that file.
    """
    from importlib import metadata

    try:
        found = metadata.metadata(NAME)
        if not found["Version"]:
            raise ValueError("it names no version")
    except ValueError as error:
        from recollect.errors import UserError  # `import recollect` comes by here

        raise UserError(
            f"the metadata of {NAME} are damaged: {error}", install(again=True)
        ) from None
    except metadata.PackageNotFoundError:
        import tomllib

        path = PACKAGE.parents[1] / "pyproject.toml"
        return tomllib.loads(path.read_text("utf-8"))["project"] if path.is_file() else {}
    needed: dict[str, list[str]] = {}
    for line in found.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        extra = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", marker)
        needed.setdefault(extra[1] if extra else "", []).append(requirement)
    return {
        "version": found["Version"],
        "requires-python": found["Requires-Python"] or "",
        "dependencies": needed.pop("", []),
        "optional-dependencies": needed,
    }

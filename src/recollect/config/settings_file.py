"""A file of settings in TOML, YAML or JSON, which knows the line of every key it holds."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.files import loads_toml, read_file

SUFFIXES = (".toml", ".yaml", ".yml", ".json")
Keys = tuple[str, ...]
NODES = 10_000
"""Values of a YAML file: aliases of aliases can make billions of a few lines."""


@dataclass(frozen=True)
class SettingsFile:
    """The table that a file holds, and where in the file each of its keys is."""

    path: Path
    text: str
    table: dict[str, Any]
    lines: Mapping[Keys, int] = field(default_factory=dict)
    """The line of every key, where the format tells."""

    def where(self, dotted: str) -> str:
        """Say where a setting is, by its dotted name."""
        return self.place(tuple(dotted.split("."))) if dotted else str(self.path)

    def place(self, *found: Keys) -> str:
        """Say where the first of some keys is that the file holds."""
        line = next(filter(None, map(self._line, found)), 0)
        return f"{self.path}, line {line}" if line else str(self.path)

    def _line(self, keys: Keys) -> int:
        if self.path.suffix == ".toml":
            return _toml_line(self.text, keys)
        if self.path.suffix == ".json":
            return _json_line(self.text, keys)
        return self.lines.get(keys, 0)


def is_settings_file(name: str) -> bool:
    """Tell whether a name is that of a file of settings; the one in a run's folder is the run."""
    return Path(name).suffix in SUFFIXES and Path(name).name != "config.json"


def read_settings_file(path: Path) -> SettingsFile:
    """Read a file of settings; a mistake in it is reported with its line."""
    try:
        text = read_file(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}", "check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}", "name a text file") from None
    lines: dict[Keys, int] = {}
    if path.suffix == ".toml":
        table = _read_toml(path, text)
    elif path.suffix == ".json":
        table = _read_json(path, text)
    else:
        table, lines = _read_yaml(path, text)
    if not isinstance(table, dict):
        raise UserError(f"{path} holds no table of settings", 'write such as preset = "demo"')
    return SettingsFile(path, text, table, lines)


def _read_toml(path: Path, text: str) -> Any:
    try:
        return loads_toml(text)
    except ValueError as error:
        raise UserError(f"{path} is no TOML: {error}", "correct that line") from None


def _toml_line(text: str, keys: Keys) -> int:
    """Find the line at which a key first appears, by parsing ever more lines of the file."""
    lines, first = text.splitlines(keepends=True), 1
    for end in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:  # in the middle of a value
            continue
        if _holds(table, keys):
            return first
        first = end + 1
    return 0


def _holds(table: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(table, Mapping) or key not in table:
            return False
        table = table[key]
    return True


def _read_json(path: Path, text: str) -> Any:
    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise UserError(f"{path} sets {twice} twice", "leave one of them out")
        return found

    try:
        return json.loads(text, object_pairs_hook=table)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no JSON: {error}", "correct that line") from None


def _json_line(text: str, keys: Keys) -> int:
    """Find the line of a key behind the keys that it is in."""
    at = start = 0
    for key in keys:
        found = re.compile(rf"{re.escape(json.dumps(key))}\s*:").search(text, at)
        if not found:
            return 0
        start, at = found.span()
    return text.count("\n", 0, start) + 1


def _read_yaml(path: Path, text: str) -> tuple[Any, dict[Keys, int]]:
    try:
        import yaml
    except ImportError:
        raise UserError(
            f"{path} is YAML, which needs pyyaml", "pip install pyyaml, or write it as TOML"
        ) from None

    class SafeNumbers(yaml.SafeLoader):
        """YAML without Python objects, in which 1e-4 is a number, as in TOML and JSON."""

    number = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
    SafeNumbers.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    lines: dict[Keys, int] = {}

    def note(node: Any, keys: Keys) -> None:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            own = (*keys, str(key.value))
            line = key.start_mark.line + 1
            if own in lines:
                raise UserError(f"{path}, line {line} sets {own[-1]} again", "leave one out")
            lines[own] = line
            note(value, own)

    try:
        node = yaml.compose(text, Loader=SafeNumbers)
        if _expanded(node, {}) > NODES:
            raise UserError(f"{path} holds more than {NODES:,} values", "write out no such aliases")
        note(node, ())
        return yaml.load(text, Loader=SafeNumbers), lines
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is no YAML: {' '.join(str(error).split())}", "correct it"
        ) from None


def _expanded(node: Any, known: dict[int, int]) -> int:
    """Count the values of a YAML node with every alias written out; a loop has no end."""
    if id(node) not in known:
        known[id(node)] = NODES  # until it is counted: what holds itself is too large
        parts = node.value if isinstance(getattr(node, "value", None), list) else []
        flat = [
            part for entry in parts for part in (entry if isinstance(entry, tuple) else [entry])
        ]
        known[id(node)] = 1 + sum(_expanded(part, known) for part in flat)
    return known[id(node)]

"""A run's settings as a file: frozen dataclasses to JSON and back, each under its class's name.

The workers of a cluster build their agent, reward and models from it. Reading builds nothing but
dataclasses of this package.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

from recollect import files as disk
from recollect.config.train import TrainConfig
from recollect.errors import UserError

_OURS = "recollect."


def write_settings(path: Path, config: TrainConfig) -> None:
    """Write settings, whole or not at all."""
    disk.write_text(path, json.dumps(to_plain(config), indent=1) + "\n")


def read_settings(path: Path) -> TrainConfig:
    """Read what `write_settings` wrote."""
    try:
        config = from_plain(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        raise UserError(
            f"{path} holds no settings of a run ({error})",
            "start the run again with recollect train PRESET --engine verl",
        ) from None
    if not isinstance(config, TrainConfig):
        raise UserError(f"{path} holds no settings of a run", "name the folder of a run")
    return config


def to_plain(value: Any) -> Any:
    """Turn a setting into JSON's types, so that `from_plain` gives it back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        given = {name: to_plain(getattr(value, name)) for name in _names(value)}
        return {"class": f"{kind.__module__}:{kind.__qualname__}", "set": given}
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [to_plain(item) for item in value]}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {"dict": {key: to_plain(item) for key, item in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is no setting: {value!r}")


def from_plain(value: Any) -> Any:
    """Build a setting from what `to_plain` made of it."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        kind = _class(value["class"])
        return kind(**{name: from_plain(item) for name, item in value["set"].items()})
    if "path" in value:
        return Path(value["path"])
    if "tuple" in value:
        return tuple(from_plain(item) for item in value["tuple"])
    return {key: from_plain(item) for key, item in value["dict"].items()}


def absolute(value: Any) -> Any:
    """Make every path in settings absolute: workers on other nodes start in other folders."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = {name: absolute(getattr(value, name)) for name in _names(value)}
        return dataclasses.replace(value, **kept)
    return value.expanduser().absolute() if isinstance(value, Path) else value


def _names(value: Any) -> list[str]:
    """Name what a dataclass is built from; the rest it computes."""
    return [field.name for field in dataclasses.fields(value) if field.init]


def _class(name: str) -> type:
    module, _, path = name.partition(":")
    if not module.startswith(_OURS) or "." in path:
        raise ValueError(f"{name} is not one of ours")
    found = getattr(importlib.import_module(module), path)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ValueError(f"{name} is no dataclass")
    return found

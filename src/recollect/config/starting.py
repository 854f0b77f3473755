"""What a run starts from: a preset, a file of settings, or the folder of an earlier run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recollect.config.experiment import single
from recollect.config.presets import PRESETS, preset
from recollect.config.settings_file import is_settings_file
from recollect.config.stored import read_settings
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.runs.checkpoints import MANIFEST


def is_run(name: str) -> bool:
    """Tell whether a name is the folder of a run, or its config.json."""
    path = Path(name).expanduser()
    settings = path if path.name == "config.json" else path / "config.json"
    return name not in PRESETS and settings.is_file()


def starting_point(name: str) -> TrainConfig:
    """Return the settings of a preset, of a file, or of a run by its folder."""
    path = Path(name).expanduser()
    if is_settings_file(name):
        return single(path)
    if is_run(name):
        folder = path if path.is_dir() else path.parent
        config = read_settings(folder / "config.json")
        # A folder that was moved, or is named from elsewhere, is still that run.
        return replace(config, folder=folder.parent, name=folder.resolve().name)
    if name and path.is_dir() and name not in PRESETS:
        raise UserError(f"{name} is not the folder of a run: it has no config.json", "check it")
    if name not in PRESETS and "/" in name:
        raise UserError(
            f"there is no run in {name}", "name the folder of a run, a file of settings or a preset"
        )
    return preset(name)


def is_trained(model: str) -> bool:
    """Tell a run from a model folder, which has a config.json as well, and from an address."""
    if model.startswith(("http://", "https://")):
        return False
    return is_run(model) and not (Path(model).expanduser() / "tokenizer_config.json").exists()


def run_of_checkpoint(model: str) -> Path | None:
    """Return the run that a checkpoint belongs to; None if the name is of something else."""
    folder = Path(model).expanduser().resolve()
    inside = folder.parent.name == "checkpoints" and (folder / MANIFEST).is_file()
    return folder.parent.parent if inside else None


def exported(run: Path) -> Path:
    """Return the folder of the model that a run trained."""
    if not (run / "model" / "config.json").is_file():
        raise UserError(
            f"{run} has no trained model yet",
            f"finish it with recollect train {run}, or name a model: --model FOLDER",
        )
    return run / "model"


def trained(config: TrainConfig) -> TrainConfig:
    """Return a run's settings with the model that it trained."""
    folder = exported(config.folder / config.name)
    whole = replace(config.model.lora, rank=0)  # adapters are part of the exported weights
    return replace(config, model=replace(config.model, path=str(folder), lora=whole))

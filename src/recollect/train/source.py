"""What a path to a trained model means: an exported one, a run, or a checkpoint inside a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config.engine import LoraConfig, ModelConfig
from recollect.errors import UserError
from recollect.files import read_file
from recollect.models.model import LoadedModel, load_model
from recollect.models.tokenizer import check_folder
from recollect.runs.checkpoints import MANIFEST, find_checkpoint, list_checkpoints
from recollect.train.saved_model import load_weights


@dataclass(frozen=True)
class ModelSource:
    """Where weights and tokenizer are, and what to call them."""

    name: str
    folder: Path
    """A folder that transformers can load: all of the model, or what its training began from."""
    checkpoint: Path | None = None
    """Holds the trained weights if they are not in `folder`."""
    lora: LoraConfig = LoraConfig()

    def load(self, device: str = "auto", threads: int = 0, dtype: str = "auto") -> LoadedModel:
        """Load the model, ready to sample from."""
        config = ModelConfig(str(self.folder), device, self.lora, threads=threads)
        model = load_model(config)
        if self.checkpoint:
            load_weights(self.checkpoint, model)
        model.network.requires_grad_(False)
        if dtype == "float64":
            model.network.double()
        return model


def find_source(path: str) -> ModelSource:
    """Find the model at a path; of a run, its newest checkpoint."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"there is nothing to serve at {path!r}",
            "name a run folder, a checkpoint, or a folder that transformers can load",
        )
    if (folder / "checkpoints").is_dir():
        return _of_run(folder)
    if (folder / MANIFEST).exists():
        run = folder.resolve().parent.parent
        return _of_checkpoint(find_checkpoint(folder).path, run, f"{run.name}-{folder.name}")
    folder = check_folder(path)
    parent = folder.resolve().parent
    exported = folder.resolve().name == "model" and (parent / "checkpoints").is_dir()
    return ModelSource(parent.name if exported else folder.resolve().name, folder)


def _of_run(run: Path) -> ModelSource:
    name, exported = run.resolve().name, run / "model"
    if list_checkpoints(run / "checkpoints"):
        checkpoint = find_checkpoint(run).path
        # A run can outlive the folder it began from; what it exported stands on its own.
        if _base(run)[0].is_dir() or not exported.is_dir():
            return _of_checkpoint(checkpoint, run, name)
    if not exported.is_dir():
        raise UserError(f"{run} has no checkpoint yet", "wait for its first one, or name another")
    return ModelSource(name, check_folder(str(exported)))


def _of_checkpoint(checkpoint: Path, run: Path, name: str) -> ModelSource:
    base, lora = _base(run)
    if not base.is_dir():
        raise UserError(
            f"{checkpoint} needs the model that its run began from, and {base} is not there",
            "put that folder back, or name the model that a finished run exports (RUN/model)",
        )
    return ModelSource(name, base, checkpoint, lora)


def _base(run: Path) -> tuple[Path, LoraConfig]:
    """Return what a run's training began from, and its adapters."""
    try:
        settings: dict[str, Any] = json.loads(read_file(run / "config.json"))["model"]
        return Path(settings["path"]).expanduser(), LoraConfig(**settings["lora"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{run / 'config.json'} does not say what model the run began from ({error})",
            "name a run folder, or a checkpoint where its run left it (RUN/checkpoints/step-...)",
        ) from error

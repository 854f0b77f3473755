"""What `recollect stages` will do: a stage is a training run plus who is fixed. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from recollect.commands.stages.vllm import ClusterStages
from recollect.config.roles import ROLES
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.serve.settings import ServeConfig

BASE = "base"
"""Names the model that everything starts from."""
END_TO_END = "end-to-end"


@dataclass(frozen=True)
class Stage:
    """One training run: which roles learn, from which model on, and who speaks in the other."""

    roles: tuple[str, ...]
    """Those that learn."""
    config: TrainConfig
    """With the model it starts from; where the fixed one is served is known once it is."""
    start: str
    """The stage whose model it starts from, `base`, or a folder."""
    fixed: str = ""
    """The stage whose model speaks in the other role, `base`, a folder, or a server's URL."""
    folder: str = ""
    """The folder of the fixed model; empty without a fixed model, or if a URL has it."""

    @property
    def name(self) -> str:
        """The name of the stage and of its run folder."""
        return self.config.name

    @property
    def trained(self) -> str:
        """Who learns, for people."""
        return self.roles[0] if len(self.roles) == 1 else "both"

    @property
    def episodes(self) -> int:
        """How many it trains on."""
        return self.config.steps * self.config.rollout.tasks * self.config.rollout.n

    def against(self, url: str) -> TrainConfig:
        """Return its settings with the fixed model's address in them."""
        models = self.config.models
        if "answer" not in self.roles:
            models = replace(models, answer=url)
        elif "memory" not in self.roles:
            models = replace(models, memory=url)
        return replace(self.config, models=models)


@dataclass(frozen=True)
class StagePlan:
    """The runs in order: the stages and, unless it is left out, end to end beside them."""

    folder: Path
    """Holds stages.json and the run folders."""
    stages: tuple[Stage, ...]
    serve: ServeConfig
    """How fixed models are served; whose checkpoint, every stage says itself."""
    cluster: ClusterStages | None = None
    """How stages run on verl; None trains here."""


@dataclass(frozen=True)
class Outline:
    """A stage as the user wrote it."""

    train: str
    config: TrainConfig
    """What is common to all stages, with this one's settings over it."""
    name: str = ""
    start: str = ""
    fixed: str = ""


def make_plan(
    folder: Path,
    base: TrainConfig,
    outlines: list[Outline],
    end_to_end: TrainConfig | None,
    serve: ServeConfig,
) -> StagePlan:
    """Fill in what the outlines leave open and give every run its folder and its model.

    A stage starts from the latest model of its role, and its partner is the latest model of the
    other role; a role that no stage has trained yet has the base. End to end trains both roles,
    from the base, on as many episodes as all stages together.
    """
    latest: dict[str, str] = dict.fromkeys(ROLES, BASE)
    models = {BASE: base.model.path}
    stages: list[Stage] = []
    for number, outline in enumerate(outlines, start=1):
        role, other = outline.train, ROLES[outline.train == "memory"]
        name = outline.name or f"{number}-{role}"
        if name in (*models, END_TO_END):
            raise UserError(f"two stages are named {name!r}", "give each a name of its own")
        start, fixed = outline.start or latest[role], outline.fixed or latest[other]
        config = _placed(outline.config, folder, name, find_model(start, models, name))
        served = "" if is_url(fixed) else find_model(fixed, models, name)
        stages.append(Stage((role,), config, start, fixed, served))
        latest[role] = name
        models[name] = str(folder / name / "model")
    if end_to_end:
        steps = -(
            -sum(s.episodes for s in stages) // (end_to_end.rollout.tasks * end_to_end.rollout.n)
        )
        config = _placed(replace(end_to_end, steps=steps), folder, END_TO_END, base.model.path)
        stages.append(Stage(ROLES, config, BASE))
    return StagePlan(folder, tuple(stages), serve)


def _placed(config: TrainConfig, folder: Path, name: str, model: str) -> TrainConfig:
    return replace(config, name=name, folder=folder, model=replace(config.model, path=model))


def is_url(text: str) -> bool:
    """Tell a server's address from a folder or a name."""
    return text.startswith(("http://", "https://"))


def find_model(name: str, models: dict[str, str], stage: str) -> str:
    """Return the folder of a model by its stage's name, or the folder that is named itself."""
    if name in models:
        return models[name]
    if Path(name).expanduser().is_dir():
        return name
    raise UserError(
        f"stage {stage!r} names {name!r}, which is neither an earlier stage nor a model folder",
        f"choose from {', '.join(models)}, or give a folder",
    )

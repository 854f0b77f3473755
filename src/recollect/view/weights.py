"""The model of a run, loaded when it is first asked for: what-if rollouts and tokens need it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recollect.config.starting import starting_point, trained
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.packaging import install
from recollect.runs.checkpoints import find_checkpoint
from recollect.types import Question, Task
from recollect.view.sources import RunSource

if TYPE_CHECKING:
    from recollect.train.rollouts import Rollouts


@dataclass
class Weights:
    """A run's settings and model."""

    source: RunSource
    trust: bool = False
    """Whether the run's own modules may be imported."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """One request works with the model at a time."""
    name: str = ""
    """Which weights are loaded."""
    _learner: Rollouts | None = None

    def config(self) -> TrainConfig:
        """Read the settings; the modules that they name are imported only if that is allowed."""
        code = self.source.config().get("code") or {}
        if code and not self.trust:
            raise UserError(
                f"{self.source.name} came with modules of its own ({', '.join(sorted(code))})",
                "start recollect view with --trust to import and run them",
            )
        return starting_point(str(self.source.folder))

    def learner(self) -> Rollouts:
        """Load the model: the exported one, or that of the newest checkpoint."""
        if self._learner is None:
            try:
                from recollect.train.rollouts import Rollouts
                from recollect.train.saved_model import load_weights
            except ImportError as error:
                raise UserError(
                    f"asking the run's model needs torch and transformers ({error})",
                    install("local"),
                ) from error
            config = self.config()
            if (self.source.folder / "model" / "config.json").is_file():
                self._learner, self.name = Rollouts.open(trained(config), learns=False), "model"
            else:
                checkpoint = find_checkpoint(self.source.folder)
                learner = Rollouts.open(config, learns=False)
                load_weights(checkpoint.path, learner.model)
                learner.roles.refresh()
                self._learner, self.name = learner, f"step {checkpoint.step}"
        return self._learner

    def task(self, n: int) -> Task:
        """Make the task of an episode again, with its text."""
        record, (split, step) = self.source.record(n), self.source.place(n)
        config = self.config()
        rollout, wanted = config.rollout, record["task"]["id"]
        family = config.tasks
        if split == "train":
            each = rollout.tasks * (rollout.refills + 1)
            indices = range((step - 1) * each, step * each)
            times = rollout.times(step)
            family = family.longer(times) if times > 1 else family
        else:
            indices = range(config.val.tasks)
        part: Any = "train" if split == "train" else "test"
        for index in indices:
            task = family.task(index, config.seed, part)
            if task.id == wanted and list(map(_asked, task.questions)) == [
                question["text"] for question in record["task"]["questions"]
            ]:
                return task
        raise UserError(
            f"the task {wanted} cannot be made again: the run's data are others by now",
            "put the data back, or choose an episode of another step",
        )


def _asked(question: Question) -> str:
    return question.text


def without_text(task: Task) -> Task:
    """Return a task of which everything was read already."""
    asked = tuple(replace(question, position=None) for question in task.questions)
    return replace(task, chunks=(), questions=asked)

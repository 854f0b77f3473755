"""Whether the tasks of a run exist at every length it comes to. Knows nothing of torch."""

from __future__ import annotations

from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.tasks.multiples import stretched


def check_tasks(config: TrainConfig, length_tasks: int) -> None:
    """Fail early if task data is missing, at any length the run will use."""
    for times in config.rollout.curriculum:
        stretched(config.tasks, times, "rollout.curriculum").task(0, config.seed, "train")
    config.tasks.task(config.val.tasks - 1, config.seed, "test")
    for times in config.val.lengths:
        family = stretched(config.tasks, times, "val.lengths")
        if (most := family.size("test")) is not None and length_tasks > most:
            raise UserError(
                f"val.length_tasks is {length_tasks}, but only {most} tasks are held out",
                f"set --val.length-tasks to at most {most}",
            )
        family.task(length_tasks - 1, config.seed, "test")

"""The tasks of a run at every length and crowd it comes to. Knows nothing of torch."""

from __future__ import annotations

from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.tasks.base import TaskFamily
from recollect.tasks.multiples import Crowded, stretched


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
    for family in crowded_tasks(config).values():
        family.task(length_tasks - 1, config.seed, "test")


def crowded_tasks(config: TrainConfig) -> dict[int, TaskFamily]:
    """Return the tasks with multiples of their distractors; none if they have no distractors."""
    tasks = config.tasks
    if not isinstance(tasks, Crowded):
        return {}
    return {times: tasks.crowded(times) for times in config.val.distractors}

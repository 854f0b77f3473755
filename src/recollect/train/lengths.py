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
    _check_enough(config.tasks, config.val.tasks, "val.tasks")
    for times in config.val.lengths:
        family = stretched(config.tasks, times, "val.lengths")
        _check_enough(family, length_tasks, "val.length_tasks")
        family.task(length_tasks - 1, config.seed, "test")
    for family in crowded_tasks(config).values():
        family.task(length_tasks - 1, config.seed, "test")


def _check_enough(family: TaskFamily, asked: int, name: str) -> None:
    """Refuse to hold out more than there is, also where a family would begin again."""
    if (most := family.size("test")) is not None and asked > most:
        raise UserError(
            f"{name} is {asked}, but only {most} tasks are held out",
            f"set --{name.replace('_', '-')} to at most {most}",
        )


def crowded_tasks(config: TrainConfig) -> dict[int, TaskFamily]:
    """Return the tasks with multiples of their distractors; none if they have no distractors."""
    tasks = config.tasks
    if not isinstance(tasks, Crowded):
        return {}
    return {times: tasks.crowded(times) for times in config.val.distractors}

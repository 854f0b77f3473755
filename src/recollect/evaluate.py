"""`recollect eval`: held-out accuracy of a model under an agent, at several lengths."""

from __future__ import annotations

import asyncio

from rich.text import Text

from recollect.config import TrainConfig
from recollect.display import open_console
from recollect.display.figures import accuracy_table
from recollect.train.loop import Learner
from recollect.validation import Accuracy, accuracy


def run_evaluation(config: TrainConfig) -> int:
    """Measure and print a table."""
    console = open_console()
    rows = asyncio.run(evaluate(config))
    lines = [([f"{times}x the text"], result) for times, result in rows.items()]
    console.print(accuracy_table([Text("Held-out accuracy", "bold")], lines))
    return 0


async def evaluate(config: TrainConfig) -> dict[int, Accuracy]:
    """Measure at every multiple of the training length that the settings name."""
    learner = Learner.open(config)
    return {times: accuracy(await learner.validate(times)) for times in config.val.lengths or (1,)}

"""A whole evaluation in a process of its own, to be killed: python -m ... URL FOLDER."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from recollect.evaluation.assessment import assess
from recollect.evaluation.folder import EvaluationFolder, write_config
from recollect.evaluation.harness import Harness
from recollect.evaluation.jobs import Grid
from recollect.evaluation.results import save
from recollect.models.connect import connect
from recollect.types import Sampling
from tests.support.scripted import Codes, Reader

AGENTS = {"reader": Reader(), "half": Reader(2), "closed_book": Reader(0)}
CONFIG = {
    "identity": {},
    "commands": ["test"],
    "settings": {},
    "model": {"id": "tiny"},
    "agents": dict.fromkeys(AGENTS, ""),
    "sets": {"codes": {"family": "codes", "primary": "answer_match"}},
    "versions": {},
}


def main(url: str, folder: Path, n: int, concurrency: int) -> None:
    """Run what is missing, then score all of it."""
    model = connect(url, sampling=Sampling(temperature=0.7))
    store = EvaluationFolder(folder)
    write_config(folder, CONFIG)
    grid = Grid({"codes": Codes()}, list(AGENTS), n, 1)
    models = {"memory": model, "answer": model}
    asyncio.run(Harness(grid, AGENTS, models, store, concurrency).run())
    store.close()
    save(asyncio.run(assess(folder, ["exact_match", "token_f1"])), folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))

"""`python -m recollect.engines.verl.main recollect.run=FOLDER key=value ...`: train on a cluster.

Everything after the module's name is verl's own language (hydra); `recollect.run` names the folder
that `folder.prepare` wrote.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.config import TrainConfig

PLUGIN = "recollect.engines.verl.plugin"
HANDED_ON = ("VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM", "VERL_ENGINE_DEVICE", "PYTHONPATH")
"""Environment variables that the workers of a cluster need as they are here."""


def handed_on(config: TrainConfig) -> list[str]:
    """Name them for a run: those of the servers' keys too, where its settings name servers."""
    asked = [getattr(config.reward, name, None) for name in ("judge_url", "reader_url")]
    keys = [config.models.api_key_env] if config.models.fixed else []
    if any([*asked, config.embed.url]):
        keys.append("OPENAI_API_KEY")  # what judges, readers and embedders look for
    return list(dict.fromkeys([*HANDED_ON, *keys]))


def main() -> int:
    """Train; a user's mistake, wherever it was met, prints one message and no traceback."""
    modules = [name for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if name]
    # Before verl is imported, here and in every worker: it loads our plugin because of this.
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys([*modules, PLUGIN]))
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    from recollect.errors import UserError

    try:
        from recollect.engines.verl.runner import run

        run()
    except UserError as error:
        print(f"recollect: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

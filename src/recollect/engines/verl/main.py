"""`python -m recollect.engines.verl.main recollect.run=FOLDER key=value ...`: train on a cluster.

Everything after the module's name is verl's own language (hydra); `recollect.run` names the folder
that `folder.prepare` wrote.
"""

from __future__ import annotations

import os
import sys

from recollect.engines.verl.environment import PLUGIN
from recollect.engines.verl.leave import leave
from recollect.engines.verl.stop import STATUS, Stopped
from recollect.foreign import shown


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
        print(shown(f"recollect: {error}"), file=sys.stderr)
        return 2
    except Stopped:
        return STATUS
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    leave(main())

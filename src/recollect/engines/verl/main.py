"""`python -m recollect.engines.verl.main recollect.run=FOLDER key=value ...`: train on a cluster.

Everything after the module's name is verl's own language (hydra); `recollect.run` names the folder
that `folder.prepare` wrote.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from recollect.engines.verl.environment import INTERPRETER, PLUGIN
from recollect.engines.verl.leave import leave
from recollect.engines.verl.stop import STATUS, Stopped
from recollect.engines.verl.warm.start import warmed
from recollect.foreign import shown

EARLY = ("torch", "transformers.models.auto.modeling_auto", "tensordict")
"""What the processes of every run import, and knows nothing of Ray ..."""
LATE = (
    "ray._private.workers.default_worker",
    "verl.workers.engine_workers",
    "recollect.engines.verl.trainer.trainer",
    "recollect.engines.verl.worker.loop",
)
"""... and what does: Ray reads the variables of a process as it is imported."""
VLLM_EARLY = ("vllm.config", "torch._inductor.compile_fx")
VLLM_LATE = (
    "vllm.v1.engine.core",
    "vllm.v1.worker.gpu_worker",
)


def main() -> int:
    """Train; a user's mistake, wherever it was met, prints one message and no traceback."""
    modules = [name for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if name]
    # Before verl is imported, here and in every worker: it loads our plugin because of this.
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys([*modules, PLUGIN]))
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    from recollect.errors import UserError

    try:
        with ExitStack() as stack:
            if not {"recollect.warm=false", "--cfg", "--help", "--info"} & set(sys.argv):
                interpreter = stack.enter_context(warmed(*imports(sys.argv)))
                os.environ[INTERPRETER] = str(interpreter)
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


def imports(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Name what the processes of a run with these arguments import, early and late."""
    if "actor_rollout_ref.rollout.name=recollect" in arguments:
        return EARLY, LATE
    return EARLY + VLLM_EARLY, LATE + VLLM_LATE


if __name__ == "__main__":
    leave(main())

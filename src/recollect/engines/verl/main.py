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

IMPORTED = ("torch", "transformers.models.auto.modeling_auto", "tensordict")
"""Most of what every process of a run imports, and nothing that imports Ray ..."""
VLLM = ("vllm.config", "torch._inductor.compile_fx")
"""... and of what those of vLLM import."""
# What Ray and verl give every process before it imports anything, if nothing else is said.
DEFAULTS = {"OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "WARN"}
COLD = {"recollect.warm=false", "--cfg", "--help", "--info"}


def main() -> int:
    """Train; a user's mistake, wherever it was met, prints one message and no traceback."""
    modules = [name for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if name]
    # Before verl is imported, here and in every worker: it loads our plugin because of this.
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys([*modules, PLUGIN]))
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    from recollect.errors import UserError

    try:
        with ExitStack() as stack:
            os.environ.pop(INTERPRETER, None)  # that of another run
            if not COLD & set(sys.argv) and sys.platform == "linux":
                interpreter = stack.enter_context(warmed(imports(sys.argv), DEFAULTS))
                if interpreter:
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


def imports(arguments: Sequence[str]) -> Sequence[str]:
    """Name what the processes of a run with these arguments import before anything else."""
    own = "actor_rollout_ref.rollout.name=recollect" in arguments
    return IMPORTED if own else (*IMPORTED, *VLLM)


if __name__ == "__main__":
    leave(main())

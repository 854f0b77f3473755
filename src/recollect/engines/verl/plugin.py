"""What verl loads in each of its processes: our agent loop, our rollout engine, on CPUs a platform.

verl imports it because of VERL_USE_EXTERNAL_MODULES, which raises where the entry point of a plugin
would only vanish.
"""

from __future__ import annotations

import os

from recollect.engines.verl.environment import NAME

if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    from recollect.engines.verl.cpu import platform as cpu

    cpu.apply()


def register() -> None:
    """Tell verl where our parts are."""
    from verl.experimental.agent_loop import agent_loop
    from verl.workers.rollout import base, replica

    from recollect.engines.verl.worker import attention

    attention.register()
    here = __name__.rpartition(".")[0]
    # One registration alone: with a YAML entry beside it, verl forgets one of them (trap 7).
    agent_loop._agent_loop_registry[NAME] = {"_target_": f"{here}.worker.loop.MemoryLoop"}
    base._ROLLOUT_REGISTRY[NAME, "async"] = f"{here}.worker.replica.LocalAdapter"
    replica.RolloutReplicaRegistry.register(NAME, _replica)


def _replica() -> type:
    from recollect.engines.verl.worker.replica import LocalReplica

    return LocalReplica


register()

"""vLLM's CPU build under verl, for tests: how its workers take new weights.

`actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls` names the class.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from recollect.sampler.vllm_worker import repack_head


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """Load weights through vLLM's own reload.

    On CPUs vLLM packs the matrices of linear layers and drops what weights are loaded through, so
    that verl's own way of loading fails, and the trainer waits for it for ever.
    """

    def update_weights_from_ipc(self, use_shm: bool = False, **_lora: Any) -> None:
        """Receive all weights, then load them at once."""
        held: list[tuple[str, torch.Tensor]] = []

        def keep(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            held.extend((name, tensor.clone()) for name, tensor in weights)

        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )
        receiver.receive_weights(on_bucket_received=keep)
        self.model_runner.reload_weights(weights_iterator=iter(held))
        repack_head(self.model_runner.get_model())

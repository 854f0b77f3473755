"""Our own sampler as a rollout engine of verl: `actor_rollout_ref.rollout.name=recollect`.

For small models on CPUs. It starts in seconds, samples in full precision, and draws from seeds
alone, so that a run on a cluster can be compared with the embedded engine token by token.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from recollect.config.engine import ModelConfig
from recollect.engines.verl.environment import NAME
from recollect.errors import UserError
from recollect.models.model import load_model
from recollect.sampler.dense import LocalPolicy
from recollect.types import Sampling


class LocalServer:
    """One replica: a model, a sampler on it, and the methods that verl calls on its servers."""

    def __init__(self, path: str, cache_gib: float) -> None:
        self.model = load_model(ModelConfig(path=path, device="cpu", threads=1))
        self.policy = LocalPolicy(self.model, cache_bytes=int(cache_gib * 2**30))
        self.step = 0

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        **_media: Any,
    ) -> TokenOutput:
        """Continue a prompt."""
        sampling = Sampling(
            max_tokens=sampling_params["max_tokens"],
            temperature=sampling_params["temperature"],
            top_p=sampling_params["top_p"],
            stop=tuple(sampling_params.get("stop", ())),
            seed=sampling_params["seed"],
        )
        sampled = await self.policy.sample(prompt_ids, sampling)
        return TokenOutput(
            token_ids=list(sampled.token_ids),
            log_probs=list(sampled.logprobs),
            stop_reason="completed",
            extra_fields={"global_steps": self.step},
        )

    async def load(self, weights: dict[str, Any], step: int | None) -> None:
        """Take the trainer's weights, all of them."""
        network = self.model.network
        # What Ray hands over is its own and cannot be written to; loading copies it.
        tensors = {name: torch.tensor(array) for name, array in weights.items()}
        result = network.load_state_dict(tensors, strict=False)
        tied = set(getattr(network, "all_tied_weights_keys", None) or ())
        missing = set(result.missing_keys) - tied
        if missing or result.unexpected_keys:
            raise ValueError(f"not this model's weights: {[*missing, *result.unexpected_keys][:4]}")
        self.policy.reset()
        self.step = self.step if step is None else step

    async def clear_kv_cache(self) -> None:
        """Forget what was computed."""
        self.policy.reset()

    async def sleep(self) -> None:
        """Free what a batch left behind."""
        self.policy.reset()

    async def wake_up(self, **_tags: Any) -> None:
        """Be ready: there is nothing to bring back."""

    async def resume_generation(self) -> None:
        """Be ready: nothing was held."""


class LocalReplica(RolloutReplica):
    """Start one server for every training process."""

    async def launch_servers(self) -> None:
        """Start the server on the node of its training process."""
        if self.world_size != 1:
            raise UserError(
                "the rollout engine recollect runs a model in one piece",
                "set actor_rollout_ref.rollout.tensor_model_parallel_size=1, or name=vllm",
            )
        node = await self.workers[0].__ray_call__.remote(
            lambda _self: ray.get_runtime_context().get_node_id()
        )
        where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        server = (
            ray.remote(LocalServer)
            .options(
                name=server_name(self.replica_rank),
                scheduling_strategy=where,
                max_concurrency=self.max_concurrency,
                num_cpus=0,
            )
            .remote(self.model_config.path, 1.0)
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = server_name(self.replica_rank)


class LocalAdapter(BaseRollout):
    """In each training process: hand the weights to the server beside it."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **kwargs: Any) -> None:
        super().__init__(config, model_config, device_mesh, **kwargs)
        self._server: Any = None

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        peft_config: Any = None,
        **_kwargs: Any,
    ) -> None:
        """Send all weights; adapters must have been merged into them."""
        if wire_format != "named_tensors" or peft_config is not None:
            raise UserError(
                "the rollout engine recollect only takes whole weights",
                "set actor_rollout_ref.model.lora.merge=True",
            )
        # Every process must walk through them: putting a sharded tensor together takes all.
        gathered = {name: tensor.detach().float().cpu().numpy() for name, tensor in weights}
        if self._server is None:
            self._server = ray.get_actor(server_name(int(os.environ["RANK"])))
        await self._server.load.remote(gathered, global_steps)

    async def resume(self, tags: list[str]) -> None:
        """Be ready: there is nothing to bring back."""

    async def release(self) -> None:
        """Keep everything: it is the CPU's memory."""


def server_name(rank: int) -> str:
    """Name the server of a replica."""
    return f"{NAME}_server_{rank}"

"""verl's settings for a run on CPUs alone, as tests make them; see `cpu` for what they go with."""

from __future__ import annotations

from typing import Any

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQ_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would run its workers after everything else, and start as many as it believes in cores.
    "RAY_worker_niceness": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
}


def cpu_keys(ranks: int = 1, engine: str = "recollect", joins: bool = False) -> dict[str, Any]:
    """Return verl's keys for `ranks` training processes on CPUs, in full precision.

    A run that `joins` a cluster takes what its nodes were started with.
    """
    actor, ref = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
    rollout, model = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
    exact = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    keys: dict[str, Any] = {
        "trainer.device": "cpu",
        "trainer.n_gpus_per_node": ranks,
        "+ray_kwargs.ray_init.include_dashboard": False,
        f"{model}.use_remove_padding": False,
        f"+{model}.override_config.attn_implementation": "sdpa",
        f"{model}.enable_gradient_checkpointing": False,
        f"{actor}.strategy": "fsdp2",
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        f"+{actor}.fsdp_config.mixed_precision": exact,
        f"{ref}.fsdp_config.use_torch_compile": False,
        f"+{ref}.fsdp_config.mixed_precision": exact,
        f"{rollout}.name": engine,
        f"{rollout}.agent.num_workers": 1,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.free_cache_engine": False,
        f"{rollout}.enforce_eager": True,
        f"{rollout}.dtype": "float32",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "reward.num_workers": 1,
        "recollect.poll_seconds": 0.1,
    }
    if not joins:
        # Ray hands out GPUs and cores that are not there; nobody looks for them.
        keys |= {
            "+ray_kwargs.ray_init.num_gpus": ranks,
            "ray_kwargs.ray_init.num_cpus": 8 + 4 * ranks,
        }
    if engine == "vllm":
        worker = "recollect.engines.verl.cpu.vllm.CpuWorkerExtension"
        keys |= {
            f"+{rollout}.enable_sleep_mode": False,
            f"+{rollout}.engine_kwargs.vllm.worker_extension_cls": worker,
        }
    return keys

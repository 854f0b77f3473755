"""vLLM as the sampler of a model that learns: it draws, and takes the new weights after an update.

Weights travel as a safetensors file in shared memory, which vLLM reads as it reads any model.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save_file

from recollect.errors import UserError, boundary
from recollect.files import refusal
from recollect.models.merged import merged_weights
from recollect.models.model import LoadedModel
from recollect.sampler.dense_cache import keys_of
from recollect.sampler.vllm_graphs import graph_sizes
from recollect.sampler.vllm_process import VllmProcess
from recollect.sampler.vllm_worker import EXTENSION
from recollect.types import Completion, Sampling

SHARED_MEMORY = Path("/dev/shm")
SEEDS = (1 << 63) - 1
SPARE = 16
"""Blocks of the cache that vLLM keeps for itself, at most."""
BLOCK = 128
"""Tokens of the largest block that it uses."""


@dataclass(frozen=True)
class VllmOptions:
    """How vLLM is started."""

    cache_gib: float = 4.0
    sequences: int = 1024
    """Requests that it works on at once."""
    batch_tokens: int = 0
    """Tokens that it computes at once; 0 leaves the choice to vLLM."""
    temperature: float = 1.0
    """The temperature and top-p of episodes that are learned from decide which log-probabilities
    vLLM returns ..."""
    top_p: float = 1.0
    sleeps: bool = False
    """Give the GPU's memory back between batches."""


class VllmPolicy:
    """Continue prompts with vLLM; `refresh` hands it the model's weights as they are now."""

    def __init__(
        self,
        model: LoadedModel,
        path: str,
        options: VllmOptions = VllmOptions(),
        process: VllmProcess | None = None,
    ) -> None:
        """Start vLLM; `process` has begun to import it while the model was loaded."""
        self.model, self.options = model, options
        gpu = model.device.type == "cuda"
        self.dtype = torch.bfloat16 if gpu else torch.float32
        self.window = min(model.window, held_tokens(model, self.dtype, options.cache_gib))
        if self.window < BLOCK:
            if process:
                process.close()
            raise UserError(
                f"a cache of {options.cache_gib:g} GiB holds no context of vLLM's",
                "set a larger --model.cache-gib",
            )
        self._sleeps = options.sleeps and gpu
        self._asleep = False
        self._line = process or VllmProcess()
        self._line.open(self._settings(path, gpu))

    @property
    def start_seconds(self) -> dict[str, float]:
        """How long vLLM took to start, by part."""
        return self._line.seconds

    def _settings(self, path: str, gpu: bool) -> dict[str, Any]:
        tokens = self.options.batch_tokens
        if not gpu:  # vLLM for CPUs fails when it splits the prompt of a request with a seed
            tokens = max(tokens, self.window)
        return {
            "model": path,
            "dtype": str(self.dtype).removeprefix("torch."),
            "max_model_len": self.window,
            "kv_cache_memory_bytes": int(self.options.cache_gib * 2**30),
            # The cache has a size of its own. vLLM still asks that this share of the GPU is free.
            "gpu_memory_utilization": 0.02,
            "max_num_seqs": self.options.sequences,
            **({"max_num_batched_tokens": tokens} if tokens else {}),
            "enable_chunked_prefill": gpu,
            "enforce_eager": not gpu,
            **({"cudagraph_capture_sizes": graph_sizes(self.options.sequences)} if gpu else {}),
            "enable_prefix_caching": True,
            "enable_sleep_mode": self._sleeps,
            "logprobs_mode": logprobs_mode(self.options.temperature, self.options.top_p),
            "generation_config": "vllm",  # nothing of the model's own defaults
            "worker_extension_cls": EXTENSION,
            "trust_remote_code": False,
            "disable_log_stats": True,
            "seed": 0,
        }

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Continue a prompt. A seed draws the same tokens from the same numbers."""
        if self._asleep:
            self._wake()
        with boundary("endpoint"):  # what vLLM refuses is not the agent's fault
            answer = await self._line.ask(
                "sample",
                prompt=base64.b64encode(np.asarray(prompt_ids, np.int32).tobytes()).decode(),
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p if sampling.temperature > 0 else 1.0,
                seed=sampling.seed & SEEDS,
                stop=list(sampling.stop),
                end_ids=list(self.model.tokenizer.end_ids),
            )
        reason: Literal["stop", "length"] = "stop" if answer["reason"] == "stop" else "length"
        return Completion(tuple(answer["token_ids"]), tuple(answer["logprobs"]), reason)

    def refresh(self) -> None:
        """Hand over the weights as they are now; LoRA is merged in."""
        if self._asleep:
            self._wake()
        root = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        try:
            with tempfile.TemporaryDirectory(
                prefix="recollect-weights-", dir=root, ignore_cleanup_errors=True
            ) as folder:
                save_file(self._weights(), Path(folder, "model.safetensors"))
                self._line.tell("load", folder=folder)
        except Exception as error:
            where = root or Path("the folder for temporary files")
            if not isinstance(error, OSError) and refusal(error, where) is None:
                raise
            raise UserError(
                f"the weights for vLLM cannot be put into {where}: {error}",
                "give the machine more shared memory (for a container --shm-size)",
            ) from None

    def reset(self) -> None:
        """Forget what a batch left behind, and its memory where the settings say so."""
        if self._asleep:
            return
        self._line.tell("forget")
        if self._sleeps:
            self._line.tell("sleep")
            self._asleep = True

    def close(self) -> None:
        """End vLLM."""
        self._line.close()

    def _wake(self) -> None:
        self._asleep = False
        torch.cuda.empty_cache()  # what an update left is held by this process, and used by none
        self._line.tell("wake")

    @torch.no_grad()
    def _weights(self) -> dict[str, torch.Tensor]:
        """Return all weights in vLLM's type; those that are tied appear once."""
        tied = set(getattr(self.model.network, "all_tied_weights_keys", None) or ())
        found = merged_weights(self.model)
        return {
            name: tensor.to("cpu", self.dtype).contiguous()
            for name, tensor in found.items()
            if name not in tied
        }


def logprobs_mode(temperature: float, top_p: float) -> str:
    """Choose log-probabilities after temperature and before top-p, which the trainer expects."""
    if top_p >= 1:
        return "processed_logprobs"
    if temperature == 1:
        return "raw_logprobs"
    raise UserError(
        f"vLLM cannot tell log-probabilities after temperature {temperature:g} and before top-p"
        f" {top_p:g}",
        "set --rollout.top-p 1 or --rollout.temperature 1, or --rollout.sampler embedded",
    )


def held_tokens(model: LoadedModel, dtype: torch.dtype, cache_gib: float) -> int:
    """Return the tokens of one context that vLLM's cache can hold."""
    with torch.no_grad():
        numbers = sum(tensor.numel() for both in keys_of(model) for tensor in both)
    tokens = int(cache_gib * 2**30) // (numbers * dtype.itemsize)
    return max(0, tokens - SPARE * BLOCK) // BLOCK * BLOCK

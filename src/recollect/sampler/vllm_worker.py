"""What vLLM's workers do for us: take new weights, all of them. vLLM finds the class by name."""

from __future__ import annotations

from typing import Any

EXTENSION = "recollect.sampler.vllm_worker.WorkerExtension"


class WorkerExtension:
    """Methods that are added to vLLM's worker."""

    model_runner: Any

    def take_weights(self, folder: str) -> None:
        """Read the weights in a folder in place of the present ones."""
        self.model_runner.reload_weights(weights_path=folder)
        repack_head(self.model_runner.get_model())


def repack_head(model: Any) -> None:
    """Pack the head of a model anew on a CPU.

    A head that is tied to the embedding is loaded with it, but on CPUs vLLM multiplies with a
    packed copy, which its reload leaves as it was.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if name.rpartition(".")[2] == "lm_head" and method is not None:
            method.process_weights_after_loading(module)

"""A Hugging Face causal LM, loaded once and shared by sampler and trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as transformers_logging

from recollect.concurrency.threads import share_interpreter
from recollect.config.engine import LoraConfig, ModelConfig
from recollect.errors import UserError
from recollect.models import attention
from recollect.models.sparse import asking, sparse_end
from recollect.models.tokenizer import (
    HFTokenizer,
    check_folder,
    first_line,
    load_tokenizer,
    loading,
)

transformers_logging.disable_progress_bar()

KEPT = 0.9
"""Share of its activations that a compiled layer keeps at most: it then computes norms and products
of activations again, and no matrix product."""


@dataclass
class LoadedModel:
    """The one set of weights that samples and learns."""

    network: PreTrainedModel
    """The causal LM, with LoRA layers inside where asked."""
    tokenizer: HFTokenizer
    device: torch.device
    window: int
    """Positions the model was made for."""
    recompute: float = 0.0
    """Share of the layers that recompute their activations while training."""
    compile: bool = False
    """Whether layers are compiled while training."""
    half: bool = True
    """Whether a GPU computes in bf16."""
    _end: Any = field(default=None, init=False)
    """While training: what of the last layer computes only what is asked for."""

    @property
    def autocast(self) -> torch.autocast:
        """bf16 on a GPU unless set otherwise, full precision on the CPU."""
        half = self.half and self.device.type == "cuda"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=half)

    def trainable_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters the optimiser owns."""
        return [p for p in self.network.parameters() if p.requires_grad]

    @contextmanager
    def training(self) -> Iterator[None]:
        """Let layers recompute their activations, and run compiled, where the settings say so.

        They recompute only in training mode. Nothing inside them enters it, so dropout stays off.
        Compiling is for updates alone: the sampler's short calls would each be compiled anew.
        """
        modules = self.network.modules()
        layers = [module for module in modules if isinstance(module, GradientCheckpointingLayer)]
        frugal: Any = nullcontext()
        if self.compile:
            import torch._functorch.config as functorch

            frugal = functorch.patch(activation_memory_budget=KEPT)
        try:
            for i, layer in enumerate(layers):
                # Spread over the depth, so that memory grows evenly.
                layer.training = int((i + 1) * self.recompute) > int(i * self.recompute)
                if self.compile:
                    layer.forward = torch.compile(layer.forward, dynamic=True)
            with frugal, sparse_end(self.network) as self._end:
                yield
        finally:
            self._end = None
            for layer in layers:
                layer.training = False
                layer.__dict__.pop("forward", None)

    def hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        plan: attention.AttentionPlan,
        at: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run the body over N tokens in one row; return (N, width), or those of some tokens."""
        body = self.network.get_decoder()
        with asking(self._end, at):
            out = body(
                input_ids=ids[None], position_ids=positions[None], use_cache=False, plan=plan
            )
        hidden = out.last_hidden_state[0]
        return hidden if at is None else hidden[at]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Apply the head: (N, width) to (N, vocabulary), float32."""
        config = self.network.config.get_text_config()
        logits = self.network.get_output_embeddings()(hidden).float()
        scale = getattr(config, "logit_scale", 1.0) / getattr(config, "logits_scaling", 1.0)
        if scale != 1.0:  # a pass over as many numbers as tokens times vocabulary
            logits = logits * scale
        if cap := getattr(config, "final_logit_softcapping", None):
            logits = cap * torch.tanh(logits / cap)
        return logits


def find_device(name: str) -> torch.device:
    """Turn the setting into a device that is there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"the device {name!r} cannot be used: {first_line(error)}",
            "set --model.device to auto, cpu or cuda",
        ) from error
    return device


def load_model(config: ModelConfig) -> LoadedModel:
    """Load model and tokenizer; attention goes through `attention.attend`."""
    folder = check_folder(config.path)
    if config.threads:
        torch.set_num_threads(config.threads)
    device = find_device(config.device)
    if device.type == "cuda":  # where a thread that updates waits for little else
        share_interpreter()
    tokenizer = load_tokenizer(folder)
    with loading(folder):
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, config.weights),
            attn_implementation=attention.NAME,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,  # unpickling weights would run code
        )
    network.to(device)
    if not network._supports_attention_backend:
        raise UserError(
            f"{type(network).__name__} does not use transformers' attention interface",
            "choose a model that does (Llama, Qwen, Mistral, Gemma, Phi, ...)",
        )
    if config.lora.rank:
        network = _add_lora(network, config.lora)
    if config.recompute:
        network.gradient_checkpointing_enable({"use_reentrant": False})
    network.eval()  # no dropout: what is trained is the distribution that was sampled from
    window = getattr(network.config.get_text_config(), "max_position_embeddings", 1 << 30)
    model = LoadedModel(network, tokenizer, device, window, config.recompute, config.compile)
    _check_head(model)
    return model


def _add_lora(network: PreTrainedModel, config: LoraConfig) -> PreTrainedModel:
    from peft import LoraConfig as PeftLoraConfig
    from peft import inject_adapter_in_model

    peft_config = PeftLoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=config.targets, task_type="CAUSAL_LM"
    )
    try:
        inject_adapter_in_model(peft_config, network)
    except (ValueError, re.error) as error:  # no such layers, none that can have any, no pattern
        raise UserError(
            f"no layers match the LoRA targets {config.targets!r}: {first_line(error)}",
            "set --model.lora.targets to all-linear, or to a pattern such as '.*[qv]_proj'",
        ) from error
    return network


@torch.no_grad()
def _check_head(model: LoadedModel) -> None:
    """Prove that our body-then-head path gives the model's own logits."""
    from recollect.models.trie.pack import pack  # the plan for a single causal row

    ids = torch.arange(min(8, model.tokenizer.vocab_size), device=model.device)
    rows = pack([ids.tolist()], device=model.device)
    ours = model.logits(model.hidden(rows.ids, rows.positions, rows.plan))
    theirs = model.network(
        input_ids=rows.ids[None], position_ids=rows.positions[None], use_cache=False, plan=rows.plan
    ).logits[0]
    if not torch.allclose(ours, theirs.float(), rtol=1e-3, atol=1e-3):
        raise UserError(
            f"{type(model.network).__name__} makes its logits in a way the engine does not know",
            "use another model, or the verl engine",
        )
    _check_rows(model, ids)


def _check_rows(model: LoadedModel, ids: torch.Tensor) -> None:
    """Prove that only attention looks at other tokens: rows of one call must not see each other.

    A row is computed beside two others, so that sizes are the same: in 16 bits, products of other
    sizes round otherwise, which 28 layers add up to percents.
    """
    from recollect.models.trie.pack import pack

    found = []
    for beside in (ids, ids // 2):  # other tokens, not just another order: sums would agree
        rows = pack([beside.tolist(), ids.flip(0).tolist()], device=model.device)
        hidden = model.hidden(rows.ids, rows.positions, rows.plan)
        found.append(hidden[torch.from_numpy(rows.index[1])])
    if not torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-3):
        raise UserError(
            f"{type(model.network).__name__} has layers that mix tokens outside attention",
            "use a model whose layers all attend, or the verl engine",
        )

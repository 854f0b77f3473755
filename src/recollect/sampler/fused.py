"""Layers that a sampler computes with few kernels: those of Llama and Qwen2, as they are.

A small model's step takes as long as its kernels are many. Here a layer is four matrix products,
attention, and four kernels between them. Products that read the same numbers are one: their weights
become views of one matrix, so what is copied into the weights is in the matrix. Adapters (LoRA)
stay apart, as they are trained, and add two products and a kernel each: but those that read the
same numbers share the first of these products. A model with anything that is not known here keeps
its own layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch.nn.functional import linear
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2

from recollect.models.attention import AttentionPlan, Heads
from recollect.models.model import LoadedModel
from recollect.sampler.fused_parts import add_norm, gate, turn
from recollect.sampler.paged_attention import PromptPlan, TokenPlan

KNOWN: dict[type, tuple[type, ...]] = {
    llama.LlamaForCausalLM: (
        llama.LlamaModel, llama.LlamaRotaryEmbedding, llama.LlamaRMSNorm,
        llama.LlamaDecoderLayer, llama.LlamaAttention, llama.LlamaMLP,
    ),
    qwen2.Qwen2ForCausalLM: (
        qwen2.Qwen2Model, qwen2.Qwen2RotaryEmbedding, qwen2.Qwen2RMSNorm,
        qwen2.Qwen2DecoderLayer, qwen2.Qwen2Attention, qwen2.Qwen2MLP,
    ),
}  # fmt: skip
"""Networks by class, each with the classes of its body, angles, norms, layers and their parts."""


@dataclass(frozen=True)
class Adapter:
    """What an adapter adds to some columns of a product, out of some columns of the narrow one."""

    weight: torch.Tensor
    scale: float
    narrow: slice
    columns: slice

    def add(self, made: torch.Tensor, low: torch.Tensor) -> None:
        """Add to a product in place, rounding where training does."""
        added = linear(low[:, self.narrow], self.weight)
        if math.frexp(self.scale)[0] == 0.5:  # a power of two rounds nothing: one kernel does both
            made[:, self.columns].add_(added, alpha=self.scale)
        else:
            made[:, self.columns] += added * self.scale


@dataclass(frozen=True)
class Product:
    """A matrix product that others may have become part of."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    narrow: torch.Tensor | None = None
    adapters: Sequence[Adapter] = ()

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        made = linear(given, self.weight, self.bias)
        if self.narrow is not None:
            low = linear(given, self.narrow)
            for own in self.adapters:
                own.add(made, low)
        return made


@dataclass(frozen=True)
class Norm:
    """An RMS norm of what is added to."""

    weight: torch.Tensor
    eps: float
    dtype: torch.dtype
    """The type of the result, which is what the next product takes."""

    def __call__(self, residual: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
        return add_norm(residual, added, self.weight, self.eps, self.dtype)


@dataclass(frozen=True)
class FusedLayer:
    """One layer. It takes what the one before left to be added, and leaves the same."""

    heads: Heads
    before: Norm
    qkv: Product
    out: Product
    between: Norm
    gate_up: Product
    down: Product

    def __call__(
        self,
        residual: torch.Tensor,
        added: torch.Tensor | None,
        angles: tuple[torch.Tensor, torch.Tensor],
        plan: PromptPlan | TokenPlan,
    ) -> torch.Tensor:
        """Change the residual (N, width) in place; return what is still to be added to it."""
        keys, values = plan.cache.keys(self.heads.layer), plan.cache.values(self.heads.layer)
        qkv = self.qkv(self.before(residual, added))
        seen = plan.look(self.heads, turn(qkv, *angles, plan.into, keys, values))
        normed = self.between(residual, self.out(seen.flatten(1)))
        return self.down(gate(self.gate_up(normed)))


@dataclass(kw_only=True)
class FusedModel(LoadedModel):
    """A model whose layers are fused wherever keys and values are in pages."""

    layers: Sequence[FusedLayer]
    norm: Norm
    body: Any = field(repr=False)

    def angles(self, residual: torch.Tensor, positions: torch.Tensor) -> Any:
        """Return cosines and sines (N, D) of positions."""
        cos, sin = self.body.rotary_emb(residual[None], positions[None])
        return cos[0], sin[0]

    def hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        plan: AttentionPlan,
        at: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run the body over N tokens; return (N, width), in the type that the head takes."""
        if not isinstance(plan, PromptPlan | TokenPlan) or at is not None:
            return super().hidden(ids, positions, plan, at)
        residual = self.body.embed_tokens(ids)
        angles = self.angles(residual, positions)
        added = None
        for layer in self.layers:
            added = layer(residual, added, angles, plan)
        return self.norm(residual, added)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Apply the head, in its own type; picking reads the logits as float32."""
        logits: torch.Tensor = self.network.get_output_embeddings()(hidden)
        return logits


def fused(model: LoadedModel) -> FusedModel | None:
    """Fuse a model's layers, if all are known; the weights then share memory."""
    if not known(model.network):
        return None
    body: Any = model.network.get_decoder()
    head: Any = model.network.get_output_embeddings()
    norm = Norm(body.norm.weight, body.norm.variance_epsilon, head.weight.dtype)
    layers = [_layer(layer) for layer in body.layers]
    given = {each.name: getattr(model, each.name) for each in fields(model) if each.init}
    return FusedModel(**given, layers=layers, norm=norm, body=body)


def known(network: Any) -> bool:
    """Tell whether everything in a network is of a kind that is known here."""
    kinds = KNOWN.get(type(network))
    if kinds is None or network.config.hidden_act not in ("silu", "swish"):
        return False
    model, rotary, norm, layer, attention, mlp = kinds
    body = network.get_decoder()
    layers = list(body.layers)
    expected: list[tuple[Any, type]] = [(body, model), (body.rotary_emb, rotary), (body.norm, norm)]
    expected += [(body.embed_tokens, torch.nn.Embedding)]
    for each in layers:
        if (type(each), type(each.self_attn), type(each.mlp)) != (layer, attention, mlp):
            return False
        expected += [(each.input_layernorm, norm), (each.post_attention_layernorm, norm)]
        own_products = [own for group in _products(each) for own in group]
        expected += [(_base(own), torch.nn.Linear) for own in own_products]
        if not all(map(_is_plain, own_products)):
            return False
    return (
        all(type(module) is kind for module, kind in expected)
        and type(network.get_output_embeddings()) is torch.nn.Linear
        and len(layers) == network.config.num_hidden_layers
        and all(_fits(body, each) for each in layers)
    )


def _products(layer: Any) -> list[list[Any]]:
    """Return a layer's linear modules, those together that read the same numbers."""
    attention, mlp = layer.self_attn, layer.mlp
    qkv = [attention.q_proj, attention.k_proj, attention.v_proj]
    return [qkv, [attention.o_proj], [mlp.gate_proj, mlp.up_proj], [mlp.down_proj]]


def _base(own: Any) -> Any:
    """Return the linear module that an adapter belongs to, or one without."""
    return getattr(own, "base_layer", own)


def _is_plain(own: Any) -> bool:
    """Tell whether a module is linear, with nothing more than a single usual adapter."""
    if not hasattr(own, "base_layer"):
        return True
    from peft.tuners.lora.layer import Linear

    return (
        type(own) is Linear
        and list(own.lora_A) == list(own.active_adapters) == ["default"]
        and type(own.lora_dropout["default"]) is torch.nn.Identity
        and not (own.merged or own.disable_adapters or own.lora_variant)
        and own.lora_A["default"].bias is own.lora_B["default"].bias is None
    )


def _adapter(own: Any) -> list[Any]:
    """Return both sides of an adapter, if there is one."""
    return [own.lora_A["default"], own.lora_B["default"]] if hasattr(own, "base_layer") else []


def _fits(body: Any, layer: Any) -> bool:
    """Tell whether a layer sees everything, and its types are those that kernels round to."""
    groups, attention = _products(layer), layer.self_attn
    residual = body.embed_tokens.weight.dtype
    linears = [own for group in groups for own in group]
    products = {each.weight.dtype for own in linears for each in (_base(own), *_adapter(own))}
    norms = {n.weight.dtype for n in (layer.input_layernorm, layer.post_attention_layernorm)}
    keys = attention.k_proj.out_features
    return (
        getattr(attention, "sliding_window", None) is None
        and len(products) == 1
        and residual in {torch.float32, *products}
        and {*norms, body.norm.weight.dtype} <= {torch.float32, residual}
        and all(len({_base(own).bias is None for own in group}) == 1 for group in groups)
        and attention.v_proj.out_features == keys
        and attention.head_dim % 2 == 0
        and 2 * body.rotary_emb.inv_freq.shape[-1] == attention.head_dim
    )


def _layer(layer: Any) -> FusedLayer:
    attention = layer.self_attn
    qkv, out, gate_up, down = (_joined(group) for group in _products(layer))
    before, between = (
        Norm(norm.weight, norm.variance_epsilon, qkv.weight.dtype)
        for norm in (layer.input_layernorm, layer.post_attention_layernorm)
    )
    heads = Heads(attention.layer_idx, attention.scaling)
    return FusedLayer(heads, before, qkv, out, between, gate_up, down)


def _joined(linears: Sequence[Any]) -> Product:
    """Make one product of linear modules, whose weights become parts of its own."""
    bases = [_base(own) for own in linears]
    weight = _stacked([base.weight for base in bases])
    bias = _stacked([base.bias for base in bases]) if bases[0].bias is not None else None
    narrow, adapters = [], []
    rank = column = 0
    for own, base in zip(linears, bases, strict=True):
        columns = slice(column, column := column + len(base.weight))
        if sides := _adapter(own):
            first, second = (side.weight for side in sides)
            narrow.append(first)
            place = slice(rank, rank := rank + len(first))
            adapters.append(Adapter(second, own.scaling["default"], place, columns))
    return Product(weight, bias, _stacked(narrow) if narrow else None, adapters)


def _stacked(parts: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    if len(parts) == 1:
        return parts[0]
    whole = torch.cat([part.data for part in parts])
    for part, own in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        part.data = own
    return whole

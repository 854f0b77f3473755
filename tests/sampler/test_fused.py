"""Layers with fewer kernels beside the models' own: on a CPU plain torch stands for the kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig as PeftLoraConfig
from peft import inject_adapter_in_model

from recollect.config.engine import LoraConfig
from recollect.models.copies import SamplerCopy
from recollect.models.model import LoadedModel, ModelConfig, load_model
from recollect.sampler import choice
from recollect.sampler.dense_cache import keys_of
from recollect.sampler.fused import FusedLayer, FusedModel, fused, known
from recollect.sampler.fused_trial import (
    fused_or_own,
    layers_off,
    picks_off,
    shares_or_not,
    tried,
)
from recollect.sampler.paged import PagedPolicy
from recollect.sampler.paged_attention import PagedCache, PromptPlan, TokenPlan
from tests.sampler.test_paged import assert_alike, families, paged_policy, run
from tests.support.tiny import tiny_model

BIASED = {"attention_bias": True, "mlp_bias": True}


def loaded(
    folder: Path, kind: str = "llama", lora: int = 0, targets: str = "all-linear", **settings
) -> LoadedModel:
    """Load a small model, with biases, norms and adapters that are not as they began."""
    torch.set_num_threads(1)
    path = tiny_model(folder, kind, **settings)
    model = load_model(ModelConfig(str(path), lora=LoraConfig(rank=lora, targets=targets)))
    numbers = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if parameter.dim() == 1 or "lora_B" in name:
                size = 0.3 if parameter.dim() == 1 else 0.02
                parameter += size * torch.randn(parameter.shape, generator=numbers)
    return model


def fused_model(model: LoadedModel) -> FusedModel:
    found = fused(model)
    assert found is not None
    return found


@pytest.fixture(params=["llama", "qwen2", "with biases", "adapters", "adapters of some"])
def model(request, tmp_path) -> LoadedModel:
    if request.param == "with biases":
        return loaded(tmp_path, **BIASED)
    if "adapters" in request.param:
        if request.param == "adapters":
            return loaded(tmp_path, lora=3)  # whose scale is no power of two
        return loaded(tmp_path, lora=4, targets=".*(k|up|down)_proj")
    return loaded(tmp_path, request.param)


@pytest.fixture
def half(monkeypatch) -> None:
    """Let models compute in half precision on a CPU too."""
    here = property(lambda _self: torch.autocast("cpu", torch.bfloat16))
    monkeypatch.setattr(LoadedModel, "autocast", here)


@pytest.mark.parametrize("drafts", [0, 9])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_it_draws_what_the_model_draws(model, drafts, temperature):
    prompts = families(3, 3)
    settings = dict(temperature=temperature, max_tokens=13)
    expected = run(paged_policy(model, drafts=drafts), prompts, **settings)
    ours = fused_model(model)
    assert_alike(run(paged_policy(ours, drafts=drafts), prompts, **settings), expected)


def plans(model: LoadedModel) -> list[tuple[PromptPlan | TokenPlan, int, torch.Tensor]]:
    """Make plans for the prompts of two sequences, then for a token of each, with a cache."""
    keys = keys_of(model)
    cache = PagedCache(len(keys), keys[0][1], 4, 32)
    pages = torch.tensor([1, 3, 2], dtype=torch.int32)
    begin, lengths = torch.tensor([0, 2]), torch.tensor([40, 5])
    at = [torch.arange(int(n)) for n in lengths]
    pairs = zip(begin, at, strict=True)
    into = torch.cat([pages[b + a // 32].long() * 32 + a % 32 for b, a in pairs])
    tiles = torch.tensor([[0, 1], [0, 40]])
    runs = torch.stack([lengths.cumsum(0), lengths, begin])
    return [
        (PromptPlan(cache, into, tiles, runs, pages, 64), 45, torch.cat(at)),
        (TokenPlan(cache, pages, begin, lengths), 2, lengths),
    ]


def read(model: LoadedModel) -> torch.Tensor:
    """Return the logits of prompts, and of tokens after them."""
    found = []
    with torch.inference_mode(), model.autocast:
        for plan, count, positions in plans(model):
            hidden = model.hidden(torch.arange(count) % 250, positions, plan)
            found.append(model.logits(hidden).float())
    return torch.cat(found)


def test_half_precision_is_within_rounding_and_follows_the_weights(model, half):
    copy = SamplerCopy.of(model)
    expected = read(copy.model)
    ours = fused_model(copy.model)
    assert torch.equal(read(copy.model), expected)  # its own layers compute what they did
    for _ in range(2):
        found, expected = read(ours), read(copy.model)
        assert (found - expected).norm() < 0.01 * expected.norm()
        assert layers_off(ours) == ""
        with torch.no_grad():
            for name, parameter in model.network.named_parameters():
                size = 0.02 if "lora_" in name else 0.1
                parameter += size * torch.randn_like(parameter)
        before = read(ours)
        copy.refresh()
        assert (read(ours) - before).norm() > 0.1 * before.norm()


def test_weights_of_half_precision_round_as_their_layers_do(model, half):
    model.network.to(torch.bfloat16)
    expected, ours = read(model), fused_model(model)
    assert (read(ours) - expected).norm() < 0.01 * expected.norm()
    assert layers_off(ours) == ""


def test_adapters_of_another_kind_keep_their_own_layers(tmp_path):
    for name, value in (
        ("_disable_adapters", True),
        ("merged_adapters", ["default"]),
        ("lora_variant", {"default": 1}),
        ("_active_adapter", ["default", "other"]),
        ("lora_dropout", {"default": torch.nn.Dropout(0.1)}),
    ):
        model = loaded(tmp_path, lora=2)
        assert known(model.network)
        layer = model.network.get_decoder().layers[1].mlp.up_proj
        layer.__dict__[name] = value
        assert not known(model.network), name
        assert fused_or_own(model) == (model, "")
    model = loaded(tmp_path, lora=2)
    model.network.get_decoder().layers[0].mlp.up_proj.lora_B.half()
    assert not known(model.network)
    for settings, names in (
        ({"lora_bias": True}, ["default"]),
        ({"use_dora": True}, ["default"]),
        ({}, ["default", "other"]),
        ({}, ["other"]),
        ({"use_rslora": True}, ["default"]),  # only the scale is another
    ):
        model = loaded(tmp_path)
        for name in names:
            config = PeftLoraConfig(r=2, target_modules="all-linear", **settings)
            inject_adapter_in_model(config, model.network, name)
        assert known(model.network) == ("use_rslora" in settings)


def test_weights_that_become_one_are_not_there_twice(model):
    ours = fused_model(model)
    for layer, own in zip(ours.layers, ours.body.layers, strict=True):
        attention, mlp = own.self_attn, own.mlp
        for product, parts in (
            (layer.qkv, [attention.q_proj, attention.k_proj, attention.v_proj]),
            (layer.gate_up, [mlp.gate_proj, mlp.up_proj]),
        ):
            adapted = [part for part in parts if hasattr(part, "lora_A")]
            if adapted:
                narrow = torch.cat([part.lora_A.default.weight for part in adapted])
                assert torch.equal(product.narrow, narrow)
            parts = [getattr(part, "base_layer", part) for part in parts]
            assert torch.equal(product.weight, torch.cat([part.weight for part in parts]))
            memory = product.weight.untyped_storage().data_ptr()
            assert all(p.weight.untyped_storage().data_ptr() == memory for p in parts)
            assert all(part.weight.is_contiguous() for part in parts)
            assert (product.bias is None) == (parts[0].bias is None)
    assert list(dict(ours.network.named_parameters())) == list(
        dict(model.network.named_parameters())
    )


SLIDING = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 16}


@pytest.mark.parametrize(
    "kind, settings",
    [
        ("qwen3", {}),
        ("gemma2", {"sliding_window": 12}),
        ("mistral", {"sliding_window": 16}),
        ("llama", {"hidden_act": "gelu"}),
        ("qwen2", {"use_sliding_window": True, **SLIDING}),
    ],
)
def test_other_models_keep_their_own_layers(tmp_path, kind, settings):
    model = loaded(tmp_path, kind, **settings)
    assert not known(model.network)
    assert fused_or_own(model) == (model, "")


def test_odd_layers_keep_the_whole_model_as_it_is(tmp_path):
    model = loaded(tmp_path)
    assert known(model.network)
    second = model.network.get_decoder().layers[1]
    second.self_attn.q_proj.bias = torch.nn.Parameter(torch.zeros(32))
    assert not known(model.network)
    second.self_attn.q_proj.bias = None
    second.mlp.down_proj.half()
    assert not known(model.network)
    second.mlp.down_proj.float()
    second.input_layernorm = torch.nn.RMSNorm(32)
    assert not known(model.network)


def wrong_adapters(layer: FusedLayer) -> list[FusedLayer]:
    """Return the layer with an adapter scaled in another way, or in the place of another."""
    product = layer.gate_up
    if not product.adapters:
        return []
    *rest, own = product.adapters
    moved = slice(0, own.columns.stop - own.columns.start)
    others = (replace(own, scale=1000.0), replace(own, columns=moved))
    return [replace(layer, gate_up=replace(product, adapters=[*rest, o])) for o in others]


def test_a_trial_of_new_adapters_says_something_and_leaves_them_new(tmp_path, half):
    path = tiny_model(tmp_path)
    model = load_model(ModelConfig(str(path), lora=LoraConfig(rank=4)))
    ours = fused_model(SamplerCopy.of(model).model)
    before = {name: p.clone() for name, p in ours.network.named_parameters()}
    assert layers_off(ours) == ""
    for other in wrong_adapters(ours.layers[0]):
        assert "layer 0" in layers_off(replace(ours, layers=[other, *ours.layers[1:]]))
    for name, parameter in ours.network.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_trial_finds_what_is_off(model, half):
    ours = fused_model(SamplerCopy.of(model).model)
    assert layers_off(ours) == ""
    last = ours.layers[-1]
    swapped = replace(last.qkv, weight=last.qkv.weight.roll(8, 0))
    for other in (
        replace(last, heads=replace(last.heads, scaling=1.0)),
        replace(last, qkv=swapped),
        replace(last, before=replace(last.before, weight=torch.ones(32))),
        replace(last, between=replace(last.between, eps=10.0)),
        replace(last, down=replace(last.down, weight=last.down.weight * float("nan"))),
        *wrong_adapters(last),
    ):
        wrong = replace(ours, layers=[*ours.layers[:-1], other])
        assert "layer 1" in layers_off(wrong)


def test_what_fails_is_not_used_and_said(tmp_path, monkeypatch):
    model = loaded(tmp_path)

    def fails(*_given: object) -> None:
        raise RuntimeError("no such kernel\nand much more")

    monkeypatch.setattr(torch.nn.functional, "silu", fails)
    assert fused_or_own(model) == (model, "layers are not fused (no such kernel)")


def test_siblings_keys_are_read_for_each_where_reading_them_once_is_off(tmp_path, monkeypatch):
    model = loaded(tmp_path)
    assert shares_or_not(model) == (True, "")
    look, shared = TokenPlan.look, []

    def other(plan: TokenPlan, heads: Any, query: torch.Tensor) -> torch.Tensor:
        found = look(plan, heads, query)
        if plan.shared:
            shared.append(plan.shared.tokens.tolist())
            found[-1] += 0.5  # of one sequence of 21
        return found

    monkeypatch.setattr(TokenPlan, "look", other)
    works, why = shares_or_not(model)
    assert not works and "siblings' keys are read for each (attention is off by" in why
    assert shared == [[256] * 18 + [0] * 3]


def test_nothing_is_compared_where_a_tile_has_no_room_for_siblings(tmp_path, monkeypatch):
    model = loaded(tmp_path)
    monkeypatch.setattr("recollect.sampler.prefixes.QUERIES", 4)
    works, why = shares_or_not(model)
    assert not works and "a tile has no room for siblings" in why


def test_a_model_that_is_compiled_is_not_compiled_for_nothing(tmp_path):
    model = loaded(tmp_path)
    compiled: list[int] = []
    for layer in model.network.get_decoder().layers:
        layer.forward = lambda *_given, **_more: compiled.append(1)
    works = tried(model)
    assert isinstance(works.network, FusedModel) and works.quick and works.shares
    assert not works.notes and len(keys_of(works.network)) == 2
    assert not compiled


def test_a_cpu_samples_as_it_did(tmp_path):
    model = loaded(tmp_path)
    said: list[str] = []
    policy = PagedPolicy(model, cache_bytes=1 << 22, say=said.append)
    assert policy._network is model and not policy._quick and not said
    assert picks_off(torch.device("cpu")) == ""


def test_a_note_that_nobody_takes_is_on_stderr(monkeypatch, capsys):
    monkeypatch.setattr(choice, "can_be_paged", lambda _model: False)
    monkeypatch.setattr(choice, "LocalPolicy", lambda *_given, **_more: "dense")
    model: Any = SimpleNamespace(device=torch.device("cuda"), network=torch.nn.Identity())
    assert choice.open_sampler(model, 1.0) == "dense"
    assert "recollect: sampling is slow: Identity" in capsys.readouterr().err
    notes: list[str] = []
    choice.open_sampler(model, 1.0, say=notes.append)
    assert len(notes) == 1 and not capsys.readouterr().err

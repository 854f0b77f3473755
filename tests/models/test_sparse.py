"""What of the last layer nobody reads is not computed, and nothing else changes."""

from __future__ import annotations

import functools

import pytest
import torch

from recollect.config.engine import ModelConfig
from recollect.models.model import LoadedModel, load_model
from recollect.models.trie.pack import pack
from tests.support.plain import relative_error
from tests.support.tiny import tiny_model

ROWS = [[7, 8, 9, 10, 11, 12], [7, 8, 9, 20, 21], [7, 8, 9, 20, 30]]


def gradients(model: LoadedModel, ask) -> dict[str, torch.Tensor]:
    """Return the gradient of a sum over the hidden states of some tokens."""
    model.network.zero_grad()
    packed = pack(ROWS, "cpu")
    at = torch.tensor([4, 5, 7])
    torch.manual_seed(1)
    with model.training():
        found = ask(model, packed, at)
        (found * torch.randn(found.shape)).sum().backward()
    return {
        name: p.grad.clone() for name, p in model.network.named_parameters() if p.grad is not None
    }


def all_of_it(model, packed, at):
    return model.hidden(packed.ids, packed.positions, packed.plan)[at]


def only_that(model, packed, at):
    return model.hidden(packed.ids, packed.positions, packed.plan, at)


def only_that_then_another(model, packed, at):
    found = only_that(model, packed, at)
    with torch.no_grad():
        only_that(model, packed, torch.tensor([1, 2, 3]))
    return found


@pytest.mark.parametrize(
    "kind", ["llama", "qwen3_moe", "gemma3_text", "olmo2", "granite", "cohere"]
)
@pytest.mark.parametrize("recompute", [0.0, 1.0])
def test_the_gradient_stays_as_it_is(tmp_path, kind, recompute):
    folder = tiny_model(tmp_path, kind)
    model = load_model(ModelConfig(path=str(folder), recompute=recompute))
    whole, part = (gradients(model, ask) for ask in (all_of_it, only_that))
    assert whole.keys() == part.keys()
    assert relative_error(part, whole) < 1e-5


def test_a_pass_without_a_gradient_in_between_changes_nothing(tmp_path):
    model = load_model(ModelConfig(path=str(tiny_model(tmp_path)), recompute=1.0))
    whole, part = (gradients(model, ask) for ask in (all_of_it, only_that_then_another))
    assert relative_error(part, whole) < 1e-5


def test_the_gradient_of_compiled_layers_too(tmp_path, monkeypatch):
    quick = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", quick)
    folder = tiny_model(tmp_path, num_hidden_layers=3)
    whole = gradients(load_model(ModelConfig(path=str(folder))), all_of_it)
    model = load_model(ModelConfig(path=str(folder), compile=True))
    torch._dynamo.reset()
    for ask in (only_that, all_of_it, only_that):
        assert relative_error(gradients(model, ask), whole) < 1e-5


def test_only_the_last_layer_and_only_in_training_computes_less(tmp_path):
    model = load_model(ModelConfig(path=str(tiny_model(tmp_path, num_hidden_layers=3))))
    seen: list[int] = []
    layers = model.network.get_decoder().layers
    for layer in layers:
        layer.mlp.up_proj.register_forward_hook(
            lambda _m, args, _out: seen.append(args[0].shape[1])
        )
    kinds = [type(layer.mlp) for layer in layers]
    names = list(model.network.state_dict())
    packed, at = pack(ROWS, "cpu"), torch.tensor([4, 5, 7])
    with model.training():
        found = only_that(model, packed, at)
        assert list(model.network.state_dict()) == names
    assert seen == [len(packed.ids), len(packed.ids), 3]
    torch.testing.assert_close(only_that(model, packed, at), found)
    assert seen[3:] == [len(packed.ids)] * 3
    assert [type(layer.mlp) for layer in layers] == kinds

"""Models as the engine loads them, and those it must refuse: it would get them silently wrong."""

from __future__ import annotations

import functools
import json

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.models.llama import modeling_llama

from recollect.config.engine import ModelConfig
from recollect.errors import UserError
from recollect.models.model import KEPT, load_model
from recollect.models.tokenizer import load_counter, load_tokenizer
from recollect.models.trie.pack import pack
from tests.support.tiny import tiny_model


def test_layers_that_mix_tokens_outside_attention_are_refused(tmp_path):
    """Sequences stand in one row: a convolution would carry one into the next."""
    folder = tiny_model(tmp_path, "lfm2", layer_types=["conv", "full_attention"])
    with pytest.raises(UserError, match="outside attention"):
        load_model(ModelConfig(path=str(folder)))


@pytest.mark.parametrize("place", ["mlp", "embed_tokens"])
def test_a_mean_over_tokens_is_refused_wherever_it_is_added(tmp_path, monkeypatch, place):
    """Also where it is the same for every order of the tokens, before any layer."""
    owner = modeling_llama.LlamaMLP if place == "mlp" else torch.nn.Embedding
    own = owner.forward

    def mixing(self, x: torch.Tensor) -> torch.Tensor:
        out = own(self, x)
        return out + out.mean(1, keepdim=True)

    monkeypatch.setattr(owner, "forward", mixing)
    with pytest.raises(UserError, match="outside attention"):
        load_model(ModelConfig(path=str(tiny_model(tmp_path))))


def test_rounding_that_depends_on_the_number_of_rows_mixes_nothing(tmp_path, monkeypatch):
    """As bf16 products do: 16 tokens in one call are rounded otherwise than 8."""
    own = torch.nn.Linear.forward
    seen = set()

    def rounding(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[:-1].numel()
        seen.add(rows)
        grid = 0.02 * rows
        return (own(self, x) / grid).round() * grid

    folder = tiny_model(tmp_path)
    monkeypatch.setattr(torch.nn.Linear, "forward", rounding)
    model = load_model(ModelConfig(path=str(folder)))
    assert seen == {8, 16}
    # The same row, alone and beside another: what a check across sizes would compare.
    ids = list(range(7, -1, -1))
    alone, both = pack([ids], "cpu"), pack([[1] * 8, ids], "cpu")
    with torch.no_grad():
        small = model.hidden(alone.ids, alone.positions, alone.plan)
        large = model.hidden(both.ids, both.positions, both.plan)[torch.from_numpy(both.index[1])]
    assert (small - large).abs().max() > 0.01


def test_attention_alone_is_accepted(tmp_path):
    folder = tiny_model(tmp_path, "lfm2", layer_types=["full_attention", "full_attention"])
    assert load_model(ModelConfig(path=str(folder))).window == 4096


def test_decoded_text_is_what_the_tokens_say(tmp_path):
    """Whatever a folder asks for: no space before a mark is taken away."""
    folder = tiny_model(tmp_path)
    path = folder / "tokenizer_config.json"
    asked = {
        "clean_up_tokenization_spaces": True,
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True,
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | asked))
    tokenizer = load_tokenizer(folder)
    for text in ("a , b .", "do n't !", "who 's ?"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode_control(tokenizer.end_ids[0]) == "<|end|>"


def test_a_tokenizer_that_is_whole_in_its_file_is_taken_as_it_is(tmp_path):
    """transformers makes Qwen2's own for every model of that architecture."""
    folder = tiny_model(tmp_path, "qwen2")
    backend = Tokenizer(models.WordLevel({"<unk>": 0, "one": 1, "two": 2, "<|end|>": 3}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = (folder / "chat_template.jinja").read_text()
    hf = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="<|end|>",
                                 chat_template=template)  # fmt: skip
    hf.save_pretrained(folder)
    assert list(load_tokenizer(folder).encode("two one")) == [2, 1]


def test_a_compiled_layer_keeps_less_for_its_backward_pass(tmp_path, monkeypatch):
    # The part of the compiler that decides what is kept, without the one that writes kernels.
    quick = functools.partial(torch.compile, backend="aot_eager_decomp_partition")
    monkeypatch.setattr(torch, "compile", quick)
    folder = tiny_model(tmp_path, "llama", num_hidden_layers=1)

    def kept(share: float) -> int:
        """Count the bytes that are kept beside the weights."""
        torch._dynamo.reset()
        monkeypatch.setattr("recollect.models.model.KEPT", share)
        model = load_model(ModelConfig(path=str(folder), compile=True))
        packed = pack([list(range(70))], "cpu")
        sizes = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with model.training(), torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            model.hidden(packed.ids, packed.positions, packed.plan).sum()
        weights = {p.untyped_storage().data_ptr() for p in model.network.parameters()}
        return sum(size for place, size in sizes.items() if place not in weights)

    assert kept(KEPT) < 0.85 * kept(1.0)


def test_counting_tokens_needs_no_transformers_and_agrees(tmp_path):
    folder = tiny_model(tmp_path)
    counter, whole = load_counter(folder), load_tokenizer(folder)
    for text in ("Ann lives in Rome.\n", "<|im_end|> is text here", "é 漢字 😀", ""):
        assert counter.encode(text) == whole.encode(text)
    assert "hf" not in vars(counter)  # nothing else was loaded
    assert counter.encode("<|im_end|>", control=True) == whole.encode("<|im_end|>", control=True)
    assert counter.end_ids == whole.end_ids and counter.vocab_size == whole.vocab_size
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="chat template"):
        load_counter(folder)

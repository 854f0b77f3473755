"""What is read at once, planned for pages and for FlashAttention: both see the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recollect.models.attention import Heads
from recollect.models.model import ModelConfig, load_model
from recollect.sampler import prefill
from recollect.sampler.paged_attention import FEW, PagedCache, Program, PromptPlan, flash_takes
from recollect.sampler.prefill import Prefill, Runs
from tests.support.tiny import tiny_model

SIZE, PAGES = 8, 64


def runs_of(some: list[tuple[int, int]]) -> Runs:
    """Make runs of (cached, new) tokens whose pages are scattered; one has a page to spare."""
    held = np.array([-(-(cached + new) // SIZE) for cached, new in some])
    held[0] += 1
    sizes = np.array([new for _, new in some])
    lengths = np.array([cached + new for cached, new in some])
    pages = np.random.default_rng(0).permutation(np.arange(1, PAGES))[: held.sum()]
    ids = np.arange(sizes.sum()) % 200
    return Runs(ids, sizes, lengths, pages, np.cumsum(held) - held)


def reader(folder, dtype: torch.dtype) -> Prefill:
    torch.set_num_threads(1)
    model = load_model(ModelConfig(path=str(tiny_model(folder, "llama"))))
    config = model.network.config
    width = config.hidden_size // config.num_attention_heads
    like = torch.empty(config.num_key_value_heads, 1, width, dtype=dtype)
    model.network.to(dtype)
    cache = PagedCache(config.num_hidden_layers, like, PAGES, SIZE)
    numbers = torch.Generator().manual_seed(0)
    cache.table.copy_(torch.randn(cache.table.shape, generator=numbers))
    return Prefill(model, cache, 8, 512, PAGES)


@pytest.mark.parametrize(
    "some",
    [[(0, 1)], [(8, 9), (0, 40), (16, 16)], [(7, 8), (0, 8), (24, 17), (3, 30), (0, 1)]],
)
def test_copied_keys_are_seen_as_those_in_pages_are(tmp_path, some, monkeypatch):
    """Each run's last token sees the last key, and no run sees another's, nor what is unread."""
    monkeypatch.setattr(prefill, "COPIED", 100)
    own, runs = reader(tmp_path, torch.bfloat16), runs_of(some)
    own._load(runs, len(runs.ids))
    gathered = own._gather(runs)
    assert gathered is not None and gathered.longest == (runs.sizes.max(), runs.lengths.max())
    new, begin = gathered.starts.tolist()
    assert (new[-1], begin[-1]) == (len(runs.ids), SIZE * len(runs.pages))
    assert all(b >= a + n for a, b, n in zip(begin, begin[1:], gathered.lengths, strict=False))
    tiles, at = own._tiles.there, own._runs.there
    plan = PromptPlan(own.cache, torch.empty(0), tiles, at, own._pages.there, own._tile)
    shape = (len(runs.ids), own.model.network.config.num_attention_heads, own.cache.table.shape[-1])
    query = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    for layer in range(len(own.cache.table)):
        heads = Heads(layer, 0.5)
        expected = plan.look(heads, query)
        assert torch.equal(gathered.look(heads, query, own.cache), expected)
        plan.gathered = gathered
        assert torch.equal(plan.look(heads, query), expected)
        windowed = plan.look(
            Heads(layer, 0.5, window=3), query
        )  # which FlashAttention is not asked
        plan.gathered = None
        assert torch.equal(windowed, plan.look(Heads(layer, 0.5, window=3), query))
        assert torch.equal(windowed, expected) == (runs.lengths.max() <= 3)


def test_keys_are_copied_where_they_are_few_and_of_a_kind_that_flash_attention_takes(tmp_path):
    own = reader(tmp_path, torch.bfloat16)
    assert own._gather(runs_of([(0, 40), (40, 40)]))
    assert not own._gather(runs_of([(40, 8), (40, 8)]))
    assert not reader(tmp_path, torch.float32)._gather(runs_of([(0, 40)]))
    half = torch.empty(3, 2, 8, dtype=torch.float16)
    assert flash_takes(half) and flash_takes(half.repeat(1, 1, 32))
    assert not flash_takes(half[..., :4]) and not flash_takes(half.repeat(1, 1, 33))
    assert not flash_takes(half.float())


def test_a_whole_pass_computes_the_same_either_way(tmp_path, monkeypatch):
    runs = runs_of([(0, 33), (0, 8), (0, 50)])
    found = []
    for copied in (4, 0):
        monkeypatch.setattr(prefill, "COPIED", copied)
        with torch.inference_mode():
            found.append(reader(tmp_path, torch.bfloat16).read(runs))
    assert torch.equal(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("times", [1, 2, 3, 6, 7, 8, 12, 71])
def test_tiles_of_all_heads_fit_a_program(width, dtype, times):
    program = Program.of(width, dtype)
    for tile in (program.tile(times), 16):
        for count in (FEW - 1, FEW):
            pack = program.packed(times, tile, count)
            assert 1 <= pack <= times
            assert pack == 1 or pack * tile <= (program.rows if count == FEW else program.rows // 2)
            groups = -(-times // pack)
            assert (groups - 1) * pack < times  # no program is without a head

"""Which sequences begin alike, and that reading what they share once changes nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig

from recollect.models.attention import Heads
from recollect.models.model import ModelConfig, load_model
from recollect.sampler.dense import LocalPolicy
from recollect.sampler.paged import PagedPolicy
from recollect.sampler.paged_attention import TokenPlan
from recollect.sampler.prefixes import BLOCK, FEWEST, SharedRows, head_shape, tiles_of
from recollect.sampler.rows import Rows
from tests.sampler.test_paged import assert_alike, run
from tests.support.tiny import tiny_model

texts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=20).map(
    sorted
)


def pages_in_common(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)))  # fmt: skip


@given(texts, st.integers(FEWEST, 9))
def test_a_tile_holds_rows_that_begin_alike_and_none_holds_a_row_twice(rows, most):
    common = [0] + [BLOCK * pages_in_common(a, b) for a, b in pairwise(rows)]
    lengths = np.array([BLOCK * len(row) for row in rows])
    tokens, tiles = tiles_of(np.array(common), lengths, most)
    assert tiles.shape[1] <= len(rows) // 2
    taken = [row for first, count in tiles.T.tolist() for row in range(first, first + count)]
    assert sorted(set(taken)) == taken == np.flatnonzero(tokens).tolist()
    for first, count in tiles.T.tolist():
        assert 1 <= count <= most
        shared = tokens[first] // BLOCK
        assert {tuple(row[:shared]) for row in rows[first : first + count]} == {
            tuple(rows[first][:shared])
        }
        assert (tokens[first : first + count] == tokens[first]).all()


def test_siblings_are_kept_apart_from_others_with_the_same_instructions():
    """All begin with 64 tokens; siblings have 896 in common, and cousins as much as nobody."""
    common = np.array([0, 896, 896, 64, 896, 896, 64, 64])
    tokens, tiles = tiles_of(common, np.full(8, 1000), 16)
    assert tokens.tolist() == [896] * 6 + [64] * 2
    assert tiles.tolist() == [[0, 3, 6], [3, 3, 2]]


def test_what_is_not_in_the_cache_yet_is_not_shared():
    tokens, _tiles = tiles_of(np.array([0, 640, 640]), np.array([700, 700, 300]), 16)
    assert tokens.tolist() == [256] * 3


def test_little_in_common_is_not_worth_it_and_many_queries_have_no_room():
    rows = SharedRows(64, 3, torch.device("cpu"))
    assert rows.most == 21
    lengths = np.full(16, 1000)
    assert rows.find(np.array([0] + [896] * 15), lengths) is not None
    assert rows.find(np.array([0] + [64] * 15), lengths) is None
    assert rows.find(np.zeros(16, dtype=np.int64), lengths) is None
    assert SharedRows(64, 32, torch.device("cpu")).find(np.array([0, 896]), lengths[:2]) is None


def test_padding_shares_nothing_after_more_rows_were_there():
    rows = SharedRows(64, 3, torch.device("cpu"))
    for count in (32, 16):
        found = rows.find(np.array([0] + [896] * (count - 1)), np.full(count, 1000))
        assert found is not None
        rows.load(found)
    shared = rows.of(32)
    assert shared.tokens.tolist() == [896] * 16 + [0] * 16
    assert shared.tiles.tolist() == [[0] + [0] * 15, [16] + [0] * 15]
    rows.blank()
    assert not rows.of(32).tokens.any() and not rows.of(32).tiles.any()


def test_a_burst_knows_how_its_sequences_begin():
    """Pages are told apart by their number, also where one sequence has fewer."""
    rows = Rows(4, 6, 32)
    rows.held[:] = 3, 5, 5, 2
    rows.pages[0, :3] = 1, 2, 3
    rows.pages[1, :5] = 1, 2, 4, 5, 6
    rows.pages[2, :5] = 1, 2, 4, 5, 7
    rows.pages[3, :2] = 1, 2
    rows.limit[:] = 9

    def common(*slots: int) -> list[int]:
        found = rows.begin(np.array(slots), 1, compared=True).common
        assert found is not None
        return found.tolist()

    assert common(0, 1, 2, 3) == [0, 64, 128, 64]
    assert common(3, 0) == [0, 64] and common(2) == [0]
    assert common(1, 3, 2) == [0, 64, 64]
    rows.pages[3, :5] = 1, 2, 4, 5, 6  # what an earlier sequence left behind
    assert common(1, 3, 2) == [0, 64, 64]
    assert rows.begin(np.array([0, 1]), 1).common is None


@pytest.mark.parametrize("given_width, width", [(None, 16), (24, 24)])
def test_heads_of_a_network(given_width, width):
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2)
    config.head_dim = given_width
    assert head_shape(config) == (4, 2, width)


def test_a_sampler_finds_siblings_and_what_they_share_is_the_same(tmp_path, monkeypatch):
    """Looked at where a kernel reads it, at every step; replies are those of the other sampler."""
    model = load_model(ModelConfig(path=str(tiny_model(tmp_path, "llama"))))
    policy = PagedPolicy(model, cache_bytes=1 << 22, drafts=0)
    policy._extender.decoder.shared = SharedRows(policy.max_running, 2, model.device)
    seen: list[int] = []
    look = TokenPlan.look

    def checked(plan: TokenPlan, heads: Heads, query: torch.Tensor) -> torch.Tensor:
        if plan.shared and heads.layer == 0:
            tokens, size = plan.shared.tokens, plan.cache.size
            assert bool((tokens <= plan.lengths).all())
            for first, count in plan.shared.tiles.T.tolist():
                if not count:
                    continue
                pages = int(tokens[first]) // size
                begin = plan.begin[first : first + count, None] + torch.arange(pages)
                assert pages and len(plan.pages[begin].unique(dim=0)) == 1
                seen.append(count)
        return look(plan, heads, query)

    monkeypatch.setattr(TokenPlan, "look", checked)
    rng = np.random.default_rng(0)
    prompts = []
    for siblings in (6, 1, 3):  # the last three share too little for a block
        shared = rng.integers(0, 250, 200 if siblings > 3 else 40).tolist()
        prompts += [shared + rng.integers(0, 250, 9 + 40 * i).tolist() for i in range(siblings)]
    rng.shuffle(prompts)
    replies = run(policy, prompts, temperature=1.0, max_tokens=40)
    assert_alike(replies, run(LocalPolicy(model), prompts, temperature=1.0, max_tokens=40))
    assert max(seen) == 6 and min(seen) > 1


def test_a_step_that_cannot_be_recorded_reads_for_each_from_then_on(tmp_path, monkeypatch):
    model = load_model(ModelConfig(path=str(tiny_model(tmp_path, "llama"))))
    said: list[str] = []
    policy = PagedPolicy(model, cache_bytes=1 << 22, drafts=0, say=said.append)
    decoder = policy._extender.decoder
    decoder.shared = SharedRows(policy.max_running, 2, model.device)
    asked: list[bool] = []

    def record(_size: int, _way: str, shares: bool = False) -> None:
        asked.append(shares)
        if shares:
            raise RuntimeError("out of resources")

    monkeypatch.setattr(decoder, "record", record)
    prompts = [[*range(1, 150), i] for i in range(6)]
    replies = run(policy, prompts, temperature=1.0, max_tokens=20)
    assert_alike(replies, run(LocalPolicy(model), prompts, temperature=1.0, max_tokens=20))
    assert decoder.shared is None and asked.count(True) == 1
    note = "siblings' keys are read for each: such steps cannot be recorded (out of resources)"
    assert said == [note]
    decoder.shared = SharedRows(policy.max_running, 2, model.device)
    policy._extender.record()
    assert said == [note, note] and decoder.shared is None
    policy._extender.record()
    assert said == [note, note]

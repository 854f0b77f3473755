"""The sampler's small GPU kernels beside plain torch; without a GPU, interpreted."""

from __future__ import annotations

import os
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before any kernel is made, Triton's own too
pytest.importorskip("triton")

from benchmarks.paged_check import off_runs
from benchmarks.paged_kernel import Reading
from benchmarks.paged_shapes import Case, Prompts
from recollect.models.attention import Heads
from recollect.sampler import fused, fused_kernels, fused_parts, paged_attention, paged_kernels
from recollect.sampler.fused_trial import layers_off
from recollect.sampler.paged_attention import PagedCache, Program, TokenPlan
from recollect.sampler.paged_kernels import attend_tokens, join_splits
from recollect.sampler.pick import pick
from recollect.sampler.pick_kernels import quick_pick
from recollect.sampler.prefixes import Shared, SharedRows
from tests.sampler.test_fused import fused_model, loaded, read

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Interpreted, bfloat16 is cut off and not rounded; what a kernel does is the same for both.
HALF, WHOLE = torch.bfloat16 if DEVICE == "cuda" else torch.float16, torch.float32
TYPES = [(WHOLE, HALF), (HALF, HALF), (WHOLE, WHOLE)]
"""Of what is added to, and of products."""


def near(dtype: torch.dtype) -> dict[str, float]:
    """Half precision may round up here and down there, once."""
    return dict(rtol=torch.finfo(dtype).eps if dtype == HALF else 1e-5, atol=1e-6)


def random(*shape: int, dtype: torch.dtype = WHOLE) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=numbers).to(DEVICE, dtype)


def on_cpu(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Copy, so that plain torch computes what is expected."""
    return [None if tensor is None else tensor.cpu().clone() for tensor in tensors]


@pytest.mark.parametrize("width", [576, 32, 100])
@pytest.mark.parametrize("residual_type, dtype", TYPES)
@pytest.mark.parametrize("adds", [False, True])
def test_a_norm_of_a_sum(width, residual_type, dtype, adds):
    residual = random(5, width, dtype=residual_type)
    added = random(5, width + 1, dtype=dtype)[:, 1:].contiguous() if adds else None
    weight = 1 + 0.1 * random(width, dtype=residual_type)
    plain, *others = on_cpu(residual, added, weight)
    expected = fused_parts.add_norm(plain, *others, 1e-5, dtype)
    found = fused_kernels.add_norm(residual, added, weight, 1e-5, dtype)
    assert found.dtype == dtype
    torch.testing.assert_close(residual.cpu(), plain, rtol=0, atol=0)
    torch.testing.assert_close(found.cpu(), expected, **near(dtype))


@pytest.mark.parametrize("q_heads, heads, width", [(9, 3, 64), (2, 2, 24), (4, 1, 8)])
@pytest.mark.parametrize("angle_type, dtype", TYPES)
def test_queries_are_turned_and_keys_and_values_stored(q_heads, heads, width, angle_type, dtype):
    rows, places = 6, 40
    qkv = random(rows, (q_heads + 2 * heads) * width, dtype=dtype)
    angle = random(rows, width)
    cos, sin = angle.cos().to(angle_type), angle.sin().to(angle_type)
    into = torch.tensor([3, 39, 0, 17, 4, 31], device=DEVICE)
    table = random(2, places, heads, width, dtype=dtype)
    plain = on_cpu(qkv, cos, sin, into, table)
    expected = fused_parts.turn(*plain[:4], *plain[4])
    found = fused_kernels.turn(qkv, cos, sin, into, *table)
    torch.testing.assert_close(found.cpu(), expected, **near(dtype))
    torch.testing.assert_close(table.cpu(), plain[4], **near(dtype))
    others = [place for place in range(places) if place not in into.tolist()]
    before = random(2, places, heads, width, dtype=dtype)
    assert torch.equal(table[:, others], before[:, others])


@pytest.mark.parametrize("width", [48, 1536, 1024])
@pytest.mark.parametrize("dtype", [HALF, WHOLE])
def test_a_gate(width, dtype):
    both = 3 * random(3, 2 * width, dtype=dtype)
    expected = fused_parts.gate(*on_cpu(both))
    torch.testing.assert_close(fused_kernels.gate(both).cpu(), expected, **near(dtype))


def test_kernels_refuse_what_is_not_in_one_piece():
    with pytest.raises(ValueError, match="contiguous"):
        fused_kernels.gate(random(8, 6).t())
    with pytest.raises(ValueError, match="contiguous"):
        fused_kernels.add_norm(random(8, 6).t(), None, random(8), 1e-5, WHOLE)
    with pytest.raises(ValueError, match="contiguous"):
        quick_pick(random(8, 6).t(), random(6), random(6).double(), True)


@pytest.mark.parametrize("rows, splits, heads, width", [(3, 2, 9, 64), (1, 32, 4, 24)])
@pytest.mark.parametrize("dtype", [HALF, WHOLE])
def test_parts_of_a_sequence_are_joined(rows, splits, heads, width, dtype):
    out, total = random(rows, splits, heads, width), 5 * random(rows, splits, heads)
    total[:, 1:] = torch.where(total[:, 1:] > 2, float("-inf"), total[:, 1:])  # empty parts
    expected = (out * total.softmax(1)[..., None]).sum(1)
    found = join_splits(out, total, dtype)
    torch.testing.assert_close(found, expected.to(dtype), **near(dtype))


@pytest.mark.parametrize("q_heads, kv_heads, width, tiles, dtype, softcap", [
    (6, 2, 16, 3, HALF, None), (14, 2, 20, 4, WHOLE, 5.0), (1, 1, 32, 2, WHOLE, None),
])  # fmt: skip
def test_keys_that_are_shared_are_read_once_to_the_same_end(
    q_heads, kv_heads, width, tiles, dtype, softcap, monkeypatch
):
    """Two groups of siblings, the larger in two tiles, a lone sequence, and padding."""
    monkeypatch.setattr(paged_kernels, "PROGRAMS", 64)  # enough for a few parts each
    size, groups, padding = 32, ((22, 4), (1, 3), (3, 2)), 2
    rows = sum(count for count, _ in groups) + padding
    table, lengths, common, fresh = [], [], [], iter(range(1, 400))
    for count, same in groups:
        begun = [next(fresh) for _ in range(same)]
        for i in range(count):
            table.append([*begun, next(fresh), next(fresh)])
            lengths.append(size * same + (7 * i) % 60)
            common.append(size * same if i else 0)
    held = np.array([len(own) for own in table])
    begin = np.append(np.cumsum(held) - held, [held.sum()] * padding)
    pages = torch.tensor([*chain(*table), 0], dtype=torch.int32, device=DEVICE)
    cache = PagedCache(1, random(kv_heads, 1, width, dtype=dtype), 400, size)
    cache.table.copy_(random(*cache.table.shape))
    query = random(rows, q_heads, width, dtype=dtype)
    shared = SharedRows(rows, q_heads // kv_heads, torch.device(DEVICE))
    found = shared.find(np.array(common), np.array(lengths))
    assert found is not None and found[1].shape[1] == tiles
    shared.load(found)
    heads = Heads(0, width**-0.5, softcap=softcap)
    there = [torch.tensor(x, device=DEVICE) for x in (begin, [*lengths, *[0] * padding])]
    tables = cache.keys(0), cache.values(0)

    def seen(some: Shared | None, **window: int) -> torch.Tensor:
        own = Heads(0, width**-0.5, softcap=softcap, **window)
        return attend_tokens(own, query, *tables, pages, *there, size, some)

    expected = TokenPlan(cache, pages, *there)
    plain = masked(expected, heads, query)
    tolerance = dict(rtol=0, atol=0.01 if dtype == HALF else 1e-5)
    torch.testing.assert_close(seen(shared.of(rows)), plain, **tolerance)
    torch.testing.assert_close(seen(None), plain, **tolerance)
    # A window hides some of what is shared: every sequence then reads for itself.
    torch.testing.assert_close(seen(shared.of(rows), window=70), seen(None, window=70))
    shared.blank()
    torch.testing.assert_close(seen(shared.of(rows)), plain, **tolerance)


def masked(plan: TokenPlan, heads: Heads, query: torch.Tensor) -> torch.Tensor:
    """Attend as plain torch does, wherever the tables are."""
    cache = PagedCache(1, plan.cache.keys(0)[:1].transpose(0, 1).cpu(), 1, plan.cache.size)
    cache.table = plan.cache.table.cpu()
    own = TokenPlan(cache, plan.pages.cpu(), plan.begin.cpu(), plan.lengths.cpu())
    return own.look(heads, query.cpu()).to(query.device)


def test_a_whole_model_with_kernels_computes_what_its_own_layers_do(tmp_path, monkeypatch):
    model = loaded(tmp_path, "qwen2")
    ours = fused_model(model)
    for name in ("add_norm", "turn", "gate"):
        monkeypatch.setattr(fused, name, getattr(fused_kernels, name))
    assert layers_off(ours) == ""
    torch.testing.assert_close(read(ours), read(model), rtol=0, atol=1e-4)


# --- picking -------------------------------------------------------------------------------------


def assert_picked(logits: torch.Tensor, temperature, uniform, way: str) -> None:
    """Compare with plain torch: another token only where rounding decides."""
    ones = torch.ones(len(logits), device=DEVICE)
    tokens, logprobs = quick_pick(logits, temperature, uniform, way == "drawn")
    expected, expected_logprobs = pick(logits, temperature, ones, uniform, way)
    scaled = logits.double() / temperature[:, None] if way == "drawn" else logits.double()
    probs = scaled.softmax(-1)
    rows = torch.arange(len(logits), device=DEVICE)
    assert bool((probs[rows, tokens] > 0).all())
    torch.testing.assert_close(logprobs.double(), probs.log()[rows, tokens], rtol=0, atol=1e-4)
    same = tokens == expected
    torch.testing.assert_close(logprobs[same], expected_logprobs[same], rtol=0, atol=1e-4)
    if way == "greedy":
        assert bool(same.all())
    ends = probs.cumsum(-1)
    for row in torch.nonzero(~same)[:, 0].tolist():
        between = ends[row, min(tokens[row], expected[row])]
        assert abs(float(between - uniform[row])) < 1e-5


@given(
    rows=st.integers(1, 3),
    size=st.integers(1, 3000),
    spread=st.sampled_from([0.0, 0.1, 4.0, 40.0]),
    missing=st.sampled_from([0.0, 0.5, 0.999]),
    half=st.booleans(),
    way=st.sampled_from(["greedy", "drawn"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25)
def test_quick_picks_are_those_of_plain_torch(rows, size, spread, missing, half, way, seed):
    rng = np.random.default_rng(seed)
    numbers = spread * rng.standard_normal((rows, size))
    numbers[rng.random((rows, size)) < missing] = -np.inf
    numbers[:, rng.integers(size)] = spread
    logits = torch.from_numpy(numbers).to(DEVICE, HALF if half else WHOLE)
    temperature = torch.from_numpy(rng.choice([0.3, 1.0, 1.7], rows)).to(DEVICE)
    edges = [0.0, 0.5, 1 - 2.0**-53]
    uniform = np.where(rng.random(rows) < 0.3, rng.choice(edges, rows), rng.random(rows))
    assert_picked(logits.float(), temperature, torch.from_numpy(uniform).to(DEVICE), way)
    found = quick_pick(logits, temperature, torch.from_numpy(uniform).to(DEVICE), way == "drawn")
    wide = quick_pick(
        logits.float(), temperature, torch.from_numpy(uniform).to(DEVICE), way == "drawn"
    )
    assert torch.equal(found[0], wide[0]) and torch.equal(found[1], wide[1])


def test_every_token_can_be_drawn_and_none_that_cannot_be():
    """One row for each part of the distribution: every token is met as often as it should."""
    size, draws = 2100, 400
    row = torch.full((size,), float("-inf"), device=DEVICE)
    likely = [0, 5, 1023, 1024, 2047, 2099]
    row[likely] = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 1.0], device=DEVICE).log()
    uniform = (torch.arange(draws, device=DEVICE).double() + 0.5) / draws
    ones = torch.ones(draws, device=DEVICE)
    tokens, logprobs = quick_pick(row.expand(draws, -1), ones, uniform, True)
    counts = torch.bincount(tokens, minlength=size)
    assert counts[likely].tolist() == [40, 80, 120, 40, 80, 40]
    assert float(logprobs[0]) == pytest.approx(np.log(0.1), abs=1e-5)


@pytest.mark.parametrize("cached, new", [(0, 130), (70, 50)])
def test_prompts_are_read_from_pages_as_torch_reads_them_without(cached, new):
    """What `benchmarks/paged_kernel.py` compares is the same attention."""
    one = Reading.random(Prompts("", Case(4, 2, 16), 3, cached, new), DEVICE, WHOLE)
    torch.testing.assert_close(one.kernel()(), one.plain()(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case, dtype, rows, block, few", [
    (Case(7, 1, 20), WHOLE, 128, 64, 0),
    (Case(3, 1, 16), WHOLE, 128, 32, 1000),
    (Case(6, 2, 16), HALF, 128, 64, 1000),
    (Case(2, 1, 24, window=64), WHOLE, 64, 32, 0),
    (Case(3, 1, 16, window=100, softcap=3.0), HALF, 128, 64, 0),
    (Case(2, 1, 16, window=1), WHOLE, 128, 64, 1000),
    (Case(2, 1, 16, window=20), WHOLE, 128, 64, 0),
])  # fmt: skip
def test_runs_see_their_sequences_up_to_themselves(case, dtype, rows, block, few, monkeypatch):
    """Runs of a tile and of one more or less, with lengths where blocks end, and before and after.

    Heads that share keys are more than one program takes, or not; windows are of a token, of a
    block, and longer.
    """
    monkeypatch.setattr(paged_attention, "FEW", few)
    torch.manual_seed(0)
    heads = Heads(0, 1.0, case.window, case.softcap)
    program = Program(rows, block, warps=4, stages=2)
    for drafts in (False, True):
        off = off_runs(case, heads, dtype, DEVICE, drafts, program)
        assert off < (0.01 if dtype == HALF else 1e-4)

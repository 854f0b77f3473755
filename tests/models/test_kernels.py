"""The trainer's own GPU kernels beside what they stand for; without a GPU, interpreted."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before any kernel is made, Triton's own too
pytest.importorskip("triton")

from recollect.models import kernels
from recollect.models.trie import levels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    "tokens, heads, width", [(37, 3, 128), (16, 2, 80), (1, 4, 64), (70, 1, 8)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_are_joined_in_place(tokens, heads, width, dtype):
    """In slices of what is whole, and whatever the order of tokens and heads in memory."""
    torch.manual_seed(0)
    out = torch.randn(heads, tokens + 5, width, device=DEVICE).to(dtype).transpose(0, 1)
    lse = 20 * torch.randn(heads, tokens + 5, device=DEVICE)
    part = torch.randn(tokens, heads, width, device=DEVICE).to(dtype)
    part_lse = 20 * torch.randn(1, heads, tokens, 1, device=DEVICE)[0, :, :, 0]
    expected = out.clone(), lse.clone()
    own = slice(3, 3 + tokens)
    levels.join(expected[0][own], expected[1][:, own], part, part_lse)
    kernels.join(out[own], lse[:, own], part, part_lse)
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.01, "atol": 0.01}
    torch.testing.assert_close(out, expected[0], **near)
    torch.testing.assert_close(lse, expected[1])


def test_half_gradients_are_added_in_float32():
    torch.manual_seed(0)
    total = torch.randn(100, 333, device=DEVICE)
    part = torch.randn(333, 100, device=DEVICE).bfloat16().t()
    expected = total + part
    kernels.add(total, part)
    torch.testing.assert_close(total, expected)
    with pytest.raises(ValueError, match="contiguous"):
        kernels.add(total.t(), part.t())

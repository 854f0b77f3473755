"""What a program of the kernel for prompts takes at a time."""

from __future__ import annotations

import pytest
import torch

from recollect.sampler.paged_attention import FEW, ROOM, Program


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


@pytest.mark.parametrize("width", [64, 128, 256])
def test_what_a_program_holds_fits_the_gpu(width):
    """Queries, and keys and values for every stage, in 16 bits."""
    for room in (99 << 10, ROOM, 227 << 10):
        program = Program.of(width, torch.bfloat16, room)
        held = 2 * width * (program.rows + 2 * program.block * program.stages)
        assert held <= room

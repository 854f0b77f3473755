"""The demo's base model with heads twice as wide, and the same in every output.

vLLM's attention for CPUs knows no heads of 16.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from recollect.config.presets import DEMO_MODEL


def widened(folder: Path) -> Path:
    """Save the model; what is added to its heads is zero, and stays out of every product."""
    before = AutoModelForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32)
    config = AutoConfig.from_pretrained(DEMO_MODEL)
    size = config.head_dim
    config.head_dim = 2 * size
    after = AutoModelForCausalLM.from_config(config)
    weights = {}
    half = torch.arange(size // 2)
    # Rotary positions turn dimension i with i + size / 2, at a speed that depends on i / size.
    turned = torch.cat([2 * half, 2 * half + size])
    for name, weight in before.state_dict().items():
        weights[name] = weight
        if "_proj" in name and "self_attn" in name:
            columns = "o_proj" in name
            rows = (weight.T if columns else weight).unflatten(0, (-1, size))
            wide = torch.zeros(rows.shape[0], 2 * size, rows.shape[2])
            wide[:, torch.arange(size) if "v_proj" in name or columns else turned] = rows
            # Scores are divided by the root of the width.
            wide = wide * 2**0.5 if "q_proj" in name else wide
            weights[name] = wide.flatten(0, 1).T if columns else wide.flatten(0, 1)
    after.load_state_dict(weights)
    ids = torch.arange(5, 45)[None]
    with torch.no_grad():
        assert torch.allclose(after(ids).logits, before(ids).logits, atol=1e-4)
    after.save_pretrained(folder)
    AutoTokenizer.from_pretrained(DEMO_MODEL).save_pretrained(folder)
    return folder

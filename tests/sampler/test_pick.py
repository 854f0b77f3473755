"""Tokens picked on the device against those drawn on the host."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recollect.sampler.draw import draw, uniforms
from recollect.sampler.pick import inverse_cdf, pick


def distributions(rows: int, size: int) -> torch.Tensor:
    torch.manual_seed(size)
    logits = 4 * torch.randn(rows, size)
    logits[:, ::3] = float("-inf")  # probability zero must never be picked
    return logits


@pytest.mark.parametrize("size", [7, 256, 1000, 1024])
@pytest.mark.parametrize("way", ["drawn", "mixed"])
def test_it_picks_what_the_host_draws(size, way):
    rows = 400
    logits = distributions(rows, size)
    temperature = np.full(rows, 0.8)
    top_p = np.ones(rows)
    if way == "mixed":
        temperature[::3], top_p[::4] = 0.0, 0.7
    draws = uniforms(np.arange(rows), np.arange(rows))
    tokens, logprobs = draw(logits, temperature, top_p, draws)
    tensor = lambda values: torch.from_numpy(values).float()  # noqa: E731
    found = pick(logits, tensor(temperature), tensor(top_p), torch.from_numpy(draws), way)
    assert found[0].tolist() == tokens
    np.testing.assert_allclose(found[1], logprobs, atol=1e-5)


def test_greedy_takes_the_most_likely():
    logits = distributions(50, 300)
    ones = torch.ones(50)
    tokens, logprobs = pick(logits, 0 * ones, ones, ones.double(), "greedy")
    assert tokens.tolist() == logits.argmax(-1).tolist()
    torch.testing.assert_close(logprobs, logits.log_softmax(-1).amax(-1), atol=1e-5, rtol=0)


def test_a_draw_at_the_very_end_falls_on_a_token_that_can_be():
    probs = torch.zeros(1, 700)
    probs[0, 300:305] = 0.2
    for draw_at in (0.0, 0.999999999999, np.nextafter(1.0, 0.0)):
        token = inverse_cdf(probs, torch.tensor([draw_at], dtype=torch.float64))
        assert 300 <= int(token) < 305


def test_draws_follow_the_distribution():
    logits = distributions(1, 600).expand(40_000, -1)
    draws = torch.from_numpy(uniforms(np.arange(40_000), np.zeros(40_000)))
    ones = torch.ones(40_000)
    tokens, _ = pick(logits, ones, ones, draws, "drawn")
    shares = torch.bincount(tokens, minlength=600) / 40_000
    probs = logits[0].softmax(-1)
    error = (shares - probs).abs() / (probs / 40_000).sqrt().clamp(min=1e-6)
    assert float(error[probs > 1e-4].max()) < 5

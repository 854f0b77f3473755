"""Which tokens are one sequence, and what a sequence that spans samples has in common."""

from __future__ import annotations

import numpy as np
import pytest

from recollect.train.rows import Row, sequences, with_episode_ratios
from tests.support.plain import sample

# Two contexts of episode 3, the first with two turns; one of episode 1; one that trains nothing.
SAMPLES = [
    sample([9, 1, 1, 9, 1], [1, 2, 4], 1.0, episode=3, logprobs=-1.0),
    sample([9, 9, 1], [2], 1.0, episode=1, logprobs=-2.0),
    sample([9, 9], [], 1.0, episode=1),
    sample([9, 1, 9, 1], [1, 3], 1.0, episode=3, logprobs=-3.0),
]


@pytest.mark.parametrize(
    ("scope", "numbers"),
    [
        ("turn", [0, 0, 1, 2, 3, 4]),
        ("context", [0, 0, 0, 1, 2, 2]),
        ("episode", [1, 1, 1, 0, 1, 1]),
    ],
)
def test_sequences(scope, numbers):
    assert sequences(SAMPLES, scope).tolist() == numbers


def test_an_episodes_ratio_is_over_all_its_tokens():
    old = np.array([-2.5, -3.5])  # of the last sample, in place of the sampler's
    rows = [Row(s, 0.1, old if s is SAMPLES[3] else None) for s in SAMPLES]
    now = [np.array([-1.5, -1.0, -0.5]), np.array([-1.0]), np.array([]), np.array([-2.0, -2.0])]
    # Episode 3: -0.5, 0, 0.5 and 0.5, 1.5: mean 0.4. Episode 1: 1.
    found = with_episode_ratios(rows, now)
    assert [row.sequence.tolist() for row in found] == [
        pytest.approx([0.4] * 3),
        [1.0],
        [],
        pytest.approx([0.4] * 2),
    ]
    assert [row.sample for row in found] == SAMPLES

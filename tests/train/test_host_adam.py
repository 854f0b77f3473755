"""AdamW with its averages on the host, against torch's."""

from __future__ import annotations

import torch

from recollect.train.host_adam import HostAdamW


def test_it_gives_what_adamw_gives():
    settings = dict(lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    ours, theirs = ([torch.nn.Parameter(w.clone()) for w in weights()] for _ in range(2))
    one, other = HostAdamW(ours, **settings), torch.optim.AdamW(theirs, foreach=False, **settings)
    generator = torch.Generator().manual_seed(1)
    for step in range(5):
        for group in (*one.param_groups, *other.param_groups):
            group["lr"] = 0.01 * (step + 1)
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        ours[2].grad = theirs[2].grad = None  # a weight that was not used keeps its averages
        one.step()
        other.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        assert {k: v.tolist() for k, v in one.state[a].items()} == {
            k: v.tolist() for k, v in other.state[b].items()
        }
    assert not one.state[ours[2]]


def weights():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,), (2, 2))]

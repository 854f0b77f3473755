"""The last layer's feed-forward part, computed only where its result is read.

Of the last layer every token's keys and values are needed, but the rest only at tokens that
something is predicted from: none inside a shared prefix, and of what follows it the reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


@cache
def sparse(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """Make the class of modules like `kind`, which must treat every token by itself.

    Only the tokens whose flat indices are in `at` are computed; the others get zeros.
    """

    class Sparse(kind):  # type: ignore[misc, valid-type]
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            if self.at is None:
                return super().forward(hidden)
            found = super().forward(hidden.index_select(1, self.at))
            return found.new_zeros(hidden.shape).index_copy(1, self.at, found)

    return Sparse


@contextmanager
def sparse_end(network: Any) -> Iterator[Any]:
    """Let the last layer's `mlp`, if the model has one of that name, compute what is asked for.

    It becomes an object of another class, not one with a hook: compiled layers look at classes, but
    not at hooks; and names of weights stay as they are.
    """
    last = getattr(network.get_decoder(), "layers", [None])[-1]
    module: Any = getattr(last, "mlp", None)
    if module is None:
        yield None
        return
    kind: Any = type(module)
    module.__class__, module.at = sparse(kind), None
    try:
        yield module
    finally:
        module.__class__ = kind
        del module.at


@contextmanager
def asking(module: Any, at: torch.Tensor | None) -> Iterator[None]:
    """Ask what `sparse_end` gave for some tokens of one pass, for all of them if None.

    A pass with a gradient leaves it so: a layer that recomputes asks again in the backward pass.
    """
    if module is None:
        yield
        return
    before, module.at = module.at, at
    yield
    if not torch.is_grad_enabled():
        module.at = before

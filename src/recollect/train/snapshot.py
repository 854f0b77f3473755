"""A model's weights as they were at one moment, for a sampler that works while they are trained."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from recollect.train.model import LoadedModel


@dataclass(frozen=True)
class Snapshot:
    """A copy of a model; weights that are not trained are shared with it."""

    model: LoadedModel
    """The copy: nothing of it changes but by `refresh`."""
    _trained: LoadedModel

    @classmethod
    def of(cls, trained: LoadedModel) -> Snapshot:
        """Copy a model."""
        fixed = [p for p in trained.network.parameters() if not p.requires_grad]
        memo: dict[int, Any] = {id(parameter): parameter for parameter in fixed}
        network = copy.deepcopy(trained.network, memo).requires_grad_(False)
        return cls(dataclasses.replace(trained, network=network), trained)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the weights as they are now."""
        own = self.model.network.named_parameters()
        theirs = dict(self._trained.network.named_parameters())
        for name, parameter in own:
            if parameter is not theirs[name]:
                parameter.copy_(theirs[name])

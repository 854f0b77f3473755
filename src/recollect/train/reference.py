"""The reference: the model as it was before training, from which the policy may not stray."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recollect.models.model import LoadedModel


class Reference:
    """The model before training: its adapters switched off, or else a frozen copy."""

    def __init__(self, model: LoadedModel) -> None:
        self._adapters: list[Any] = []
        if all(parameter.requires_grad for parameter in model.network.parameters()):
            network = copy.deepcopy(model.network).requires_grad_(False).eval()
            self._model = dataclasses.replace(model, network=network)
        else:
            from peft.tuners.tuners_utils import BaseTunerLayer

            layers = model.network.modules()
            self._adapters = [layer for layer in layers if isinstance(layer, BaseTunerLayer)]
            self._model = model

    @contextmanager
    def use(self) -> Iterator[LoadedModel]:
        """Give the model as it was before training."""
        try:
            for layer in self._adapters:
                layer.enable_adapters(False)
            yield self._model
        finally:
            for layer in self._adapters:
                layer.enable_adapters(True)

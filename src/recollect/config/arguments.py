"""Types of settings that the command line reads beside tyro's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def settings_registry() -> ConstructorRegistry:
    """Let a setting that may be a function be given by its name."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def function(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if get_origin(info.type) is not Callable:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="NAME",
            instance_from_str=lambda args: args[0],
            is_instance=callable,
            str_from_instance=lambda value: [value.__name__],
        )

    return registry

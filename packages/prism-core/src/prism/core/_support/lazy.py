"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import TypeAlias

GetAttribute: TypeAlias = Callable[[str], object]
"""What a module's `__getattr__` is."""


def lazy_names(package: str, homes: Mapping[str, str]) -> GetAttribute:
    """A module's `__getattr__`: it loads a name from the module of *package* that has it.

    Args:
        package: The package's `__name__`.
        homes: The module below *package* by name.
    """

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get

"""Making an extension of a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from prism.core._errors import UsageError
from prism.core.extensions._api import ExtensionApi

Setup: TypeAlias = Callable[[ExtensionApi], Awaitable[None] | None]
"""Registers contributions; sync or async."""


class SimpleExtension:
    """An extension that consists of its setup.

    Args:
        name: Unique in a kernel.
        setup: Registers contributions and starts nothing; sync or async.
        requires: Names of extensions that must be loaded before.
    """

    __slots__ = ("_setup", "name", "requires")

    def __init__(self, name: str, setup: Setup, *, requires: Sequence[str] = ()) -> None:
        if not callable(setup):
            raise UsageError(f"The setup of extension {name!r} must be callable.")
        if isinstance(requires, str):
            raise UsageError(f"requires of extension {name!r} is a list of names: [{requires!r}].")
        self.name: str = name
        self.requires: Sequence[str] = tuple(requires)
        self._setup: Setup = setup

    def setup(self, api: ExtensionApi, /) -> Awaitable[None] | None:
        """Register the contributions."""
        return self._setup(api)

    def __repr__(self) -> str:
        return f"SimpleExtension({self.name!r})"


def extension(name: str, *, requires: Sequence[str] = ()) -> Callable[[Setup], SimpleExtension]:
    """Make an extension of the setup function that follows.

    Args:
        name: Unique in a kernel.
        requires: Names of extensions that must be loaded before.
    """

    def make(setup: Setup) -> SimpleExtension:
        return SimpleExtension(name, setup, requires=requires)

    return make

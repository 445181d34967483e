"""What the extensions of one load add, kept apart until all of them are set up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from prism.core._errors import ExtensionError, PrismError
from prism.core.extensions._registry import ContributionRegistry

Undo: TypeAlias = Callable[[], None]


class Change:
    """One thing that an extension adds, which can be taken back before and after it is made."""

    __slots__ = ("_apply", "_over", "_undo", "source")

    def __init__(self, source: str, apply: Callable[[], Undo]) -> None:
        self.source: str = source
        self._apply: Callable[[], Undo] = apply
        self._undo: Undo | None = None
        self._over: bool = False

    def make(self) -> None:
        """Add it, unless it was taken back."""
        if not self._over:
            self._undo = self._apply()

    def take_back(self) -> None:
        """Take it out, or never add it; twice does no harm."""
        self._over = True
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()


class Stage:
    """Changes in the order in which they were asked for, and the contributions among them."""

    __slots__ = ("_changes", "_contributions")

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._contributions: dict[tuple[ContributionRegistry[Any], str], tuple[Any, str]] = {}

    def contribute(
        self, registry: ContributionRegistry[Any], name: str, value: Any, source: str
    ) -> None:
        """Register *value* when the load is complete.

        Raises:
            RegistryError: As by `ContributionRegistry.register`.
        """
        registry.check_value(name, value, source=source)
        registry.check_free(name, source=source)
        key = (registry, name)
        if key in self._contributions:
            raise registry.taken(name, self._contributions[key][1], source)
        self._contributions[key] = (value, source)

        def apply() -> Undo:
            registry.register(name, value, source=source)
            return lambda: _unregister(registry, name, value, source)

        self.add(Change(source, apply))

    def contribution(self, registry: ContributionRegistry[Any], name: str) -> tuple[Any] | None:
        """The value that will have that name, in a tuple."""
        found = self._contributions.get((registry, name))
        return None if found is None else (found[0],)

    def contribution_names(self, registry: ContributionRegistry[Any]) -> tuple[str, ...]:
        """Every name that *registry* will have besides those that it has."""
        return tuple(name for owner, name in self._contributions if owner is registry)

    def add(self, change: Change) -> None:
        """Make *change* when the load is complete."""
        self._changes.append(change)

    def commit(self) -> dict[str, list[Change]]:
        """Make all changes, or none.

        Returns:
            The changes of each extension.

        Raises:
            ExtensionError: What was free when it was asked for is taken now.
        """
        made: dict[str, list[Change]] = {}
        try:
            for change in self._changes:
                change.make()
                made.setdefault(change.source, []).append(change)
        except PrismError as error:
            self.drop()
            raise ExtensionError(
                f"The extensions could not be loaded: {error.message}",
                details={"cause": error.code},
            ) from error
        self._contributions.clear()
        return made

    def drop(self) -> None:
        """Take everything back, the last first."""
        for change in reversed(self._changes):
            change.take_back()
        self._contributions.clear()


def _unregister(registry: ContributionRegistry[Any], name: str, value: object, source: str) -> None:
    # The host may have taken it out, and put something else in its place.
    if registry.get(name) is value and registry.source(name) == source:
        registry.unregister(name)

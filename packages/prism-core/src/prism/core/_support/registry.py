"""Values by name, and who brought each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from prism.core._errors import RegistryError

T = TypeVar("T")

SHOWN_NAMES: Final = 50
"""How many known names an error lists unless a registry says otherwise."""


class Registry(Generic[T]):
    """Values by unique names, in the order of registration, each with its source.

    It is as large as what the host's own code puts in, and nothing else puts anything in.

    Args:
        kind: What one value is called in messages, such as `tool`.
        plural: What several are called; default: *kind* and an `s`.
        shown: How many known names an error lists.
        nothing: The sentence that stands in their place when there are none.
    """

    __slots__ = ("_entries", "_kind", "_nothing", "_plural", "_shown")

    def __init__(
        self,
        kind: str,
        *,
        plural: str | None = None,
        shown: int = SHOWN_NAMES,
        nothing: str = "Known: none.",
    ) -> None:
        self._kind: str = kind
        self._plural: str = f"{kind}s" if plural is None else plural
        self._shown: int = shown
        self._nothing: str = nothing
        self._entries: dict[str, _Entry[T]] = {}

    def register(
        self, name: str, value: T, *, source: str = "host", aliases: Iterable[str] = ()
    ) -> None:
        """Add *value* under *name* and each alias.

        Args:
            name: Must be free, like each alias.
            value: Counts once, whatever the number of its names.
            source: Who brings it, for messages.
            aliases: Further names.

        Raises:
            RegistryError: `duplicate_name`, naming both sources, or `invalid_name`; nothing was
                added then.
        """
        names = (name, *aliases)
        for each in names:
            self.check_free(each, source=source)
        entry = _Entry(value, source)
        for each in names:
            self._entries[each] = entry

    def check_free(self, name: str, *, source: str) -> None:
        """Return only when a value could be registered under *name* now.

        Raises:
            RegistryError: `duplicate_name`, naming both sources, or `invalid_name`.
        """
        if not name:
            raise RegistryError(f"Each {self._kind} needs a name.", code="invalid_name")
        present = self._entries.get(name)
        if present is not None:
            raise self.taken(name, present.source, source)

    def taken(self, name: str, present: str, source: str) -> RegistryError:
        """The error for a name that *present* has and *source* wants."""
        where = (
            f"both from {present}; one of them needs another name."
            if present == source
            else f"one from {present} and one from {source}, which needs another name."
        )
        return RegistryError(
            f"Two {self._plural} are named {name!r}: {where}",
            code="duplicate_name",
            details={"name": name, "sources": [present, source]},
        )

    def unknown(self, name: str, *, also: Iterable[str] = ()) -> RegistryError:
        """The error for a name that nobody has; *also* are known ones that are not in here."""
        known = [*self._entries, *also]
        return RegistryError(
            f"There is no {self._kind} named {name!r}. "
            f"{list_names(known, shown=self._shown, nothing=self._nothing)}",
            details={"name": name, "known": known[: self._shown]},
        )

    def unregister(self, name: str) -> T:
        """Take the value of that name out, with all its names, and return it.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        entry = self._entry(name)
        for each in [key for key, other in self._entries.items() if other is entry]:
            del self._entries[each]
        return entry.value

    def get(self, name: str) -> T | None:
        """The value of that name, or `None`."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def resolve(self, name: str) -> T:
        """The value of that name.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        return self._entry(name).value

    def source(self, name: str) -> str:
        """Who brought the value of that name.

        Raises:
            RegistryError: `unknown_name`, listing the known ones.
        """
        return self._entry(name).source

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, in the order of registration."""
        return tuple(self._entries)

    def list(self) -> tuple[T, ...]:
        """Every value once, in the order of registration."""
        return tuple({id(entry.value): entry.value for entry in self._entries.values()}.values())

    def items(self) -> tuple[tuple[str, T], ...]:
        """Every name with its value, in the order of registration."""
        return tuple((name, entry.value) for name, entry in self._entries.items())

    def __iter__(self) -> Iterator[T]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def _entry(self, name: str) -> _Entry[T]:
        entry = self._entries.get(name)
        if entry is None:
            raise self.unknown(name)
        return entry


class _Entry(Generic[T]):
    """One registration, told apart by identity from another one of the same value."""

    __slots__ = ("source", "value")

    def __init__(self, value: T, source: str) -> None:
        self.value: T = value
        self.source: str = source


def list_names(
    names: Iterable[str],
    *,
    label: str = "Known",
    shown: int = SHOWN_NAMES,
    nothing: str = "Known: none.",
) -> str:
    """A sentence that lists *names*, at most the first *shown*; *nothing* when there are none."""
    known = list(names)
    if not known:
        return nothing
    more = f" and {len(known) - shown} more" if len(known) > shown else ""
    return f"{label}: {', '.join(known[:shown])}{more}."

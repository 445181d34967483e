"""A registry of one kind of contribution."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from prism.core._errors import RegistryError
from prism.core._support.registry import Registry

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
# What a manifest may name, so that all that it declares can be registered.
NAME_RULE: Final = (
    "begins with a letter or digit and has at most 128 letters, digits and . _ : / @ -"
)


def is_name(name: object) -> bool:
    """Whether an extension, a contribution or a topic may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


class ContributionRegistry(Registry[T]):
    """Contributions of one kind by name, in the order of registration, each with its source.

    It is a list to choose from: what is in it has no effect until the host passes it on.

    Args:
        kind: What one contribution is called in messages, such as `tool`.
        plural: What several are called; default: *kind* and an `s`.
        accepts: Types, of one of which every value is; default: any value.
    """

    __slots__ = ("_accepts",)

    def __init__(
        self, kind: str, *, plural: str | None = None, accepts: tuple[Any, ...] = (object,)
    ) -> None:
        super().__init__(kind, plural=plural)
        self._accepts: tuple[Any, ...] = accepts

    def register(
        self, name: str, value: T, *, source: str = "host", aliases: Iterable[str] = ()
    ) -> None:
        """Add *value* under *name* and each alias.

        Args:
            name: Begins with a letter or digit and has at most 128 letters, digits and
                `. _ : / @ -`; it must be free, like each alias.
            value: Of a type that the registry accepts.
            source: Who brings it, for messages: an extension's name, or `host`.
            aliases: Further names.

        Raises:
            RegistryError: `duplicate_name`, naming both sources, `invalid_name` or
                `invalid_value`; nothing was added then.
        """
        self.check_value(name, value, source=source)
        super().register(name, value, source=source, aliases=aliases)

    def check_value(self, name: str, value: object, *, source: str) -> None:
        """Return only when *value* is of a type that the registry accepts.

        Raises:
            RegistryError: `invalid_value`.
        """
        if not isinstance(value, self._accepts):
            wanted = " or ".join(getattr(each, "__name__", str(each)) for each in self._accepts)
            raise RegistryError(
                f"The {self._kind} {name!r} of {source!r} must be a {wanted}, not a "
                f"{type(value).__name__}.",
                code="invalid_value",
                details={"name": str(name), "source": source},
            )

    def check_free(self, name: str, *, source: str) -> None:
        """Return only when a value could be registered under *name* now.

        Raises:
            RegistryError: `duplicate_name`, naming both sources, or `invalid_name`.
        """
        if not is_name(name):
            raise RegistryError(
                f"The name of a {self._kind} {NAME_RULE}: {str(name)[:80]!r} of {source!r} is "
                "none.",
                code="invalid_name",
            )
        super().check_free(name, source=source)

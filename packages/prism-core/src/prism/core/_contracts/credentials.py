"""Secrets by reference."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, runtime_checkable

import msgspec


class CredentialRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which credential is wanted: `name` is `apiKey` unless a provider needs several."""

    provider: str
    name: str = "apiKey"
    scope: str | None = None


class Secret:
    """A secret value that shows itself only to `reveal()`.

    It hides in `repr`, `str` and formatting, and refuses pickling, copying to JSON and
    comparison with plain text.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """The value itself; put it into a request and nowhere else."""
        return self.__value

    def __repr__(self) -> str:
        return "Secret('[REDACTED]')"

    def __str__(self) -> str:
        return "[REDACTED]"

    def __format__(self, format_spec: str) -> str:
        return format("[REDACTED]", format_spec)

    def __bool__(self) -> bool:
        return bool(self.__value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self.__value

    def __hash__(self) -> int:
        return hash(self.__value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Secret cannot be pickled or copied.")

    def __getstate__(self) -> Any:
        raise TypeError("A Secret cannot be pickled or copied.")


@runtime_checkable
class CredentialResolver(Protocol):
    """Finds a credential when it is needed, each time."""

    async def resolve(self, request: CredentialRequest) -> Secret | None:
        """The credential, or `None` when this resolver has none."""
        ...

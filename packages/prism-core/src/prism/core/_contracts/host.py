"""What a host decides: permissions, trust, settings, resources, commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from prism.core._wire import ToolCallBlock

PermissionVerdict: TypeAlias = Literal["allow", "deny", "ask"]


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """May this be done?

    Attributes:
        action: `tool` for a call; a host may have others.
        name: What is acted on: a tool's name, a path, a command.
        call: The call, when the action is `tool`.
    """

    action: str
    name: str
    session_id: str | None = None
    run_id: str | None = None
    call: ToolCallBlock | None = None
    metadata: dict[str, Any] | None = None


class PermissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, with a reason that the model and the host may read."""

    verdict: PermissionVerdict
    reason: str | None = None


@runtime_checkable
class PermissionPolicy(Protocol):
    """Allows, denies or asks somebody."""

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        """The answer; a policy that does not know denies."""
        ...


@runtime_checkable
class TrustPolicy(Protocol):
    """Says whether a path or another source may be read as configuration or code."""

    def is_trusted(self, subject: str) -> bool:
        """Whether the host trusts it."""
        ...


@runtime_checkable
class SettingsProvider(Protocol):
    """Settings by key."""

    def get(self, key: str) -> Any:
        """The value, or `None`."""
        ...


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded resource."""

    uri: str
    data: bytes
    media_type: str | None = None


@runtime_checkable
class ResourceLoader(Protocol):
    """Loads what a URI names."""

    @property
    def schemes(self) -> frozenset[str]:
        """URI schemes that it serves, such as `file` and `data`."""
        ...

    async def load(self, uri: str, *, max_bytes: int) -> Resource:
        """The resource; more than *max_bytes* is `ResourceError` `resource_too_large`."""
        ...


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command is run; `session` is the current session, or `None`."""

    session_id: str | None = None
    session: Any = None
    metadata: dict[str, Any] | None = None


class CommandDefinition:
    """A command that a person or a client runs by name; the model never sees it.

    Args:
        name: As `command` of the RPC names it; may hold `:`.
        execute: Sync or async. It takes the arguments and a `CommandContext`, and returns text,
            content blocks, any JSON value or a `CommandResult`.
        description: For a list of commands.
        parameters: JSON Schema of the arguments, checked before it runs; `None`: anything.
    """

    __slots__ = ("description", "execute", "name", "parameters")

    def __init__(
        self,
        *,
        name: str,
        execute: Callable[[Any, CommandContext], Any | Awaitable[Any]],
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.name: str = name
        self.execute: Callable[[Any, CommandContext], Any | Awaitable[Any]] = execute
        self.description: str = description
        self.parameters: dict[str, Any] | None = None if parameters is None else dict(parameters)

    def __repr__(self) -> str:
        return f"CommandDefinition({self.name!r})"
